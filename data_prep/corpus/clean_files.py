"""Clean files: the intermediate form between the `clean` pass and the shards.

A work unit of the `clean` pass writes one or more clean files of about 16 MB each. The later
passes read them. Clean file <number> consists of
    <number>.text        per section, its text followed by its document's origin (JSON)
    <number>.table       one SECTION row per section
    <number>.paragraphs  one PARAGRAPH row per paragraph of a section
    <number>.minhash     one MinHash signature per document, if corpus.near_duplicates is set
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.minhash import SIGNATURE_VALUES
from data_prep.corpus.shard_format import Origin
from data_prep.text.languages import KNOWN, UNDETERMINED

LANGUAGES = ("", UNDETERMINED, *sorted(KNOWN))  # the first: not identified
LANGUAGE_NUMBERS = {code: number for number, code in enumerate(LANGUAGES)}
SECTION_SENTENCES = 2000
SEGMENT_BYTES = 16 << 20

# A section: the 128-bit hash of its document's clean text, its number in the document, its sizes.
SECTION = np.dtype(
    [
        ("low", "<u8"),
        ("high", "<u8"),
        ("section", "<u4"),
        ("text_bytes", "<u4"),
        ("origin_bytes", "<u4"),
        ("sentences", "<u4"),
        ("words", "<u4"),
        ("paragraphs", "<u4"),
        ("group", "<u8"),  # hash of the document's group, or 0
        ("source", "<u2"),  # number of its source; sources are numbered in order of their names
        ("language", "|u1"),  # index in LANGUAGES
    ]
)
# A paragraph, or the part of it that lies in one section. The 128-bit hash is of the whole
# paragraph, or zero if it is too short to be compared. Sizes are of the part, including "\n\n".
PARAGRAPH = np.dtype(
    [
        ("low", "<u8"),
        ("high", "<u8"),
        ("text_bytes", "<u4"),
        ("sentences", "<u4"),
        ("words", "<u4"),
        ("begins", "?"),  # False if the paragraph began in the section before
    ]
)
# The same rows for struct.pack; the 16 bytes of a hash are (low, high).
SECTION_ROW = struct.Struct("<16s6IQHB")
PARAGRAPH_ROW = struct.Struct("<16s3I?")
assert (SECTION_ROW.size, PARAGRAPH_ROW.size) == (SECTION.itemsize, PARAGRAPH.itemsize)
UNCOMPARED = bytes(16)
BREAK = b"\n\n"  # between paragraphs; a section ends with a single "\n"

Table = NDArray[np.void]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class CleanFile:
    """About 16 MB of clean sections and their tables; `text` is the path of its .text file."""

    text: Path

    def sections(self) -> Table:
        """Read its SECTION rows, in corpus order."""
        return np.fromfile(self.text.with_suffix(".table"), SECTION)

    def paragraphs(self) -> Table:
        """Read its PARAGRAPH rows, in corpus order."""
        return np.fromfile(self.text.with_suffix(".paragraphs"), PARAGRAPH)

    def signatures(self) -> NDArray[np.uint32]:
        """Memory-map its MinHash signatures [documents, SIGNATURE_VALUES]."""
        path = self.text.with_suffix(".minhash")
        return np.memmap(path, np.uint32, "r").reshape(-1, SIGNATURE_VALUES)


def list_clean_files(pieces: Sequence[Path]) -> list[CleanFile]:
    """List the clean files in these work units' folders, in corpus order."""
    return [CleanFile(path) for piece in pieces for path in sorted(piece.glob("*.text"))]


def documents_of(table: Table) -> NDArray[np.int64]:
    """Return the document of each section, numbered from 0 in its clean file."""
    numbers: NDArray[np.int64] = np.cumsum(table["section"] == 0) - 1
    return numbers


def text_digest(data: bytes) -> bytes:
    """Return the 16-byte hash by which equal texts are found."""
    return hashlib.blake2b(data, digest_size=16).digest()


def group_hash(group: str | None) -> int:
    """Return the value of the `group` column: a 64-bit hash, or 0 for no group."""
    if group is None:
        return 0
    return max(int.from_bytes(text_digest(group.encode())[:8], "little"), 1)


def cut_sections(paragraphs: list[list[str]], most: int) -> Iterator[list[list[str]]]:
    """Split paragraphs into sections of at most `most` sentences.

    Yields sections as lists of paragraphs. A paragraph that crosses the limit is split.
    """
    section: list[list[str]] = []
    room = most
    for paragraph in paragraphs:
        while len(paragraph) > room:
            section.append(paragraph[:room])
            yield [part for part in section if part]
            paragraph, section, room = paragraph[room:], [], most
        section.append(paragraph)
        room -= len(paragraph)
    if room < most:
        yield section


