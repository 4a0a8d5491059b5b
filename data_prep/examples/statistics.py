"""What a split's examples look like in numbers, for the manifest and the report."""

from collections.abc import Iterable
from typing import Any

from data_prep.config import ExamplesConfig

SUMMED = (
    "sections", "empty_sections", "sentences", "empty_sentences", "pieces",
    "examples", "rows", "packed_rows", "tokens", "next", "other", "forced",
    "truncated", "truncated_pieces", "dropped", "cut",
    "predictions", "masked", "kept", "replaced",
)  # fmt: skip


def statistics(counts: Iterable[dict[str, Any]], config: ExamplesConfig) -> dict[str, Any]:
    """Add up the counts of texts and rows, and derive shares from the sums."""
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
    """The part of a split's statistics that a manifest shows."""
    return {name: value for name, value in whole.items() if name != "lengths"}


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
