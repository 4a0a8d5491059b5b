"""The user's files as readers take them: path, name, format, compression, and parts of a file."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from data_prep.errors import SesameError
from data_prep.reading.plain_text import PlainText
from data_prep.reading.remote import RemotePath

FilePath = Path | RemotePath
# Wikipedia dumps in several files have names such as …xml-p10p30302.bz2.
FORMAT = re.compile(
    r"\.(?:(txt|json|jsonl|ndjson|csv|tsv|xml)(?:-p\d+p\d+[^.]*)?(\.(?:gz|bz2|xz|zst))?"
    r"|(parquet|arrow|feather))$",
    re.IGNORECASE,
)
ENDINGS = (
    ".parquet, .arrow, .feather; .txt, .json, .jsonl, .ndjson, .csv, .tsv, .xml, each also with "
    ".gz, .bz2, .xz or .zst"
)
SAME_FORMAT = {"ndjson": "jsonl", "feather": "arrow"}


@dataclass(frozen=True)
class FileState:
    """The size, time and inode of a file; any change of the file changes one of them."""

    size: int
    modified: int  # in nanoseconds
    inode: int

    @classmethod
    def of(cls, path: FilePath) -> "FileState | None":
        """Return the present state of a file, or None if it cannot be read."""
        try:
            status = path.stat()
        except OSError:
            return None
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass(frozen=True)
class SourceFile:
    """A file of the corpus.

    `name` is its path below the root that the user gave, or `<source>/<path>` for a named source.
    `source` is the number of the source. A METS file has `pages`, which are read with it.
    """

    path: FilePath
    name: str
    source: int = 0
    state: FileState | None = field(default=None, compare=False)  # at the time of the survey
    markup: str = "wiki"  # the kind of an XML file
    pages: tuple["SourceFile", ...] = ()
    missing_pages: int = 0  # pages that a METS file names and that are not in the corpus
    plain: PlainText | None = None  # for a large file that cannot be divided as it is

    @property
    def size(self) -> int:
        """The bytes to read, with all pages; of the plain text if there is one."""
        if self.plain is not None:
            return self.plain.size
        return self.path.stat().st_size + sum(page.size for page in self.pages)

    def with_pages(self) -> tuple["SourceFile", ...]:
        """Return the file and its pages: everything that is read for it."""
        return (self, *self.pages)

    def renamed(self, prefix: str, source: int) -> "SourceFile":
        """Return the file, and its pages, as files of a named source."""
        pages = tuple(page.renamed(prefix, source) for page in self.pages)
        return replace(self, name=f"{prefix}/{self.name}", source=source, pages=pages)

    def refuse_change(self) -> None:
        """Raise SesameError if the file has changed since the survey: text may be lost."""
        for page in self.pages:
            page.refuse_change()
        now = _present_state(self.path)
        if self.state is None or now == self.state:
            return
        sizes = f" ({self.state.size:,} bytes, now {now.size:,})" if now else ""
        raise SesameError(
            f"{self.name} {'changed' if now else 'is gone'}{sizes} while the corpus was read; "
            "no output was made: do not change the files, and run the same command again"
        )

    @property
    def format(self) -> str:
        """The format: txt, json, jsonl, csv, tsv, parquet, arrow, wiki, alto, page or mets."""
        ending = _endings(self.path.name)[0]
        return self.markup if ending == "xml" else SAME_FORMAT.get(ending, ending)

    @property
    def compression(self) -> str:
        """The suffix of the compression with its dot, or an empty string."""
        return _endings(self.path.name)[1]


@dataclass(frozen=True)
class Part:
    """A part of a file: the records that start in bytes [start, end).

    Both bounds may lie inside a record. Readers move each to the start of the next record.
    """

    file: SourceFile
    start: int
    end: int


def _present_state(path: FilePath) -> FileState | None:
    if isinstance(path, Path):
        return FileState.of(path)
    present = path.present()
    return None if present is None else FileState.of(present)


def _endings(name: str) -> tuple[str, str]:
    match = FORMAT.search(name)
    assert match, f"{name} was not checked by survey"
    return (match[1] or match[3]).lower(), (match[2] or "").lower()
