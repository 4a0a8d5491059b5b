"""ELMo's examples: one row per sentence, `<S> words </S>`, documents in a seeded order.

The rows have the columns and chunks of BERT's rows without pairs, so that index, checksums and
checks are the same. The loader concatenates the rows to one text and reads streams that may start
at any word. Words outside the predicted vocabulary keep their own ids, because the model reads
words by their characters.

    tokenize  each part of a shard
    scatter   sort the sections of some parts (data_prep.examples.sorting)
    gather    put the sections of all parts into their order, and frame their sentences
    write     write all rows to shard files and check them

Reads a folder of document shards and a words tokenizer; writes `train-*.tar`, `heldout-*.tar` with
their indexes and `statistics.json`, the same bytes on any number of workers.
Try it: sesame examples tokenizer=words examples=streams
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.arrays import save_array
from data_prep.corpus.shard_format import ShardPart, group_parts, parts, read_sections
from data_prep.errors import SesameError
from data_prep.examples.chunks import Chunk, ChunkStore, concatenate, token_dtype
from data_prep.examples.common_passes import SPLITS, finish, tokenize, write_splits
from data_prep.examples.config import ExamplesConfig
from data_prep.examples.rows_files import read_counts, write_counts, write_rows_file
from data_prep.examples.segments import NO_PAIR, Ints
from data_prep.examples.sorting import (
    GatherTask,
    ScatterTask,
    Sections,
    gather,
    range_count,
    scatter,
)
from data_prep.examples.statistics import statistics, summary
from data_prep.examples.validate import violation
from data_prep.passes import Passes
from data_prep.tokenizers import Tokenizer, load_tokenizer
from data_prep.tokenizers.vocabulary import VOCABULARY, read_vocabulary
from data_prep.work_units import LocalPool, WorkUnit

SCATTER_BYTES = 64 << 20  # of shards, per work unit of the scatter pass
WORDS_COMPARED = 200_000  # compared with the library's ids, in at least ten sections

PLACE = np.dtype([("part", "<i8"), ("section", "<i8"), ("row", "<i8")])  # of a section, see `Order`


@dataclass(frozen=True)
class Framing:
    """Turns sentences into rows with begin and end tokens."""

    begin: int  # id of <S>
    end: int  # id of </S>
    longest: int  # tokens per row, including <S> and </S>; longer sentences are split
    dtype: str

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: ExamplesConfig) -> "Framing":
        """Take the ids from the tokenizer and the length from the config."""
        return cls(tokenizer.cls, tokenizer.sep, config.max_seq_length, token_dtype(tokenizer.size))

    def rows(self, ids: NDArray[Any], lengths: NDArray[Any], documents: Ints) -> Chunk:
        """Return the rows of sentences; a long sentence takes several rows.

        lengths, documents: the tokens and the document of each sentence [S].
        """
        room = self.longest - 2
        parts_of = -(-lengths // room)
        part = np.arange(parts_of.sum()) - np.repeat(np.cumsum(parts_of) - parts_of, parts_of)
        sizes = np.minimum(np.repeat(lengths, parts_of) - part * room, room) + 2
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        tokens = np.empty(offsets[-1], self.dtype)
        is_word = np.ones(offsets[-1], np.bool_)
        for places, frame in ((offsets[:-1], self.begin), (offsets[1:] - 1, self.end)):
            tokens[places] = frame
            is_word[places] = False
        tokens[is_word] = ids
        count = len(sizes)
        return Chunk(
            tokens=tokens,
            row_examples=np.arange(count + 1, dtype=np.int32),
            example_tokens=offsets.astype(np.int32),
            second=sizes.astype(np.uint16),
            label=np.full(count, NO_PAIR, np.int8),
            coin=np.zeros(count, np.int8),
            documents=np.repeat(documents, parts_of).astype(np.uint32)[:, None].repeat(2, 1),
        )


def build_streams(
    shards: Path,
    tokenizer_folder: Path,
    out: Path,
    config: ExamplesConfig,
    passes: Passes | None = None,
) -> dict[str, Any]:
    """Make and check the rows of both splits; return the counts for the manifest.

    passes: who makes the work units; by default `config.workers` processes.
    """
    passes = passes or Passes.below(out, LocalPool.of(config.workers))
    found = {split: parts(shards, split) for split in SPLITS}
    texts = tokenize(found, tokenizer_folder, config, passes)
    counted = {split: [read_counts(text) for text in texts[split]] for split in SPLITS}
    rows = _sort(found, texts, counted, tokenizer_folder, config, passes)
    nothing = dict.fromkeys(SPLITS)  # reuse is a question of pairs
    written = write_splits(rows, nothing, tokenizer_folder, config, passes, out, has_masks=False)
    every: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        made = [read_counts(folder) for folder in rows[split]]
        order = Order.of(rows[split], made)
        compared = _check_sources(out, split, found[split], order, tokenizer_folder, config)
        every[split] = (
            statistics([*counted[split], *made], config)
            | {name: sum(counts[name] for counts in made) for name in ("words", "unknown")}
            | {"checked": {"rows": written[split].draws.rows, "sections": compared}}
        )
    if every["train"]["rows"] == 0:
        raise SesameError(f"{shards}: there is no training text; add documents to the corpus")
    finish(every, config, passes, out)
    return {split: summary(every[split]) for split in SPLITS}


def _sort(
    found: Mapping[str, Sequence[ShardPart]],
    texts: Mapping[str, Sequence[Path]],
    counted: Mapping[str, Sequence[Mapping[str, Any]]],
    tokenizer: Path,
    config: ExamplesConfig,
    passes: Passes,
) -> dict[str, list[Path]]:
    """Make the rows of all splits in their order; return the rows folders by split."""
    scattered: dict[str, list[WorkUnit]] = {}
    for split in SPLITS:
        duplicates = config.duplicates if split == "train" else 1
        tokens = sum(int(each["pieces"] * each["most_copies"]) for each in counted[split])
        usual = ScatterTask(
            texts=[],
            first=0,
            ranges=range_count(tokens),
            seed=config.seed,
            duplicates=duplicates,
            dtype=token_dtype(load_tokenizer(tokenizer).size),
        )
        first = 0
        units: list[WorkUnit] = []
        for group in group_parts(found[split], SCATTER_BYTES):
            own = list(texts[split][first : first + len(group)])
            task = replace(usual, texts=own, first=first)
            units.append(WorkUnit(f"scatter-{split}-{len(units):06d}", task))
            first += len(group)
        scattered[split] = units
    passes.run("scatter", [unit for split in SPLITS for unit in scattered[split]], scatter)
    planned = passes.merge("ranges", partial(_write_ranges, scattered=scattered, root=passes.root))
    gathered = {
        split: [
            WorkUnit(f"gather-{split}-{task.number:05d}", task)
            for task in _read_ranges(planned / f"{split}.npy", scattered[split], passes.root)
        ]
        for split in SPLITS
    }
    frame = partial(frame_rows, tokenizer_folder=tokenizer, config=config)
    passes.run("gather", [unit for split in SPLITS for unit in gathered[split]], frame)
    return {split: [passes.root / unit.name for unit in gathered[split]] for split in SPLITS}


def _write_ranges(
    _: None, folder: Path, scattered: Mapping[str, Sequence[WorkUnit]], root: Path
) -> None:
    """Write where the ranges of each split start [U, ranges, 2]: byte offset, tokens."""
    for split, units in scattered.items():
        ranges = [np.load(root / unit.name / "ranges.npy") for unit in units]
        save_array(folder / f"{split}.npy", np.stack(ranges) if ranges else np.zeros((0, 0, 2)))


def _read_ranges(path: Path, scattered: Sequence[WorkUnit], root: Path) -> list[GatherTask]:
    ranges = np.load(path)
    return [
        GatherTask(
            number=number,
            ranges=ranges.shape[1],
            files=[root / unit.name / "sections" for unit in scattered],
            starts=ranges[:, number, 0].tolist(),
            tokens=int(ranges[:, number, 1].sum()),
            dtype=scattered[0].what.dtype,
        )
        for number in range(ranges.shape[1])
    ]


def frame_rows(
    task: GatherTask, folder: Path, tokenizer_folder: Path, config: ExamplesConfig
) -> None:
    """Run a `GatherTask`: write the rows of its sections to a rows folder.

    `places` has one PLACE per section: where it comes from, and its first row in this folder.
    """
    tokenizer = load_tokenizer(tokenizer_folder)
    framing = Framing.of(tokenizer, config)
    predicted = _predicted(tokenizer_folder)
    lengths = np.zeros(config.max_seq_length + 1, np.int64)
    unknown = sentences = 0
    rows: list[int] = []
    with open(folder / "places", "wb") as places:
        for number, run in enumerate(gather(task, folder / "run")):
            documents = np.repeat(run.table["document"], run.table["sentences"])
            made = framing.rows(run.ids, run.lengths, documents)
            places.write(_places(run, framing, sum(rows)).tobytes())
            write_rows_file(made, folder, number)
            rows.append(made.rows)
            lengths += np.bincount(made.second, minlength=len(lengths))
            unknown += int(((run.ids >= predicted) | (run.ids == tokenizer.unk)).sum())
            sentences += len(run.lengths)
    tokens = int(lengths @ np.arange(len(lengths)))
    counts = {
        "examples": sum(rows),
        "rows": sum(rows),
        "packed_rows": sum(rows),
        "tokens": tokens,
        "cut": sum(rows) - sentences,
        "lengths": lengths.tolist(),
        "words": tokens - 2 * sum(rows),
        "unknown": unknown,
    }
    write_counts(folder, counts, rows)


@lru_cache(maxsize=1)
def _predicted(tokenizer_folder: Path) -> int:
    return len(read_vocabulary(tokenizer_folder / VOCABULARY))


def _places(run: Sections, framing: Framing, first_row: int) -> NDArray[np.void]:
    """Return the PLACE of each section of a run, whose first row is `first_row`."""
    rows = np.concatenate([[0], np.cumsum(-(-run.lengths // (framing.longest - 2)))])
    before = np.cumsum(run.table["sentences"]) - run.table["sentences"]
    places = np.empty(len(run.table), PLACE)
    places["part"], places["section"] = run.table["part"], run.table["section"]
    places["row"] = first_row + rows[before]
    return places


@dataclass(frozen=True)
class Order:
    """The places of all sections of a split, in the order in which they are written."""

    folders: Sequence[Path]  # of the gather pass
    sections: Ints  # number of sections before each folder, then of all
    rows: Ints  # number of rows before each folder

    @classmethod
    def of(cls, folders: Sequence[Path], counted: Sequence[Mapping[str, Any]]) -> "Order":
        """Count the sections of these folders; `counted` are their counts."""
        sections = [(folder / "places").stat().st_size // PLACE.itemsize for folder in folders]
        rows = np.cumsum([0, *(counts["rows"] for counts in counted)])
        return cls(folders, np.cumsum([0, *sections]), rows)

    def place(self, section: int) -> tuple[int, int, int]:
        """Return the part of section number `section`, its number there, and its first row."""
        home = int(np.searchsorted(self.sections, section, "right")) - 1
        offset = (section - int(self.sections[home])) * PLACE.itemsize
        [found] = np.fromfile(self.folders[home] / "places", PLACE, 1, offset=offset).tolist()
        return found[0], found[1], int(self.rows[home]) + found[2]


def _check_sources(
    folder: Path,
    split: str,
    found: Sequence[ShardPart],
    order: Order,
    tokenizer_folder: Path,
    config: ExamplesConfig,
) -> int:
    """Compare evenly spaced sections with the ids that the library gives for their sentences.

    Returns the number of sections compared; raises SesameError at the first difference.
    """
    tokenizer = load_tokenizer(tokenizer_folder)
    framing = Framing.of(tokenizer, config)
    store = ChunkStore(folder, split)
    sections = int(order.sections[-1])
    count = min(sections, 10 + sections * WORDS_COMPARED // max(store.tokens, 1))
    sample = np.unique(np.linspace(0, max(sections - 1, 0), count).astype(int))
    for part, number, start in sorted(order.place(index) for index in sample.tolist()):
        section = _sections(found[part])[number]
        sentences = list(map(tokenizer.separate, section.sentences))
        encodings = tokenizer.library.encode_batch(sentences, add_special_tokens=False)
        ids = [each.ids for each in encodings if each.ids]
        lengths = np.array([len(each) for each in ids], np.int64)
        words = np.array([i for each in ids for i in each], np.int64)
        expected = framing.rows(words, lengths, np.zeros(len(ids), np.int64))
        if not np.array_equal(_rows(store, start, start + expected.rows), expected.tokens):
            chunk = int(np.searchsorted(store.first_row, start, "right")) - 1
            raise violation(
                store, chunk, start - int(store.first_row[chunk]),
                f"a section of document {section.document} differs from the ids that the tokenizer "
                "library gives for its sentences",
            )  # fmt: skip
    return count


@lru_cache(maxsize=1)
def _sections(part: ShardPart) -> list[Any]:
    return list(read_sections(part.path, part.start, part.end))


def _rows(store: ChunkStore, start: int, stop: int) -> NDArray[Any]:
    """Return the tokens of rows [start, stop) of a split."""
    if start == stop:
        return np.zeros(0, np.int64)
    first, last = np.searchsorted(store.first_row, [start, stop - 1], "right") - 1
    joined = concatenate([store.read(number) for number in range(first, last + 1)])
    base = int(store.first_row[first])
    return joined.between(start - base, stop - base).tokens
