"""Raw text to document shards, in passes whose pieces follow from the inputs alone.

    clean   each piece of the corpus: read, clean, filter, cut into sentences and sections, sign
    join    all pieces: of equal documents the first survives; number documents, choose what is
            held out, deal sections to shard files (data_prep.join)
    write   each shard file

Reads the user's files; writes `train-*.tar`, `heldout-*.tar`, their indexes and `statistics.json`.
Memory holds one segment (16 MB of clean text) a worker, whatever the corpus.
"""

import functools
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from data_prep.cleaning import clean_text, reason_to_drop
from data_prep.config import CorpusConfig
from data_prep.documents import cut_whole, read_documents
from data_prep.files import write_atomically
from data_prep.join import (
    SECTION,
    Plan,
    Segment,
    join_pieces,
    load_plan,
    place_sections,
    segments_of,
)
from data_prep.pieces import Piece, Share, make_pieces, worker_count
from data_prep.sentences import split_text
from data_prep.shards import metadata_tail, write_shard
from data_prep.sources import PIECE_BYTES, Part, discover, plan_pieces
from data_prep.tally import Tally

SECTION_SENTENCES = 2000
SEGMENT_BYTES = 16 << 20

log = logging.getLogger(__name__)


def make_shards(
    config: CorpusConfig, out: Path, piece_bytes: int = PIECE_BYTES, share: Share | None = None
) -> dict[str, Any]:
    """Make the shards below `out`; returns what was counted, for the manifest.

    With a `share` only its pieces are cleaned; a launch without one goes on from there.
    """
    workers = worker_count(config.workers)
    shutil.rmtree(out / ".removed", ignore_errors=True)
    root = out / ".pieces"
    files = discover(config.paths)
    whole = cut_whole(config)
    pieces = [
        Piece(f"clean-{number:05d}", parts)
        for number, parts in enumerate(plan_pieces(files, whole, piece_bytes))
    ]
    for file in files:
        if whole(file) and file.path.stat().st_size > 4 * piece_bytes:
            log.warning("%s cannot be cut, so one worker reads it all", file.name)
    clean = functools.partial(clean_piece, config=config)
    if share is not None:
        make_pieces(share.of(pieces), clean, root, workers, "clean")
        return {}
    cleaned = make_pieces(pieces, clean, root, workers, "clean")

    join = functools.partial(join_pieces, config=config, pieces=cleaned)
    [joined] = make_pieces([Piece("join", None)], join, root, 1, "join")
    plan = load_plan(joined, config.strict)
    for file_name, offset, reason in plan.tally.notes:
        log.warning("%s, byte %d: %s", file_name, offset, reason)

    shards = [Piece(f"write-{shard.name}", shard.name) for shard in plan.shards]
    write = functools.partial(write_piece, joined=joined, pieces=cleaned)
    for folder in make_pieces(shards, write, root, workers, "write"):
        for path in sorted(folder.iterdir()):
            os.replace(path, out / path.name)
    write_atomically(out / "statistics.json", json.dumps(plan.statistics, indent=1) + "\n")
    os.replace(root, out / ".removed")  # in one step, so that no half-removed piece looks complete
    shutil.rmtree(out / ".removed")
    return {"files": len(files), **plan.counts}


def clean_piece(parts: list[Part], folder: Path, config: CorpusConfig) -> None:
    """Write one piece of the corpus as clean, signed sections, with its tally."""
    tally = Tally(strict=config.strict)
    with SegmentWriter(folder) as writer:
        for part in parts:
            for document in read_documents(part, config, tally):
                text = clean_text(document.text, tally.repaired)
                reason = reason_to_drop(text, config)
                digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
                if reason is None and not in_fraction(digest, config.fraction):
                    reason = "fraction"
                if reason is not None:
                    tally.dropped[reason] += 1
                    continue
                paragraphs = split_text(text, config.sentences)
                tail = metadata_tail(document.id, part.file.name)
                writer.add(paragraphs, tail, digest)
    (folder / "tally.json").write_text(json.dumps(tally.as_json()))


def in_fraction(digest: bytes, fraction: float) -> bool:
    """Whether a document belongs to a share of the corpus; smaller shares lie inside larger."""
    return int.from_bytes(digest[:8], "little") < fraction * 2**64


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
    """Writes sections and a table of them, rolling to a new pair of files every 16 MB."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._rows: list[tuple[Any, ...]] = []
        self._number = 0
        self._text: IO[bytes] | None = None

    def __enter__(self) -> "SegmentWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self._roll()

    def add(self, paragraphs: list[list[str]], tail: bytes, digest: bytes) -> None:
        """Append one document."""
        if self._text is None:
            self._text = (self._folder / f"{self._number:06d}.text").open("wb")
        signature = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
        for number, section in enumerate(cut_sections(paragraphs, SECTION_SENTENCES)):
            text = "\n\n".join(["\n".join(paragraph) for paragraph in section]) + "\n"
            sentences = sum(map(len, section))
            data = text.encode()
            words = text.count(" ") + sentences
            self._text.write(data)
            self._text.write(tail)
            self._rows.append((*signature, number, len(data), len(tail), sentences, words))
        if self._text.tell() >= SEGMENT_BYTES:
            self._roll()

    def _roll(self) -> None:
        if self._text is None:
            return
        self._text.close()
        np.array(self._rows, SECTION).tofile(self._folder / f"{self._number:06d}.table")
        self._rows, self._text = [], None
        self._number += 1


def write_piece(name: str, folder: Path, joined: Path, pieces: list[Path]) -> None:
    """Write one shard file from the segments that the join dealt to it."""
    plan = load_plan(joined)
    segments = segments_of(pieces)
    shard = next(shard for shard in plan.shards if shard.name == name)
    sections = (
        section
        for number, first, last in shard.spans
        for section in _read_span(segments[number], number, first, last, plan, shard.heldout)
    )
    write_shard(folder / f"{name}.tar", sections)


def _read_span(
    segment: Segment, number: int, first: int, last: int, plan: Plan, heldout: bool
) -> Iterator[tuple[int, int, bytes, bytes, int, int]]:
    table = segment.table()
    placed = place_sections(table, plan.placement, number)
    sizes = table["text_bytes"].astype(np.int64) + table["tail_bytes"]
    starts, numbers = (np.cumsum(sizes) - sizes).tolist(), placed.numbers.tolist()
    rows = first + np.flatnonzero((placed.kept & (placed.heldout == heldout))[first:last])
    with open(segment.text, "rb") as stream:
        for row in rows.tolist():
            _, _, section, text_bytes, tail_bytes, sentences, words = table[row].item()
            stream.seek(starts[row])
            text, tail = stream.read(text_bytes), stream.read(tail_bytes)
            yield numbers[row], section, text, tail, sentences, words