@dataclass(frozen=True)
class KeptParagraphs:
    """The S sections and P paragraphs of a clean file without its dropped paragraphs.

    Sizes and texts agree: `read` returns a text of exactly the bytes that `sections` states.
    """

    table: Table  # [S] SECTION rows, as they were cleaned
    paragraphs: Table  # [P] PARAGRAPH rows
    dropped: Flags  # [P]

    def sections(self) -> Table:
        """Return the section table [S] with the sizes recomputed without the dropped paragraphs."""
        left = self.table.copy()
        owner = np.repeat(np.arange(len(left)), self.table["paragraphs"])[~self.dropped]
        for size in ("text_bytes", "sentences", "words"):
            left[size] = np.bincount(owner, self.paragraphs[size][~self.dropped], len(left))
        left["paragraphs"] = np.bincount(owner, minlength=len(left))
        # Paragraph sizes include "\n\n"; a section ends with a single "\n".
        left["text_bytes"] -= left["paragraphs"] > 0
        return left

    def read(self, stream: IO[bytes], section: int) -> tuple[bytes, bytes]:
        """Read a section's text, without the dropped paragraphs, and its origin.

        `stream` is the clean file's open .text file.
        """
        stream.seek(self._starts[section])
        text = stream.read(int(self.table["text_bytes"][section]))
        origin = stream.read(int(self.table["origin_bytes"][section]))
        own = slice(*self._paragraph_bounds[section : section + 2])
        if self.dropped[own].any():
            ends = np.cumsum(self.paragraphs["text_bytes"][own], dtype=np.int64)
            starts = np.concatenate(([0], ends[:-1]))
            kept = np.stack((starts, ends - len(BREAK)), 1)[~self.dropped[own]].tolist()
            text = BREAK.join([text[start:end] for start, end in kept]) + b"\n"
        return text, origin

    @cached_property
    def _starts(self) -> list[int]:
        sizes = self.table["text_bytes"].astype(np.int64) + self.table["origin_bytes"]
        starts: list[int] = (np.cumsum(sizes) - sizes).tolist()
        return starts

    @cached_property
    def _paragraph_bounds(self) -> list[int]:
        bounds: list[int] = np.cumsum([0, *self.table["paragraphs"]]).tolist()
        return bounds


@dataclass(frozen=True)
class CleanDocument:
    """One cleaned document, as `CleanFileWriter` takes it."""

    paragraphs: list[list[str]]  # sentences by paragraph
    origin: Origin
    digest: bytes  # `text_digest` of the clean text
    signature: NDArray[np.uint32] | None = None  # [1, SIGNATURE_VALUES], for near-duplicates
    group: int = 0  # `group_hash` of its group
    source: int = 0  # number of its source


class CleanFileWriter:
    """Writes documents to clean files below `folder`; starts a new file after `file_bytes` bytes.

    Paragraphs shorter than `compared_from` characters get no hash.
    """

    def __init__(self, folder: Path, compared_from: int = 0, file_bytes: int = SEGMENT_BYTES):
        self._folder = folder
        self._compared_from = compared_from
        self._file_bytes = file_bytes
        self._number = 0
        self._bytes = 0  # text bytes in the current clean file
        self._files: dict[str, IO[bytes]] = {}  # open files of the current clean file, by suffix
        self._open = ExitStack()

    def __enter__(self) -> "CleanFileWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def add(self, document: CleanDocument) -> None:
        """Append one document."""
        whole = iter(document.paragraphs)
        origin = document.origin.encode()
        language = LANGUAGE_NUMBERS[document.origin.language or ""]
        # Sentences of the current paragraph that later sections will hold, and its hash.
        left, hashed = 0, UNCOMPARED
        for number, section in enumerate(cut_sections(document.paragraphs, SECTION_SENTENCES)):
            texts, rows = [], []
            sentences = words = 0
            for part in section:
                text = "\n".join(part)
                data = text.encode()
                begins = left == 0
                if begins:
                    left = len(paragraph := next(whole))
                    entire = text if left == len(part) else "\n".join(paragraph)
                    hashed = UNCOMPARED
                    if len(entire) >= self._compared_from:
                        hashed = text_digest(data if entire is text else entire.encode())
                left -= len(part)
                own_words = text.count(" ") + len(part)  # a sentence has one word more than spaces
                sentences += len(part)
                words += own_words
                texts.append(data)
                size = len(data) + len(BREAK)
                rows.append(PARAGRAPH_ROW.pack(hashed, size, len(part), own_words, begins))
            data = BREAK.join(texts) + b"\n"
            sizes = len(data), len(origin), sentences, words, len(rows)
            row = document.digest, number, *sizes, document.group, document.source, language
            self._write("text", data + origin)
            self._write("table", SECTION_ROW.pack(*row))
            self._write("paragraphs", b"".join(rows))
            self._bytes += len(data) + len(origin)
        if document.signature is not None:
            self._write("minhash", document.signature.tobytes())
        if self._bytes >= self._file_bytes:
            self._roll()

    def _write(self, ending: str, data: bytes) -> None:
        if ending not in self._files:
            path = self._folder / f"{self._number:06d}.{ending}"
            self._files[ending] = self._open.enter_context(path.open("wb"))
        self._files[ending].write(data)

    def _roll(self) -> None:
        self._open.close()
        self._files.clear()
        self._number += 1
        self._bytes = 0
