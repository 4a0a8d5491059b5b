"""Turn raw text into document shards, in three passes.

    clean   one work unit per part of the corpus: read, clean, filter, split into sentences and
            sections, compute hashes
    join    one work unit: drop repeated documents and paragraphs (the first copy survives), number
            documents, choose the held-out sections, assign sections to shard files
            (data_prep.corpus.select)
    write   one work unit per shard file

The work units depend on the inputs only, so the output does not depend on the number of workers.
Reads the user's files; writes `train-*.tar`, `heldout-*.tar`, their indexes and `statistics.json`.
Memory does not grow with the corpus: each worker holds one document; the join holds the tables of
one clean file (16 MB of clean text) and one bucket of signatures.
Try it: sesame shard 'corpus.paths=[my_texts/]'
"""

import functools
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.config import CorpusConfig
from data_prep.corpus.cache import TALLY_VERSION, PieceCache
from data_prep.corpus.clean_text import (
    BREAK,
    CleanFile,
    SegmentWriter,
    clean_files,
    group_hash,
    text_digest,
)
from data_prep.corpus.minhash import signature
from data_prep.corpus.select import Plan, load_plan, place_sections, select_documents
from data_prep.corpus.shard_format import metadata_tail, write_shard
from data_prep.files import write_atomically
from data_prep.progress import console
from data_prep.reading.documents import RawDocument, cut_whole, read_documents
from data_prep.reading.sources import (
    PIECE_BYTES,
    Part,
    SourceFile,
    Survey,
    describe_unread,
    plan_pieces,
    survey,
)
from data_prep.reading.tally import Tally
from data_prep.text.abbreviations import load_abbreviations
from data_prep.text.cleaning import clean_document
from data_prep.text.filters import reason_to_drop
from data_prep.text.sentences import Splitter
from data_prep.work_units import ArraySlice, WorkUnit, run_units, worker_count

log = logging.getLogger(__name__)


def make_shards(
    config: CorpusConfig,
    out: Path,
    piece_bytes: int = PIECE_BYTES,
    cache: PieceCache | None = None,
    share: ArraySlice | None = None,
    found: Survey | None = None,
) -> dict[str, Any]:
    """Make the shards below `out` and return the counts for the manifest.

    share: clean only the work units of this array slice and return {}; a later call without a
        share reuses them and finishes the stage.
    found: the corpus as it was fingerprinted; surveyed here if None. If a file has changed since
        then, a SesameError is raised before anything is written or cached.
    """
    workers = worker_count(config.workers)
    shutil.rmtree(out / ".removed", ignore_errors=True)
    root = out / ".pieces"
    found = found or survey(config.paths, config.sources)
    files = found.files
    for line in describe_unread(found.unread):
        console.print(f"shard: {line}", markup=False)
    whole = cut_whole(config)
    planned = plan_pieces(files, whole, piece_bytes)
    for file in files:
        if file.path.stat().st_size > 4 * piece_bytes and whole(file):
            log.warning("%s cannot be split, so one worker reads all of it", file.name)
    keys = [cache.key(parts, config) if cache else None for parts in planned]
    known = sum(key is not None and cache is not None and cache.has(key) for key in keys)
    if known:
        console.print(f"shard: {known} of {len(keys)} work units were cleaned before")
    pieces = [
        WorkUnit(f"clean-{TALLY_VERSION}-{number:05d}", task)
        for number, task in enumerate(zip(planned, keys, strict=True))
    ]
    clean = functools.partial(clean_or_take, config=config, cache=cache)
    if share is not None:
        run_units(share.of(pieces), clean, root, workers, "clean")
        return {}
    cleaned = run_units(pieces, clean, root, workers, "clean")

    for file in files:
        file.refuse_change()
    join = functools.partial(select_documents, config=config, pieces=cleaned)
    [joined] = run_units([WorkUnit("join", None)], join, root, 1, "join")
    plan = load_plan(joined, config.strict)
    for file_name, place, reason in plan.tally.notes:
        log.warning("%s, %s: %s", file_name, place, reason)
    if plan.counts["sections"]["heldout"] == 0:
        log.warning("nothing is held out: too little text, or copies or groups of over a tenth")

    shards = [WorkUnit(f"write-{shard.name}", shard.name) for shard in plan.shards]
    write = functools.partial(write_piece, joined=joined, pieces=cleaned)
    for folder in run_units(shards, write, root, workers, "write"):
        for path in sorted(folder.iterdir()):
            os.replace(path, out / path.name)
    write_atomically(out / "statistics.json", json.dumps(plan.statistics, indent=1) + "\n")
    if cache is not None:
        for folder, key in zip(cleaned, keys, strict=True):
            cache.keep(str(key), folder)
        cache.trim()
    # Rename before removing: if we are killed here, no half-removed unit looks complete.
    os.replace(root, out / ".removed")
    shutil.rmtree(out / ".removed")
    empty = sum(file.path.stat().st_size == 0 for file in files)
    counts = {"files": len(files), "empty_files": empty, **plan.counts}
    if found.unread:
        counts["unread_files"] = dict(sorted(Counter(found.unread.values()).items()))
    return counts


