"""The format of document shards: plain tar files of sections, with reproducible bytes.

Section `<document>-<section>` is two members: `.txt` (UTF-8, one sentence per line, a blank line
between paragraphs) and `.json`:
    document  document number in corpus order
    section   section number in its document
    weight    expected number of copies of the document in vocabularies and training rows; absent
              if it is 1, and always in the held-out split
    id        the document's own id, or its file and position
    source    the file it comes from; `<source>/<file>` below a named source (corpus.sources)
    group     the value of corpus.group_field; absent if that is not set or the document has none
    language  its ISO 639-1 code, or und; absent with corpus.languages=none
Each tar has an index `<tar>.index.json` with counts and cuts. Cuts are offsets of sections about
4 MB apart; later stages split their work there. Any tar reader (webdataset, for example) can read
the tars.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from data_prep.errors import SesameError
from data_prep.files import atomic_write, write_atomically

BLOCK = 512  # tar's unit: a header is one block, contents are padded to whole blocks
CUT_BYTES = 4 << 20
MOST_PARTS = 1 << 15  # of a split
READ_BYTES = 1 << 20

# ustar header around the name (100 bytes), size and checksum: mode 0644, owner 0, mtime 0, file.
AFTER_NAME = b"0000644\0" + b"0000000\0" * 2
AFTER_SIZE = b"00000000000\0"
AFTER_CHECKSUM = b"0" + bytes(100) + b"ustar\x0000" + bytes(32) * 2 + b"0000000\0" * 2 + bytes(167)
FIXED_SUM = sum(AFTER_NAME) + sum(AFTER_SIZE) + sum(b" " * 8) + sum(AFTER_CHECKSUM)


@dataclass(frozen=True)
class Section:
    """At most 2,000 sentences of one document; paragraph breaks are not kept here."""

    document: int
    section: int
    id: str
    source: str
    sentences: list[str]
    weight: float = 1.0
    group: str | None = None
    language: str | None = None

    @property
    def group_number(self) -> int:
        """A number of the group (a hash), or the document number if it has no group."""
        return self.document if self.group is None else (1 << 62) | hash_name(self.group)


def hash_name(name: str) -> int:
    """Return a number below 2⁶² for a name."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


@dataclass(frozen=True)
class Origin:
    """Where a document comes from: the part of a section's metadata that all its sections share."""

    id: str
    source: str
    group: str | None = None
    language: str | None = None

    def encode(self) -> bytes:
        """Return a JSON object."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        return json.dumps(values, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class StoredSection:
    """A section as a tar holds it: the bytes of its two members, and its counts for the index."""

    document: int
    section: int
    text: bytes  # one sentence per line, a blank line between paragraphs
    origin: bytes  # an encoded `Origin`
    sentences: int
    words: int
    weight: float = 1.0

    def metadata(self) -> bytes:
        """Return the JSON member: numbers, the weight unless it is 1, and the origin."""
        weight = b"" if self.weight == 1.0 else b'"weight": %a, ' % self.weight
        numbers = b'{"document": %d, "section": %d, %s' % (self.document, self.section, weight)
        return numbers + self.origin.removeprefix(b"{")

    @staticmethod
    def decode(text: bytes, metadata: bytes) -> Section:
        """Return the section of two members; raises ValueError if `metadata` is not JSON."""
        values = json.loads(metadata)
        return Section(
            document=values["document"],
            section=values["section"],
            id=values["id"],
            source=values["source"],
            sentences=[line for line in text.decode().split("\n") if line],
            weight=values.get("weight", 1.0),
            group=values.get("group"),
            language=values.get("language"),
        )


def section_names(documents: Any, sections: Any) -> Any:
    """Return one id per section, unique in the corpus, from the numbers of document and section.

    Takes two integers or two integer arrays.
    """
    return (documents << 20) + sections


@dataclass(frozen=True)
class ShardPart:
    """The sections in bytes [start, end) of one tar: one work unit of a later stage."""

    path: Path
    start: int
    end: int


def tar_header(name: str, size: int) -> bytes:
    """Return the header block of a member; it depends on the name and the size only."""
    filled = name.encode().ljust(100, b"\0")
    assert len(filled) == 100, "member names are keys of fixed length"
    octal = b"%011o\0" % size
    checksum = FIXED_SUM + sum(filled) + sum(octal)
    return filled + AFTER_NAME + octal + AFTER_SIZE + b"%06o\0 " % checksum + AFTER_CHECKSUM


def member_bytes(size: int) -> int:
    """Return the bytes that a member of `size` bytes takes in a tar: header, content, padding."""
    return BLOCK + -(-size // BLOCK) * BLOCK


@dataclass
class ShardWriter:
    """Writes the sections of one tar to `stream` in order; `close` returns its index."""

    stream: IO[bytes]
    position: int = 0
    documents: int = 0
    sections: int = 0
    sentences: int = 0
    words: int = 0
    cuts: list[int] = field(default_factory=lambda: [0])
    _last_document: int = -1

    def add(self, section: StoredSection) -> None:
        """Append one section."""
        if self.position - self.cuts[-1] >= CUT_BYTES:
            self.cuts.append(self.position)
        key = f"{section.document:010d}-{section.section:05d}"
        self._member(f"{key}.txt", section.text)
        self._member(f"{key}.json", section.metadata())
        self.documents += section.document != self._last_document
        self._last_document = section.document
        self.sections += 1
        self.sentences += section.sentences
        self.words += section.words

    def _member(self, name: str, content: bytes) -> None:
        padding = bytes(-len(content) % BLOCK)
        self.position += self.stream.write(
            b"".join((tar_header(name, len(content)), content, padding))
        )

    def close(self) -> dict[str, Any]:
        """Write the end-of-archive blocks and return the index."""
        self.stream.write(bytes(2 * BLOCK))
        return {
            "bytes": self.position + 2 * BLOCK,
            "documents": self.documents,
            "sections": self.sections,
            "sentences": self.sentences,
            "words": self.words,
            "cuts": self.cuts,
        }


def write_shard(path: Path, sections: Iterable[StoredSection]) -> None:
    """Write a tar and its index atomically."""
    with atomic_write(path) as stream:
        writer = ShardWriter(stream)
        for section in sections:
            writer.add(section)
        index = writer.close()
    write_atomically(index_path(path), json.dumps(index) + "\n")


def index_path(tar: Path) -> Path:
    """Return the path of a tar's index."""
    return tar.with_name(f"{tar.name}.index.json")


