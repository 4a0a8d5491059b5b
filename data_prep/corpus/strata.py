"""Count documents by named source and by language: read = kept + dropped, for each.

A document counts for its language once its text is clean, so documents that are dropped before
(damage, `corpus.where`, `corpus.exclude`, `corpus.hook`, benchmarks) count for their source only.
The counts are there if the corpus names sources, or has documents of two languages or more.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.corpus.clean_files import LANGUAGES
from data_prep.corpus.shard_format import Section, read_statistics
from data_prep.reading.tally import READ, Tally
from data_prep.text.languages import UNDETERMINED

REPEATED = "repeated"  # the reason of all drops after cleaning: duplicates of other documents
BY_SOURCE, BY_LANGUAGE = "by_source", "by_language"
Divided = Mapping[str, Collection[str]]  # names by BY_SOURCE or BY_LANGUAGE


def count_strata(tally: Tally, placed: Mapping[str, int], sources: Sequence[str]) -> dict[str, Any]:
    """Return the counts by source and by language; empty if there is nothing to tell apart.

    placed: the counts of the place pass.
    sources: the names of the sources, in the order of their numbers.
    """
    found = {}
    if sources:
        kept = {name: placed.get(f"source {n}", 0) for n, name in enumerate(sources)}
        found[BY_SOURCE] = _balance(tally.by_source, kept)
    if tells_languages(tally.by_language):
        kept = {code: placed.get(f"language {n}", 0) for n, code in enumerate(LANGUAGES)}
        found[BY_LANGUAGE] = _balance(tally.by_language, kept)
    return found


def tells_languages(languages: Iterable[str]) -> bool:
    """Return True if at least two languages were identified."""
    return len(set(languages) - {UNDETERMINED}) > 1


def _balance(cleaned: Mapping[str, Counter[str]], kept: Mapping[str, int]) -> dict[str, Any]:
    balanced = {}
    for name, counts in sorted(cleaned.items()):
        dropped = {reason: number for reason, number in counts.items() if reason != READ}
        dropped[REPEATED] = counts[READ] - sum(dropped.values()) - kept[name]
        reasons = {reason: number for reason, number in sorted(dropped.items()) if number}
        balanced[name] = {"read": counts[READ], "kept": kept[name], "dropped": reasons}
    return balanced


def told_apart(shards: Path) -> Divided:
    """Return what a shard folder's counts are divided by: names of sources, codes of languages."""
    counted = read_statistics(shards)
    return {by: counted[by] for by in (BY_SOURCE, BY_LANGUAGE) if by in counted}


def strata_of(section: Section, divided: Divided) -> list[tuple[str, str]]:
    """Return the strata of a section as (by_source or by_language, name)."""
    names = {BY_SOURCE: section.source.split("/", 1)[0], BY_LANGUAGE: section.language}
    return [(by, name) for by in divided if (name := names[by]) in divided[by] and name is not None]
