"""ELMo's examples: one row per sentence, `<S> words </S>`, documents in a seeded order.

The rows have the columns and chunks of BERT's rows without pairs, so that index, checksums and
checks are the same. The loader concatenates the rows to one text and reads streams that may start
at any word. Words outside the predicted vocabulary keep their own ids, because the model reads
words by their characters.

Reads a folder of document shards and a words tokenizer; writes `train-*.tar`, `heldout-*.tar` with
their indexes and `statistics.json`, the same bytes on any number of workers.
Try it: sesame examples tokenizer=words examples=streams
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.config import ExamplesConfig
from data_prep.corpus.shard_format import ShardPart, parts, read_sections
from data_prep.errors import SesameError
from data_prep.examples.build import SPLITS, clear_leftovers, make_texts
from data_prep.examples.chunks import Chunk, ChunkStore, ChunkWriter, concatenate, token_dtype
from data_prep.examples.masking import HELD_OUT_MASKS
from data_prep.examples.rows import read_counts
from data_prep.examples.segments import NO_PAIR, Text
from data_prep.examples.statistics import statistics, summary
from data_prep.examples.text import copies, read_text
from data_prep.examples.validate import Rules, validate, violation
from data_prep.fields import result_keys
from data_prep.files import write_atomically
from data_prep.random import key, keys
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.vocabulary import VOCABULARY, read_vocabulary
from data_prep.work_units import ArraySlice, worker_count

Ints = NDArray[np.int64]

TEXTS_OPEN = 64  # tokenized parts cached while sections are written in random order, 4 MB each
WORDS_COMPARED = 200_000  # compared with the library's ids, in at least ten sections


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

    def rows(self, ids: NDArray[Any], sentences: Ints, document: int) -> Chunk:
        """Return the rows of one document's sentences; a long sentence takes several rows.

        `sentences` [S+1] are offsets into `ids`.
        """
        room = self.longest - 2
        lengths = np.diff(sentences)
        parts_of = -(-lengths // room)
        part = np.arange(parts_of.sum()) - np.repeat(np.cumsum(parts_of) - parts_of, parts_of)
        sizes = np.minimum(np.repeat(lengths, parts_of) - part * room, room) + 2
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        tokens = np.empty(offsets[-1], self.dtype)
        is_word = np.ones(offsets[-1], np.bool_)
        for places, frame in ((offsets[:-1], self.begin), (offsets[1:] - 1, self.end)):
            tokens[places] = frame
            is_word[places] = False
        tokens[is_word] = ids[sentences[0] : sentences[-1]]
        count = len(sizes)
        return Chunk(
            tokens=tokens,
            row_examples=np.arange(count + 1, dtype=np.int32),
            example_tokens=offsets.astype(np.int32),
            second=sizes.astype(np.uint16),
            label=np.full(count, NO_PAIR, np.int8),
            coin=np.zeros(count, np.int8),
            documents=np.full((count, 2), document, np.uint32),
        )


@dataclass(frozen=True)
class Order:
    """The order in which the sections of a split are written: N of them, copies included."""

    part: Ints  # [N] index of the part
    section: Ints  # [N] index of the section in its part

    @classmethod
    def of(cls, texts: Sequence[Path], seed: int, duplicates: int = 1) -> "Order":
        """Order documents by a seeded hash of their number; keep the order of their sections.

        A document is there `duplicates` × weight times, each copy at a place of its own.
        """
        nothing = np.zeros(0, np.int64)
        documents = [read_text(folder).documents for folder in texts]
        used = np.concatenate([nothing, *(copies(each, seed, duplicates) for each in texts)])
        counts = [len(each) for each in documents]
        part = np.repeat(np.arange(len(counts)), counts)
        section = np.concatenate([nothing, *(np.arange(count) for count in counts)])
        every = np.concatenate([nothing, *documents])
        part, section, every = (np.repeat(each, used) for each in (part, section, every))
        copy = np.arange(len(every)) - np.repeat(np.cumsum(used) - used, used)
        hashes = np.empty(len(every), np.uint64)
        for number in range(int(used.max(initial=0))):
            chosen = copy == number
            own = key(seed, "documents", *([number] if number else []))
            hashes[chosen] = keys(own, every[chosen])
        order = np.argsort(hashes, kind="stable")
        return cls(part[order], section[order])


def build_streams(
    shards: Path,
    tokenizer_folder: Path,
    out: Path,
    config: ExamplesConfig,
    share: ArraySlice | None = None,
) -> dict[str, Any]:
    """Make and check the rows of both splits; return the counts for the manifest.

    share: only tokenize the work units of this array slice and return {}; a later call without a
        share reuses them and finishes the stage.
    """
    pieces, old = clear_leftovers(out)
    workers = worker_count(config.workers)
    tokenizer = Tokenizer.load(tokenizer_folder)
    predicted = len(read_vocabulary(tokenizer_folder / VOCABULARY))
    framing = Framing.of(tokenizer, config)
    rules = Rules(config, tokenizer, HELD_OUT_MASKS)  # unused rule: these rows have no masks
    every: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        found = parts(shards, split)
        texts = make_texts(found, split, tokenizer_folder, pieces, workers, share)
        if share is not None:
            continue
        order = Order.of(texts, config.seed, config.duplicates if split == "train" else 1)
        counts, first_rows = _write(texts, order, framing, tokenizer, predicted, split, config, out)
        draws = validate(out, split, rules)
        compared = _check_sources(out, split, found, order, first_rows, tokenizer, framing)
        words = {key: counts.pop(key) for key in ("words", "unknown")}
        every[split] = (
            statistics([*map(read_counts, texts), counts], config)
            | words
            | {"checked": {"rows": draws.rows, "sections": compared}}
        )
    if share is not None:
        return {}
    if every["train"]["rows"] == 0:
        raise SesameError(f"{shards}: there is no training text; add documents to the corpus")
    content = {"examples": result_keys(config), **every}
    write_atomically(out / "statistics.json", json.dumps(content, indent=1) + "\n")
    # Rename before removing: if we are killed here, no half-removed unit looks complete.
    os.replace(pieces, old)
    shutil.rmtree(old)
    return {split: summary(every[split]) for split in SPLITS}


def _write(
    texts: Sequence[Path],
    order: Order,
    framing: Framing,
    tokenizer: Tokenizer,
    predicted: int,
    split: str,
    config: ExamplesConfig,
    out: Path,
) -> tuple[dict[str, Any], Ints]:
    """Write the rows of a split; return the counts, and the first row of each section [N]."""
    lengths = np.zeros(config.max_seq_length + 1, np.int64)
    unknown = sentences = 0
    first_rows = [0]

    @lru_cache(maxsize=TEXTS_OPEN)
    def opened(part: int) -> Text:
        return read_text(texts[part])

    with ChunkWriter(
        out,
        split,
        shard_size=config.shard_size,
        chunk_rows=config.chunk_rows,
        vocab_size=tokenizer.size,
        static=False,
    ) as writer:
        for part, section in zip(order.part.tolist(), order.section.tolist(), strict=True):
            text = opened(part)
            first, last = text.sections[section : section + 2]
            bounds = text.sentences[first : last + 1]
            rows = framing.rows(text.ids, bounds, int(text.documents[section]))
            writer.add(rows)
            first_rows.append(first_rows[-1] + rows.rows)
            lengths += np.bincount(rows.second, minlength=len(lengths))
            words = text.ids[bounds[0] : bounds[-1]]
            unknown += int(((words >= predicted) | (words == tokenizer.unk)).sum())
            sentences += int(last - first)
    rows_made = first_rows[-1]
    tokens = int(lengths @ np.arange(len(lengths)))
    counts = {
        "examples": rows_made,
        "rows": rows_made,
        "packed_rows": rows_made,
        "tokens": tokens,
        "cut": rows_made - sentences,
        "lengths": lengths.tolist(),
        "words": tokens - 2 * rows_made,
        "unknown": unknown,
    }
    return counts, np.array(first_rows[:-1], np.int64)


def _check_sources(
    folder: Path,
    split: str,
    found: Sequence[ShardPart],
    order: Order,
    first_rows: Ints,
    tokenizer: Tokenizer,
    framing: Framing,
) -> int:
    """Compare evenly spaced sections with the ids that the library gives for their sentences.

    Returns the number of sections compared; raises SesameError at the first difference.
    """
    store = ChunkStore(folder, split)
    sections = len(order.part)
    count = min(sections, 10 + sections * WORDS_COMPARED // max(store.tokens, 1))
    sample = np.unique(np.linspace(0, max(sections - 1, 0), count).astype(int))
    for index in sorted(sample.tolist(), key=lambda index: int(order.part[index])):
        section = _sections(found[order.part[index]])[order.section[index]]
        sentences = list(map(tokenizer.separate, section.sentences))
        encodings = tokenizer.library.encode_batch(sentences, add_special_tokens=False)
        ids = [each.ids for each in encodings if each.ids]
        bounds = np.cumsum([0, *map(len, ids)])
        expected = framing.rows(np.array([i for each in ids for i in each]), bounds, 0)
        start = int(first_rows[index])
        if not np.array_equal(_rows(store, start, start + expected.rows), expected.tokens):
            number = int(np.searchsorted(store.first_row, start, "right")) - 1
            raise violation(
                store, number, start - int(store.first_row[number]),
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