def parts(folder: Path, split: str) -> list[ShardPart]:
    """List the parts of a split ("train" or "heldout") in corpus order.

    A part has about 4 MB, and twice as much for each doubling of a corpus above 128 GB: there are
    at most MOST_PARTS, as long as a tar has several. Every part is some files on its way to rows.
    Raises SesameError if a tar does not have the size that its index states.
    """
    cut = _cut_parts(folder, split)
    joined = 1
    while -(-len(cut) // joined) > MOST_PARTS:
        joined *= 2
    found = []
    for tar, of_tar in groupby(cut, lambda part: part.path):
        own = list(of_tar)
        for first in range(0, len(own), joined):
            found.append(ShardPart(tar, own[first].start, own[first:][:joined][-1].end))
    return found


def _cut_parts(folder: Path, split: str) -> list[ShardPart]:
    pieces = []
    for index in sorted(folder.glob(f"{split}-*.tar.index.json")):
        values = json.loads(index.read_text())
        tar = index.with_name(index.name.removesuffix(".index.json"))
        if not tar.exists() or tar.stat().st_size != values["bytes"]:
            raise SesameError(
                f"{tar} does not have the {values['bytes']} bytes that its index states; remove "
                "its folder and run `sesame shard` again"
            )
        ends = [*values["cuts"][1:], values["bytes"] - 2 * BLOCK]
        pieces += [
            ShardPart(tar, start, end)
            for start, end in zip(values["cuts"], ends, strict=True)
            if start < end
        ]
    return pieces


def group_parts(of_split: Sequence[ShardPart], least_bytes: int) -> list[list[ShardPart]]:
    """Group successive parts into units of `least_bytes` bytes or more; the last may have less."""
    groups: list[list[ShardPart]] = []
    filled = least_bytes
    for part in of_split:
        if filled >= least_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(part)
        filled += part.end - part.start
    return groups


def named_sources(folder: Path) -> tuple[str, ...]:
    """Return the names of the corpus's sources (corpus.sources), if they have names."""
    return tuple(sorted(read_statistics(folder).get("sources", ())))


def read_statistics(folder: Path) -> dict[str, Any]:
    """Return the counts of a shard folder; empty if it has none."""
    path = folder / "statistics.json"
    counts: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return counts


def read_sections(tar: Path, start: int = 0, end: int | None = None) -> Iterator[Section]:
    """Yield the sections in bytes [start, end) of a tar; to its end by default.

    `start` must be the offset of a section. Raises SesameError where the tar is damaged.
    """
    members = _read_members(tar, start, end)
    for name, text in members:
        _, described = next(members, ("", b""))
        try:
            section = StoredSection.decode(text, described)
        except ValueError as error:
            raise _damaged(tar, name) from error
        yield section


def _read_members(tar: Path, start: int, end: int | None) -> Iterator[tuple[str, bytes]]:
    with open(tar, "rb", buffering=READ_BYTES) as stream:
        stream.seek(start)
        position = start
        while end is None or position < end:
            header = stream.read(BLOCK)
            if len(header) == BLOCK and header[0] == 0:
                return
            if len(header) < BLOCK or header[257:262] != b"ustar":
                raise _damaged(tar, f"byte {position}")
            size = int(header[124:135], 8)
            content = stream.read(member_bytes(size) - BLOCK)
            if len(content) < size:
                raise _damaged(tar, f"byte {position}")
            position += member_bytes(size)
            yield header[:100].rstrip(b"\0").decode(), content[:size]


def _damaged(tar: Path, place: str) -> SesameError:
    return SesameError(
        f"{tar} is damaged at {place}; remove its folder and run `sesame shard` again"
    )
