"""Clean sections on their way to the shards: some 16 MB of them a segment, and tables about them.

A piece of the `clean` pass writes, and the later passes read, for each segment
    <number>.text        every section's text and the tail of its metadata, one after another
    <number>.table       a row a section
    <number>.paragraphs  a row a paragraph of a section
    <number>.minhash     a signature a document, where near-duplicates are looked for
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.minhash import SIGNATURE_VALUES

SECTION_SENTENCES = 2000
SEGMENT_BYTES = 16 << 20

# A section: the 128-bit hash of its document's clean text, its place there, sizes.
SECTION = np.dtype(
    [
        ("low", "<u8"),
        ("high", "<u8"),
        ("section", "<u4"),
        ("text_bytes", "<u4"),
        ("tail_bytes", "<u4"),
        ("sentences", "<u4"),
        ("words", "<u4"),
        ("paragraphs", "<u4"),
        ("group", "<u8"),  # hash of what the document belongs to, or 0
        ("source", "<u2"),  # number of its source, in order of their names
    ]
)
# A paragraph, or the part of one that a section has: the 128-bit hash of the whole paragraph, or
# zeros where it is too short to be compared; sizes of the part, line breaks after it included.
PARAGRAPH = np.dtype(
    [
        ("low", "<u8"),
        ("high", "<u8"),
        ("text_bytes", "<u4"),
        ("sentences", "<u4"),
        ("words", "<u4"),
        ("begins", "?"),  # not the rest of a paragraph cut by the section's end
    ]
)
# The same rows as they are written; a hash's bytes are its halves, low before high.
SECTION_ROW = struct.Struct("<16s6IQH")
PARAGRAPH_ROW = struct.Struct("<16s3I?")
assert (SECTION_ROW.size, PARAGRAPH_ROW.size) == (SECTION.itemsize, PARAGRAPH.itemsize)
UNCOMPARED = bytes(16)
BREAK = b"\n\n"  # between paragraphs; a section ends with half of it

Table = NDArray[np.void]


@dataclass(frozen=True)
class CleanFile:
    """Some 16 MB of clean sections and their tables."""

    text: Path

    def sections(self) -> Table:
        """The rows of its sections in order."""
        return np.fromfile(self.text.with_suffix(".table"), SECTION)

    def paragraphs(self) -> Table:
        """The rows of its paragraphs in order."""
        return np.fromfile(self.text.with_suffix(".paragraphs"), PARAGRAPH)

    def signatures(self) -> NDArray[np.uint32]:
        """The MinHash signatures of its documents, a row each, not read before they are used."""
        path = self.text.with_suffix(".minhash")
        return np.memmap(path, np.uint32, "r").reshape(-1, SIGNATURE_VALUES)


def clean_files(pieces: Sequence[Path]) -> list[CleanFile]:
    """The segments of all clean pieces in corpus order."""
    return [CleanFile(path) for piece in pieces for path in sorted(piece.glob("*.text"))]


@dataclass(frozen=True)
class Bounds:
    """Where each segment's rows begin among those of the whole corpus; one more is their end."""

    sections: list[int]
    documents: list[int]
    paragraphs: list[int]

    @classmethod
    def of(cls, segments: Sequence[CleanFile]) -> "Bounds":
        """Count the rows of all segments."""
        bounds = cls([0], [0], [0])
        for segment in segments:
            table = segment.sections()
            bounds.sections.append(bounds.sections[-1] + len(table))
            bounds.documents.append(bounds.documents[-1] + int((table["section"] == 0).sum()))
            bounds.paragraphs.append(
                bounds.paragraphs[-1] + int(table["paragraphs"].sum(dtype=np.int64))
            )
        return bounds

    def slices(self, segment: int) -> tuple[slice, slice, slice]:
        """The sections, documents and paragraphs of a segment."""
        sections, documents, paragraphs = (
            slice(firsts[segment], firsts[segment + 1])
            for firsts in (self.sections, self.documents, self.paragraphs)
        )
        return sections, documents, paragraphs


def documents_of(table: Table) -> NDArray[np.int64]:
    """The document of each section, counted from the segment's first."""
    numbers: NDArray[np.int64] = np.cumsum(table["section"] == 0) - 1
    return numbers


def text_digest(data: bytes) -> bytes:
    """The hash by which equal texts are known."""
    return hashlib.blake2b(data, digest_size=16).digest()


def group_hash(group: str | None) -> int:
    """What tables hold of a group: 0 for none."""
    if group is None:
        return 0
    return max(int.from_bytes(text_digest(group.encode())[:8], "little"), 1)


def cut_sections(paragraphs: list[list[str]], most: int) -> Iterator[list[list[str]]]:
    """Runs of paragraphs with at most `most` sentences; a longer paragraph is cut."""
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


class SegmentWriter:
    """Writes sections and the tables of them, rolling to a new segment every 16 MB.

    Paragraphs shorter than `compared_from` characters get no hash.
    """

    def __init__(self, folder: Path, compared_from: int = 0):
        self._folder = folder
        self._compared_from = compared_from
        self._number = 0
        self._bytes = 0  # of text in the current segment
        self._files: dict[str, IO[bytes]] = {}  # of the current segment, by ending
        self._open = ExitStack()

    def __enter__(self) -> "SegmentWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def add(
        self,
        paragraphs: list[list[str]],
        tail: bytes,
        digest: bytes,
        signature: NDArray[np.uint32] | None = None,
        group: int = 0,
        source: int = 0,
    ) -> None:
        """Append one document of a group (by its hash) and a source (by its number)."""
        whole = iter(paragraphs)
        left, hashed = 0, UNCOMPARED  # sentences of the current paragraph to come, and its hash
        for number, section in enumerate(cut_sections(paragraphs, SECTION_SENTENCES)):
            texts, rows = [], []
            sentences = words = 0
            for part in section:
                text = "\n".join(part)
                data = text.encode()
                begins = left == 0
                if begins:
                    left = len(paragraph := next(whole))
                    hashed = self._hash(text if left == len(part) else "\n".join(paragraph))
                left -= len(part)
                own_words = text.count(" ") + len(part)  # sentences have no line breaks
                sentences += len(part)
                words += own_words
                texts.append(data)
                size = len(data) + len(BREAK)
                rows.append(PARAGRAPH_ROW.pack(hashed, size, len(part), own_words, begins))
            data = BREAK.join(texts) + b"\n"
            self._write("text", data + tail)
            sizes = len(data), len(tail), sentences, words, len(rows)
            self._write("table", SECTION_ROW.pack(digest, number, *sizes, group, source))
            self._write("paragraphs", b"".join(rows))
            self._bytes += len(data) + len(tail)
        if signature is not None:
            self._write("minhash", signature.tobytes())
        if self._bytes >= SEGMENT_BYTES:
            self._roll()

    def _hash(self, paragraph: str) -> bytes:
        if len(paragraph) < self._compared_from:
            return UNCOMPARED
        return text_digest(paragraph.encode())

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
