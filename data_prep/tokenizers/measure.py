"""Measure how well a vocabulary fits unseen text: fertility, unknown rate, character coverage.

Reads the held-out document shards in work units. Each unit writes `sums.json`, for all its text and
for each source and language; the sums of all units are added.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.corpus.shard_format import ShardPart
from data_prep.corpus.strata import Divided, strata_of, told_apart
from data_prep.passes import Passes
from data_prep.text.segmentation import count_words
from data_prep.tokenizers.counting import count_raw_words, grouped_parts, sections_of
from data_prep.tokenizers.tokenizer import Tokenizer, load_tokenizer
from data_prep.work_units import WorkUnit

WHOLE = ""  # the stratum of all text


@dataclass(frozen=True)
class _MeasureTask:
    parts: Sequence[ShardPart]
    folder: Path
    divided: Divided  # `told_apart` of the shards


def _measure_unit(task: _MeasureTask, folder: Path) -> None:
    texts: dict[tuple[str, str], list[str]] = {(WHOLE, WHOLE): []}
    for section in sections_of(task.parts):
        for stratum in ((WHOLE, WHOLE), *strata_of(section, task.divided)):
            texts.setdefault(stratum, []).extend(section.sentences)
    tokenizer = load_tokenizer(task.folder)
    sums = [
        [*stratum, sums_over(count_raw_words(own, punctuation_stands_alone=False), tokenizer)]
        for stratum, own in sorted(texts.items())
    ]
    (folder / "sums.json").write_text(json.dumps(sums, sort_keys=True))


def sums_over(words: Counter[str], tokenizer: Tokenizer) -> Counter[str]:
    """Return the sums for `figures`, from words (split at white space) and their counts.

    In scripts without spaces, the words are those of the segmenter.
    """
    encoded = tokenizer.encode_words(list(words))
    counts = np.array(list(words.values()), np.int64)
    unknown = np.concatenate([[0], np.cumsum(encoded.ids == tokenizer.unk)])
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    distinct = list(characters)
    alone = tokenizer.encode_words(distinct)

    @cache
    def changed(character: str) -> bool:
        normaliser = tokenizer.library.normalizer
        return normaliser is not None and normaliser.normalize_str(character).strip() != character

    return Counter(
        words=sum(count * count_words(word) for word, count in words.items()),
        pieces=int(np.diff(encoded.offsets) @ counts),
        unknown_pieces=int(np.diff(unknown[encoded.offsets]) @ counts),
        characters=characters.total(),
        unknown_characters=sum(
            characters[character]
            for number, character in enumerate(distinct)
            if tokenizer.unk in alone[number]
        ),
        changed_characters=sum(
            count for character, count in characters.items() if changed(character)
        ),
    )


def measure(shards: Path, tokenizer: Path, passes: Passes) -> dict[str, Any]:
    """Return the measures of a tokenizer folder on the held-out split (see `figures`).

    If the shards are divided by source or language, so are the measures: by_source, by_language.
    """
    divided = told_apart(shards)
    units = [
        WorkUnit(f"measures-{number:06d}", _MeasureTask(group, tokenizer, divided))
        for number, group in enumerate(grouped_parts(shards, "heldout"))
    ]
    sums: dict[str, dict[str, Counter[str]]] = {by: {} for by in (WHOLE, *divided)}
    for folder in passes.run("measure", units, _measure_unit):
        for by, name, found in json.loads((folder / "sums.json").read_text()):
            sums[by].setdefault(name, Counter()).update(found)
    whole = figures(sums[WHOLE].get(WHOLE, Counter()))
    return whole | {
        by: {name: figures(own) for name, own in sorted(sums[by].items())} for by in divided
    }


def figures(sums: Counter[str]) -> dict[str, Any]:
    """Compute rates from the sums; a rate with denominator 0 is None."""

    def rate(part: str, whole: str) -> float | None:
        return sums[part] / sums[whole] if sums[whole] else None

    known = rate("unknown_characters", "characters")
    return {
        "words": sums["words"],
        "pieces": sums["pieces"],
        "characters": sums["characters"],
        "fertility": rate("pieces", "words"),
        "unknown_rate": rate("unknown_pieces", "pieces"),
        "coverage": None if known is None else 1 - known,
        "changed_characters": rate("changed_characters", "characters"),
    }
