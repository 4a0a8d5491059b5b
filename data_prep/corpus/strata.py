"""Count documents by named source and by language: read = kept + dropped, for each.

A document counts for its language once its text is clean, so damaged records and those that
`corpus.where` or `corpus.exclude` drop count for their source only. The counts are there if the
corpus names sources, or has documents of two languages or more.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.clean_files import LANGUAGES
from data_prep.corpus.placement import Placement
from data_prep.corpus.shard_format import Section, read_statistics
from data_prep.reading.tally import READ, Tally
from data_prep.text.languages import UNDETERMINED

REPEATED = "repeated"  # the reason of all drops after cleaning: duplicates of other documents
BY_SOURCE, BY_LANGUAGE = "by_source", "by_language"


def count_strata(tally: Tally, placement: Placement, sources: Sequence[str]) -> dict[str, Any]:
    """Return the counts by source and by language; empty if there is nothing to tell apart.

    sources: the names of the sources, in the order of their numbers.
    """
    kept = {
        BY_SOURCE: np.zeros(max(len(sources), 1), np.int64),
        BY_LANGUAGE: np.zeros(len(LANGUAGES), np.int64),
    }
    for home in placement.homes:
        documents = home.surviving_documents()
        for column, counts in (("source", kept[BY_SOURCE]), ("language", kept[BY_LANGUAGE])):
            counts += np.bincount(documents[column], minlength=len(counts))
    found = {}
    if sources:
        found[BY_SOURCE] = _balance(tally.by_source, sources, kept[BY_SOURCE])
    if tells_languages(tally.by_language):
        found[BY_LANGUAGE] = _balance(tally.by_language, LANGUAGES, kept[BY_LANGUAGE])
    return found


def tells_languages(languages: Iterable[str]) -> bool:
    """Return True if at least two languages were identified."""
    return len(set(languages) - {UNDETERMINED}) > 1


def _balance(
    cleaned: Mapping[str, Counter[str]], names: Sequence[str], kept: NDArray[np.int64]
) -> dict[str, Any]:
    balanced = {}
    for name, count in zip(names, kept.tolist(), strict=True):
        counts = cleaned.get(name, Counter())
        dropped = {reason: number for reason, number in counts.items() if reason != READ}
        dropped[REPEATED] = counts[READ] - sum(dropped.values()) - count
        if counts[READ]:
            reasons = {reason: number for reason, number in sorted(dropped.items()) if number}
            balanced[name] = {"read": counts[READ], "kept": count, "dropped": reasons}
    return balanced


def told_apart(shards: Path) -> dict[str, Collection[str]]:
    """Return what a shard folder's counts are divided by: names of sources, codes of languages."""
    counted = read_statistics(shards)
    return {by: counted[by] for by in (BY_SOURCE, BY_LANGUAGE) if by in counted}


def strata_of(section: Section, divided: Mapping[str, Collection[str]]) -> list[tuple[str, str]]:
    """Return the strata of a section as (by_source or by_language, name)."""
    names = {BY_SOURCE: section.source.split("/", 1)[0], BY_LANGUAGE: section.language}
    return [(by, name) for by in divided if (name := names[by]) in divided[by] and name is not None]
