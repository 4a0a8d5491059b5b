"""Second pass: turn the tokens of one part of a shard into finished rows.

Beside its rows file (data_prep.examples.rows_files), a rows folder holds sections.npy: the section
of each example, for `retokenize`.
"""

# mypy: disallow-untyped-decorators=False

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from data_prep.arrays import save_array
from data_prep.examples.chunks import Chunk, token_dtype
from data_prep.examples.config import ExamplesConfig
from data_prep.examples.masking import (
    HELD_OUT_MASKS,
    MaskRule,
    Vocabulary,
    choose_masks,
    example_keys,
)
from data_prep.examples.packing import pack
from data_prep.examples.pairs import (
    full_sentences,
    join_partners,
    next_sentence,
    sentence_order,
)
from data_prep.examples.partners import PartnerSource, find_openings
from data_prep.examples.rows_files import write_counts, write_rows_file
from data_prep.examples.segments import Cuts, Keys, Spans, Text
from data_prep.examples.text import Unit
from data_prep.random import key, keys
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.word_marks import split_compact

Array = NDArray[Any]


def is_static(config: ExamplesConfig, split: str) -> bool:
    """Return True if the split's masks are stored.

    Held-out masks always are, so that all models are scored on the same predictions.
    """
    return config.masking == "static" or split == "heldout"


def mask_rule(config: ExamplesConfig, split: str) -> MaskRule:
    """Return the mask rule of a split: from the config for training, fixed for held-out rows."""
    if split == "heldout":
        return HELD_OUT_MASKS
    return MaskRule(
        config.mask_rate,
        config.max_masks,
        config.mask_unit,
        config.span_length,
        config.final_mask_rate,
    )


@dataclass(frozen=True)
class Rows:
    """Finished rows of one part of a split."""

    chunk: Chunk
    sections: NDArray[np.int64]  # [E] index of the example's section in the text
    counts: dict[str, Any]


def make_rows(
    text: Text,
    unit: Unit,
    tokenizer: Tokenizer,
    config: ExamplesConfig,
    partners: PartnerSource | None = None,
) -> Rows:
    """Make the rows of one unit from the used sections of its text.

    The unit's part and duplicate, with the seed, determine all random draws. `partners` gives the
    random segments of pairs=nsp.
    """
    spans, partner_ids, losses = make_spans(text, unit, config, partners)
    order, row_examples = pack(spans.lengths, config.max_seq_length, config.packing_window)
    counts = {"packed_rows": len(row_examples) - 1, **losses}
    if config.packing:
        spans = spans.take(order)
    else:
        row_examples = np.arange(len(spans.label) + 1)
    columns = assemble(spans, text, partner_ids, tokenizer)
    columns["row_examples"] = row_examples.astype(np.int32)
    rule = mask_rule(config, unit.split)
    if is_static(config, unit.split):
        if rule.unit == "token":
            columns.pop("word_flips", None)
        rows = len(row_examples) - 1
        names = example_keys(
            key(config.seed, unit.split),
            np.full(rows, unit.duplicate),
            (unit.part << 32) + np.arange(rows),
            row_examples,
        )
        masks = choose_masks(
            columns["tokens"],
            columns["example_tokens"],
            names,
            Vocabulary.of(tokenizer),
            rule,
            columns.get("word_flips"),
        )
        columns |= vars(masks)
    chunk = Chunk(**columns)
    first_ids = text.sentences[text.sections]
    sections = np.searchsorted(first_ids, spans.bounds[:, 0], "right") - 1
    return Rows(chunk, sections, counts | count(chunk, config.max_seq_length, tokenizer.mask))


def pair_limit(config: ExamplesConfig) -> int:
    """Return the most tokens of an example's segments, without special tokens."""
    return config.max_seq_length - (2 if config.pairs == "none" else 3)


def cut_pairs(text: Text, config: ExamplesConfig, duplicate: int) -> Cuts:
    """Cut a text into the examples of pairs=nsp."""
    return next_sentence(
        text, pair_keys(text, config, duplicate), pair_limit(config), config.short_seq_prob
    )


def pair_keys(text: Text, config: ExamplesConfig, duplicate: int) -> Keys:
    """Return the random key of each section [N] that determines its pairs."""
    return keys(key(config.seed, "pairs", duplicate), text.names)


