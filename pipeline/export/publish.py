"""Prepare a folder for the Hugging Face Hub from a fine-tuned model or an encoder; upload it.

Copies the files that a user of the model needs and no others: no manifest, run facts or lease. The
model card gets the header that the Hub reads and a data statement. A file that names a place of
this machine is refused. Nothing leaves the machine except by `upload`.
Try it: sesame publish model=mine/ner licence=cc-by-4.0 language=sv out=ner-sv
"""

import json
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from data_prep.errors import SesameError, UsageError
from data_prep.files import write_atomically
from data_prep.reading.untrusted import read_object, read_text
from pipeline.config.schema import check_language, check_licence
from pipeline.export.card import UNSTATED as NO_LICENCE
from pipeline.store.models import FILE

CARD = "README.md"
NEVER = ("manifest.json", "run.json", CARD)
TEXTS = (".json", ".md")  # files that are searched for places of this machine
ABSOLUTE = re.compile(r"(?:~|/[\w.-]+)/|[A-Za-z]:\\")  # at the beginning of a text
SEARCHED_BYTES = 1 << 20  # larger ones are vocabularies
TAGS = {  # kind of task to the Hub's name
    "classify": "text-classification",
    "multilabel": "text-classification",
    "regress": "text-classification",
    "tag": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
}
STATEMENT = "\n## Data statement\n\n{statement}\n"
UNSTATED = "Not stated by its makers, beyond the counts in this card."
MINIMAL = "# {name}\n\n## Use\n\n`sesame embed encoder=path/to/this/folder input=sentences.txt`\n"


@dataclass(frozen=True)
class Statement:
    """What only the makers of a model know."""

    licence: str
    languages: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    base_model: str = ""
    data: str = ""  # about the training data, as Markdown

    def check(self) -> None:
        """Raise UsageError if the licence is missing, or not one that the Hub knows."""
        if not self.licence:
            raise UsageError(
                "licence: state under which licence others may use the model, such as "
                "licence=apache-2.0 or licence=cc-by-4.0"
            )
        check_licence("licence", self.licence)
        check_language("language", list(self.languages))


def prepare(source: Path, out: Path, stated: Statement, name: str) -> None:
    """Write the folder `out` from a model's or an encoder's folder.

    Raises UsageError if `out` has files, and SesameError if a file names a place of this machine.
    Then `out` is as it was before.
    """
    stated.check()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"out={out}: has files already; choose another folder, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        _write(source, draft, stated, name)
        _refuse_places(draft)
        os.replace(draft, out)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _write(source: Path, out: Path, stated: Statement, name: str) -> None:
    """Write the folder `out`, which must not exist."""
    out.mkdir()
    for path in sorted(source.rglob("*")):
        below = path.relative_to(source)
        is_hidden = any(part.startswith(".") for part in below.parts)
        if path.is_file() and not is_hidden and below.name not in NEVER:
            (out / below.parent).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out / below)
    card = source / CARD
    body = _body(card.read_text()) if card.exists() else MINIMAL.format(name=name)
    body = body.replace(NO_LICENCE, stated.licence)
    body += STATEMENT.format(statement=stated.data.strip() or UNSTATED)
    write_atomically(out / CARD, _header(source, stated) + body)


def _body(card: str) -> str:
    """Return a card without its YAML header."""
    before, *header = card.split("---\n", 2)
    return header[-1].lstrip("\n") if not before and len(header) == 2 else card


def _header(source: Path, stated: Statement) -> str:
    """Return the YAML header; values are JSON, since YAML reads `no` as false."""
    library, tag = _library(source)
    content: dict[str, Any] = {
        "language": list(stated.languages),
        "license": stated.licence,
        "library_name": library,
        "pipeline_tag": tag,
        "base_model": stated.base_model,
        "datasets": list(stated.datasets),
        "tags": ["sesame"],
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in content.items() if value]
    return "\n".join(["---", *lines, "---", "", ""])


def _library(source: Path) -> tuple[str, str]:
    """Return the library that loads a folder, and the Hub's name of its task."""
    if (source / FILE).exists():
        model = read_object(source / FILE)
        library = "sesame" if model["form"] == "sesame" else "transformers"
        return library, TAGS[model["task"]["kind"]]
    if (source / "modules.json").exists():
        return "sentence-transformers", "sentence-similarity"
    if (source / "config.json").exists():
        names = read_object(source / "config.json").get("architectures") or [""]
        has_masked = any(end in str(names[0]) for end in ("ForPreTraining", "ForMaskedLM"))
        return "transformers", "fill-mask" if has_masked else "feature-extraction"
    return "sesame", "feature-extraction"


def _refuse_places(out: Path) -> None:
    """Raise SesameError if a card or a file of settings names a folder of this machine."""
    places = {str(Path.cwd()), str(Path.home())} - {"/"}
    for path in sorted(out.rglob("*")):
        if path.suffix not in TEXTS or path.stat().st_size > SEARCHED_BYTES:
            continue
        text = read_text(path, SEARCHED_BYTES)
        if any(place in text for place in places) or _has_path(path, text):
            raise SesameError(
                f"{path.relative_to(out)}: names a folder of this machine; remove that line from "
                "the model's folder or from the file of data=, or give another model"
            )


def _has_path(path: Path, text: str) -> bool:
    """Return True if a setting of a JSON file is an absolute path, such as `_name_or_path`."""
    found: list[object] = []
    if path.suffix == ".json":
        try:
            json.loads(text, object_hook=lambda content: found.extend(content.values()))
        except (ValueError, RecursionError) as error:
            raise SesameError(f"{path.name}: not JSON; copy the model's folder again") from error
    return any(isinstance(value, str) and ABSOLUTE.match(value) for value in found)


class Hub(Protocol):
    """The part of `huggingface_hub.HfApi` that is used."""

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> Any: ...

    def upload_folder(self, *, repo_id: str, folder_path: str) -> Any: ...


def upload(out: Path, repo: str, hub: Hub) -> None:
    """Upload a prepared folder to a repository, which is made private if it is new.

    Raises SesameError if the Hub refuses it.
    """
    try:
        hub.create_repo(repo, private=True, exist_ok=True)
        hub.upload_folder(repo_id=repo, folder_path=str(out))
    except (OSError, ValueError) as error:  # HTTP errors are OSErrors
        raise SesameError(
            f"repo={repo}: the Hub refused the upload ({type(error).__name__}); check the name and "
            "the rights of your token"
        ) from error


def open_hub() -> Hub:
    """Return the Hub with the token of $HF_TOKEN. Raises UsageError if it is not set."""
    token = os.environ.get("HF_TOKEN")
    if not token:
        raise UsageError("--upload: set HF_TOKEN to a token that may write to your repositories")
    from huggingface_hub import HfApi

    hub: Hub = HfApi(token=token)
    return hub
