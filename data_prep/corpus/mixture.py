"""How much each source counts: its weight, as the expected number of copies of its documents.

`corpus.weights` names weights; `corpus.temperature` T moves shares towards equal ones as
multilingual BERT does: a source with a share p of all text gets one ∝ p^T (T = 0.7 there). The
amount of text stays the same but for the named weights. Sizes are bytes: Chinese has no words that
spaces would tell apart.
"""

from collections.abc import Mapping

from data_prep.config import MOST_COPIES

DIGITS = 6  # weights are rounded, so that no machine's last bit of a power shows in the shards


def source_weights(
    sizes: Mapping[str, int], weights: Mapping[str, float], temperature: float
) -> dict[str, float]:
    """The expected number of copies of a document, by its source."""
    total = sum(sizes.values())
    shares = {name: size / total for name, size in sizes.items() if size}
    smoothed = {name: share**temperature for name, share in shares.items()}
    scale = sum(smoothed.values())
    copies = {name: smoothed[name] / scale / share for name, share in shares.items()}
    return {
        name: round(min(weights.get(name, 1.0) * copies.get(name, 1.0), MOST_COPIES), DIGITS)
        for name in sizes
    }
