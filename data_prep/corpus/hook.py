"""Call the user's own function for every cleaned document (`corpus.hook`).

    from data_prep.corpus.hook import Drop, Facts

    def keep(text: str, facts: Facts) -> str | Drop | None:
        if "lorem ipsum" in text:
            return Drop("placeholder")      # counted as hook_placeholder
        return text.replace("colour", "color")

None keeps the text as it is. A changed text is cleaned again, then redacted and filtered like any
other. The function must depend on its arguments alone, since units of work run in any order.
"""

import re
import traceback
from dataclasses import dataclass

from data_prep.dotted import load, source_file
from data_prep.errors import SesameError
from data_prep.reading.documents import RawDocument
from data_prep.reading.source_files import SourceFile

KEY = "corpus.hook"


@dataclass(frozen=True)
class Facts:
    """What a hook is told about a document besides its text."""

    id: str  # its own id, or its file and place
    file: str  # name of its file below corpus.paths
    group: str | None  # value of corpus.group_field


@dataclass(frozen=True)
class Drop:
    """The answer of a hook that drops a document.

    The reason is shown in manifests, so it is a name of letters, digits and _, never a text.
    """

    reason: str

    @property
    def counter(self) -> str:
        """The name under which the document is counted."""
        return f"hook_{self.reason}"


class Hook:
    """The user's function; its faults become one sentence that names the document's place."""

    def __init__(self, path: str):
        self._path = path
        self._function = load(KEY, path)
        self._file = str(source_file(KEY, path))

    def call(self, text: str, document: RawDocument, file: SourceFile) -> str | Drop | None:
        """Return a changed text, a Drop, or None for a text that stays."""
        place = f"{file.name}, document {document.id}"
        try:
            answer = self._function(text, Facts(document.id, file.name, document.group))
        except Exception as error:  # the user's code may raise anything
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                     if frame.filename == self._file]  # fmt: skip
            where = f" in line {lines[-1]}" if lines else ""
            raise SesameError(
                f"{KEY}={self._path}: {type(error).__name__}{where}, at {place}; correct the "
                "function (HYDRA_FULL_ERROR=1 shows the error)"
            ) from error
        if answer is None or isinstance(answer, str):
            return answer
        if isinstance(answer, Drop) and re.fullmatch(r"[A-Za-z]\w{0,39}", str(answer.reason)):
            return answer
        raise SesameError(
            f"{KEY}={self._path}: gave a {type(answer).__name__} that is neither a text, nor None, "
            f"nor Drop(<a name of letters and digits>), at {place}; correct the function"
        )
