"""Statistics of a split's examples, for the manifest and the report."""

from collections.abc import Iterable
from typing import Any

from data_prep.examples.config import ExamplesConfig

SUMMED = (
    "sections", "empty_sections", "sentences", "empty_sentences", "pieces",
    "examples", "rows", "packed_rows", "tokens", "next", "other", "forced",
    "truncated", "truncated_pieces", "dropped", "cut",
    "reused", "predictions", "masked", "kept", "replaced",
)  # fmt: skip


def statistics(counts: Iterable[dict[str, Any]], config: ExamplesConfig) -> dict[str, Any]:
    """Add up the counts of all texts and rows, and compute means and packing efficiency."""
    sums = dict.fromkeys(SUMMED, 0)
    lengths = [0] * (config.max_seq_length + 1)
    for each in counts:
        for name in SUMMED:
            sums[name] += each.get(name, 0)
        for length, number in enumerate(each.get("lengths", ())):
            lengths[length] += number
    capacity = config.max_seq_length
    return {
        **sums,
        "mean_tokens_per_row": _share(sums["tokens"], sums["rows"]),
        "efficiency": {
            "unpacked": _share(sums["tokens"], sums["examples"] * capacity),
            "packed": _share(sums["tokens"], sums["packed_rows"] * capacity),
        },
        "lengths": lengths,
    }


def summary(whole: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics for the manifest: all but the histogram of lengths."""
    return {name: value for name, value in whole.items() if name != "lengths"}


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
