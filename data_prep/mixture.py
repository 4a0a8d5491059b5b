"""How much each source counts: its weight, as the expected number of copies of its documents.

`corpus.weights` names weights; `corpus.temperature` T moves shares towards equal ones as
multilingual BERT does: a source with a share p of all words gets one ∝ p^T (T = 0.7 there). The
number of words stays the same but for the named weights.
"""

from collections.abc import Mapping

from data_prep.config import MOST_COPIES

DIGITS = 6  # weights are rounded, so that no machine's last bit of a power shows in the shards


def source_weights(
    words: Mapping[str, int], weights: Mapping[str, float], temperature: float
) -> dict[str, float]:
    """The expected number of copies of a document, by its source; `words` has their sizes."""
    total = sum(words.values())
    shares = {name: count / total for name, count in words.items() if count}
    smoothed = {name: share**temperature for name, share in shares.items()}
    scale = sum(smoothed.values())
    copies = {name: smoothed[name] / scale / share for name, share in shares.items()}
    return {
        name: round(min(weights.get(name, 1.0) * copies.get(name, 1.0), MOST_COPIES), DIGITS)
        for name in words
    }
