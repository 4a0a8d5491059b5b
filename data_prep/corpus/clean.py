"""The clean pass of the `shard` stage: one work unit per part of the corpus.

A unit reads its documents, cleans and filters them, splits them into sentences and sections, and
computes their hashes. It writes clean files (data_prep.corpus.clean_files) and `tally.json`. A unit
that the cache holds is linked from there instead.
"""

import functools
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.config import CorpusConfig
from data_prep.corpus.cache import CLEAN_VERSION, PieceCache
from data_prep.corpus.clean_files import (
    SEGMENT_BYTES,
    CleanDocument,
    CleanFileWriter,
    group_hash,
)
from data_prep.corpus.cleaner import Cleaned, Cleaner
from data_prep.corpus.dropped import UNIT_FILE, source_names
from data_prep.corpus.expand import LARGE_UNITS
from data_prep.corpus.minhash import signature
from data_prep.corpus.shard_format import Origin
from data_prep.passes import Passes
from data_prep.progress import console
from data_prep.reading.documents import cut_whole, read_documents
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.sources import PIECE_BYTES, plan_pieces
from data_prep.reading.tally import Tally
from data_prep.text.abbreviations import load_abbreviations
from data_prep.text.languages import UNDETERMINED
from data_prep.text.more_abbreviations import MORE
from data_prep.text.sentences import Splitter
from data_prep.work_units import WorkUnit

MOST_UNITS = 1 << 14

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CleanTask:
    """Clean these parts of the corpus; `key` is the unit's key in the cache, if there is one."""

    parts: list[Part]
    key: str | None
    file_bytes: int = SEGMENT_BYTES  # clean text per clean file


def unit_bytes(files: Sequence[SourceFile]) -> int:
    """Return the raw text per work unit: 16 MB, and twice as much per doubling above 256 GB.

    So there are at most about MOST_UNITS units, each with one clean file of about this size.
    """
    size = PIECE_BYTES
    while sum(file.size for file in files) > MOST_UNITS * size:
        size *= 2
    return size


def plan_cleaning(
    files: Sequence[SourceFile], config: CorpusConfig, piece_bytes: int, cache: PieceCache | None
) -> list[CleanTask]:
    """Divide the files into units of about `piece_bytes`; warn of large files that stay whole."""
    whole = cut_whole(config)
    for file in files:
        if file.size > LARGE_UNITS * piece_bytes and whole(file):
            log.warning("%s cannot be split, so one worker reads all of it", file.name)
    return [
        CleanTask(
            parts,
            cache.key(parts, config) if cache else None,
            SEGMENT_BYTES * max(piece_bytes // PIECE_BYTES, 1),
        )
        for parts in plan_pieces(files, whole, piece_bytes)
    ]


def clean_corpus(
    tasks: Sequence[CleanTask],
    config: CorpusConfig,
    cache: PieceCache | None,
    passes: Passes,
) -> list[Path]:
    """Make all units and return their folders, in corpus order."""
    known = sum(
        task.key is not None and cache is not None and cache.has(task.key) for task in tasks
    )
    if known:
        console.print(f"shard: {known} of {len(tasks)} work units were cleaned before")
    units = [
        WorkUnit(f"clean-{CLEAN_VERSION}-{number:05d}", task) for number, task in enumerate(tasks)
    ]
    clean = functools.partial(take_or_clean, config=config, cache=cache)
    return passes.run("clean", units, clean)


def take_or_clean(
    task: CleanTask, folder: Path, config: CorpusConfig, cache: PieceCache | None
) -> None:
    """Fill `folder` with one unit: taken from the cache if it is there, else made."""
    if cache is None or task.key is None or not cache.take(task.key, folder):
        clean_unit(task.parts, folder, config, task.file_bytes)


def clean_unit(
    parts: Sequence[Part], folder: Path, config: CorpusConfig, file_bytes: int = SEGMENT_BYTES
) -> None:
    """Clean these parts of the corpus into `folder`."""
    tally = Tally(strict=config.strict)
    splitters, cleaner = Splitters(config), Cleaner(config, tally)
    names = source_names(config)
    with CleanFileWriter(folder, config.duplicate_characters, file_bytes) as writer:
        for part in parts:
            before = tally.read, tally.dropped.copy()
            for document in read_documents(part, config, tally):
                cleaned = cleaner.clean(document, part.file)
                if cleaned is not None:
                    paragraphs = splitters.of(cleaned.language).paragraphs(cleaned.text)
                    writer.add(describe(cleaned, paragraphs, part.file, config))
            part.file.refuse_change()
            dropped, source = tally.dropped - before[1], names[part.file.source]
            cleaner.dropped.count(source, dropped)
            tally.count_source(source, tally.read - before[0], dropped)
    (folder / "tally.json").write_text(json.dumps(tally.as_json()))
    (folder / UNIT_FILE).write_text(cleaner.dropped.as_json())


class Splitters:
    """One splitter per language, with the abbreviations of that language and the user's."""

    def __init__(self, config: CorpusConfig):
        self._config = config
        self._known: dict[str | None, Splitter] = {}

    def of(self, language: str | None) -> Splitter:
        """Return the splitter of a language; all lists together if it is not determined."""
        if language not in self._known:
            config = self._config
            own = [each for each in config.abbreviations if each == language]
            names = config.abbreviations if language in (None, UNDETERMINED) else own
            known = load_abbreviations(names, config.abbreviations_file)
            if config.abbreviations and language in MORE:
                known |= MORE[language]
            self._known[language] = Splitter(config.sentences, known, language)
        return self._known[language]


def describe(
    cleaned: Cleaned, paragraphs: list[list[str]], file: SourceFile, config: CorpusConfig
) -> CleanDocument:
    """Return a document's sentences with what the later passes need of it."""
    document, over = cleaned.document, config.near_duplicates_over
    return CleanDocument(
        paragraphs=paragraphs,
        origin=Origin(document.id, file.name, document.group, cleaned.language),
        digest=cleaned.digest,
        signature=None if config.near_duplicates is None else signature(cleaned.text, over),
        group=group_hash(document.group),
        source=file.source,
    )