def make_spans(
    text: Text, unit: Unit, config: ExamplesConfig, partners: PartnerSource | None
) -> tuple[Spans, Array, dict[str, int]]:
    """Choose the spans of a text's examples, as `config.pairs` says.

    Returns the spans, the ids of random segments, and the counts of what did not fit.
    """
    limit = pair_limit(config)
    if config.pairs == "none":
        spans, losses = full_sentences(text, limit)
        return spans, text.ids, asdict(losses)
    names = pair_keys(text, config, unit.duplicate)
    if config.pairs == "sop":
        spans, losses = sentence_order(text, names, limit, config.short_seq_prob)
        return spans, text.ids, asdict(losses)
    assert partners is not None, "next sentences need random partners"
    cuts = cut_pairs(text, config, unit.duplicate)
    found, reused = partners.draw(find_openings(text, cuts, unit.part))
    spans, losses = join_partners(text, cuts, found, names, limit)
    return spans, found.ids, asdict(losses) | {"reused": reused}


def assemble(
    spans: Spans, text: Text, partner_ids: Array, tokenizer: Tokenizer
) -> dict[str, Array]:
    """Copy the tokens of the spans, with [CLS] and [SEP], into the columns of a `Chunk`.

    The column `word_flips` is there if a token has one.
    """
    example_tokens = np.zeros(len(spans.label) + 1, np.int32)
    np.cumsum(spans.lengths, out=example_tokens[1:])
    marked = np.empty(int(example_tokens[-1]), text.ids.dtype)
    is_random = spans.documents[:, 0] != spans.documents[:, 1]
    others = partner_ids.astype(text.ids.dtype, copy=False)
    _copy(text.ids, others, spans.bounds, is_random, tokenizer.cls, tokenizer.sep, marked)
    tokens, flips = split_compact(marked, token_dtype(tokenizer.size))
    return {
        **({} if flips is None else {"word_flips": flips}),
        "tokens": tokens,
        "example_tokens": example_tokens,
        "second": (spans.bounds[:, 1] - spans.bounds[:, 0] + 2).astype(np.uint16),
        "label": spans.label,
        "coin": spans.coin,
        "documents": spans.documents.astype(np.uint32),
    }


def count(chunk: Chunk, longest: int, mask: int) -> dict[str, Any]:
    """Count rows, examples, tokens, labels, lengths and masks; the counts of chunks add up.

    `mask` is the id of [MASK], `longest` the largest possible length of an example.
    """
    lengths = np.diff(chunk.example_tokens)
    counts = {
        "rows": chunk.rows,
        "examples": chunk.examples,
        "tokens": len(chunk.tokens),
        "next": int((chunk.label == 0).sum()),
        "other": int(((chunk.label == 1) & (chunk.coin == 1)).sum()),
        "forced": int(((chunk.label == 1) & (chunk.coin == 0)).sum()),
        "lengths": np.bincount(lengths, minlength=longest + 1).tolist(),
    }
    if chunk.target is None or chunk.target_examples is None or chunk.input is None:
        return counts
    places = np.repeat(chunk.example_tokens[:-1], np.diff(chunk.target_examples)) + chunk.target
    is_mask = chunk.input == mask
    is_kept = chunk.input == chunk.tokens[places]
    return counts | {
        "predictions": len(chunk.target),
        "masked": int(is_mask.sum()),
        "kept": int(is_kept.sum()),
        "replaced": int((~is_mask & ~is_kept).sum()),
    }


def write_rows(rows: Rows, folder: Path) -> None:
    """Write finished rows to `folder`, until they are written to shard files."""
    write_rows_file(rows.chunk, folder)
    save_array(folder / "sections.npy", rows.sections)
    write_counts(folder, rows.counts, [rows.chunk.rows])


def read_sections_of_examples(folder: Path) -> NDArray[np.int64]:
    """Read the section index of each example [E], in its part, that `write_rows` wrote."""
    sections: NDArray[np.int64] = np.load(folder / "sections.npy")
    return sections


@njit(cache=True)
def _copy(ids: Any, pool: Any, bounds: Any, is_random: Any, cls: Any, sep: Any, tokens: Any) -> Any:
    place = 0
    for example in range(len(bounds)):
        first, first_end, second, second_end = bounds[example]
        tokens[place] = cls
        place += 1
        for index in range(first, first_end):
            tokens[place] = ids[index]
            place += 1
        tokens[place] = sep
        place += 1
        if second == second_end:
            continue
        source = pool if is_random[example] else ids
        for index in range(second, second_end):
            tokens[place] = source[index]
            place += 1
        tokens[place] = sep
        place += 1