def clean_or_take(
    task: tuple[list[Part], str | None],
    folder: Path,
    config: CorpusConfig,
    cache: PieceCache | None,
) -> None:
    """Fill `folder` with one clean work unit: taken from the cache if it is there, else made."""
    parts, key = task
    if cache is None or key is None or not cache.take(key, folder):
        clean_piece(parts, folder, config)


def clean_piece(parts: list[Part], folder: Path, config: CorpusConfig) -> None:
    """Clean these parts of the corpus into `folder`: sections, their tables and `tally.json`."""
    tally = Tally(strict=config.strict)
    known = load_abbreviations(config.abbreviations, config.abbreviations_file)
    splitter = Splitter(config.sentences, known)
    with SegmentWriter(folder, config.duplicate_characters) as writer:
        for part in parts:
            for document in read_documents(part, config, tally):
                add_document(document, part.file, config, splitter, tally, writer)
            part.file.refuse_change()
    (folder / "tally.json").write_text(json.dumps(tally.as_json()))


def add_document(
    document: RawDocument,
    file: SourceFile,
    config: CorpusConfig,
    splitter: Splitter,
    tally: Tally,
    writer: SegmentWriter,
) -> None:
    """Clean, hash and write one document, or count in `tally` why it is dropped.

    `tally` and `writer` are changed in place.
    """
    text = clean_document(document.text, config, tally.repaired)
    reason = reason_to_drop(text, config)
    digest = text_digest(text.encode())
    if reason is None and not in_fraction(digest, config.fraction):
        reason = "fraction"
    if reason is not None:
        tally.dropped[reason] += 1
        return
    paragraphs = splitter.paragraphs(text)
    tail = metadata_tail(document.id, file.name, document.group)
    group = group_hash(document.group)
    signed = None if config.near_duplicates is None else signature(text)
    writer.add(paragraphs, tail, digest, signed, group, file.source)


def in_fraction(digest: bytes, fraction: float) -> bool:
    """Return True if the document is in this fraction of the corpus.

    The choice is by hash, so a smaller fraction is a subset of every larger one.
    """
    return int.from_bytes(digest[:8], "little") < fraction * 2**64


def write_piece(name: str, folder: Path, joined: Path, pieces: list[Path]) -> None:
    """Write the shard file `name` and its index into `folder`, from the sections of its spans."""
    plan = load_plan(joined)
    segments = clean_files(pieces)
    shard = next(shard for shard in plan.shards if shard.name == name)
    sections = (
        section
        for number, first, last in shard.spans
        for section in _read_span(segments[number], number, first, last, plan, shard.heldout)
    )
    write_shard(folder / f"{name}.tar", sections)


def _read_span(
    segment: CleanFile, number: int, first: int, last: int, plan: Plan, heldout: bool
) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of `ShardWriter.add` for one split's sections in rows [first, last).

    Dropped paragraphs are left out of the text.
    """
    placed = place_sections(plan.placement, number)
    table, left = segment.sections(), placed.table
    dropped = plan.placement.dropped_paragraphs[plan.placement.bounds.slices(number)[2]]
    sizes = table["text_bytes"].astype(np.int64) + table["tail_bytes"]
    starts, numbers = (np.cumsum(sizes) - sizes).tolist(), placed.numbers.tolist()
    paragraphs = (np.cumsum(table["paragraphs"]) - table["paragraphs"]).tolist()
    rows = first + np.flatnonzero((placed.kept & (placed.heldout == heldout))[first:last])
    with open(segment.text, "rb") as stream:
        for row in rows.tolist():
            stream.seek(starts[row])
            text = stream.read(int(table["text_bytes"][row]))
            tail = stream.read(int(table["tail_bytes"][row]))
            if left["paragraphs"][row] < table["paragraphs"][row]:
                text = _without(text, dropped[paragraphs[row] :])
            section, sentences, words = left[["section", "sentences", "words"]][row].item()
            weight = 1.0 if heldout else plan.weights[int(table["source"][row])]
            yield numbers[row], section, text, tail, sentences, words, weight


def _without(text: bytes, dropped: NDArray[np.bool_]) -> bytes:
    """Return a section's text without the dropped paragraphs."""
    paragraphs = zip(text.removesuffix(b"\n").split(BREAK), dropped, strict=False)
    return BREAK.join([paragraph for paragraph, gone in paragraphs if not gone]) + b"\n"
