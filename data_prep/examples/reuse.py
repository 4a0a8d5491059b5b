"""Measure on the rows themselves whether random segments favour some text.

Two figures (see docs/pairs-and-masks.md):
    favoured  share of all tokens in the rows that the most used 1 % of the corpus supplies
    telling   share of coin-decided pairs whose label is guessed from the region of the second
              segment alone; 0.5 is chance
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.examples.chunks import Chunk
from data_prep.examples.segments import Ints

MOST_FAVOURED = 0.02
MOST_TELLING = 0.51
FEWEST_DOCUMENTS = 100  # with fewer, the most used 1 % is a part of one document
MOST_DOCUMENTS = 1 << 20  # of more, every n-th document is measured
REGIONS = 64
SIGMAS = 6.0


@dataclass
class Reuse:
    """Counts of the tokens that documents supply; D is the number of documents in the corpus."""

    documents: int
    own: Ints = field(init=False)  # tokens in first segments and next segments, per document
    partner: Ints = field(init=False)  # tokens in random segments, per document
    coins: Ints = field(init=False)  # [2, REGIONS] coin-decided second segments: next, random

    def __post_init__(self) -> None:
        measured = -(-self.documents // self._stride)
        self.own, self.partner = np.zeros((2, measured), np.int64)
        self.coins = np.zeros((2, REGIONS), np.int64)

    @property
    def _stride(self) -> int:
        return -(-self.documents // MOST_DOCUMENTS) or 1

    def add(self, chunk: Chunk) -> None:
        """Count the rows of a chunk of next-sentence pairs."""
        second, lengths = chunk.second.astype(np.int64), np.diff(chunk.example_tokens)
        first_document, second_document = chunk.documents.T.astype(np.int64)
        is_random = chunk.label == 1
        self._count(self.own, first_document, second - 2)
        for counts, chosen in ((self.own, ~is_random), (self.partner, is_random)):
            self._count(counts, second_document[chosen], (lengths - second - 1)[chosen])
        region = second_document * REGIONS // max(self.documents, 1)
        for label in (0, 1):
            chosen = (chunk.coin == 1) & (chunk.label == label)
            self.coins[label] += np.bincount(region[chosen], minlength=REGIONS)

    def save(self, path: Path) -> None:
        """Write the counts that are not zero to the .npz file `path`."""
        used = np.flatnonzero((self.own > 0) | (self.partner > 0))
        np.savez(path, used=used, own=self.own[used], partner=self.partner[used], coins=self.coins)

    def add_saved(self, path: Path) -> None:
        """Add the counts that `save` wrote."""
        with np.load(path) as saved:
            self.own[saved["used"]] += saved["own"]
            self.partner[saved["used"]] += saved["partner"]
            self.coins += saved["coins"]

    def _count(self, counts: Ints, documents: Ints, tokens: Ints) -> None:
        chosen = documents % self._stride == 0
        places = documents[chosen] // self._stride
        counts += np.bincount(places, tokens[chosen], len(counts)).astype(np.int64)

    @property
    def favoured(self) -> float:
        """The share of all tokens that the most used 1 % of the corpus supplies."""
        used = self.own > 0
        own, supplied = self.own[used], (self.own + self.partner)[used]
        if not own.size:
            return 0.0
        order = np.argsort(-supplied / own, kind="stable")
        before = np.cumsum(own[order]) - own[order]
        wanted = np.clip((0.01 * own.sum() - before) / own[order], 0.0, 1.0)
        return float((wanted * supplied[order]).sum() / supplied.sum())

    @property
    def telling(self) -> float:
        """The share of coin-decided pairs whose label the region of the second segment tells."""
        total = self.coins.sum()
        return float(self.coins.max(0).sum() / total) if total else 0.5

    def figures(self) -> dict[str, float]:
        """Return both figures, for the statistics."""
        return {"favoured": round(self.favoured, 6), "telling": round(self.telling, 6)}

    def problem(self) -> str | None:
        """Describe the first figure that is above its limit, or return None."""
        documents = int((self.own > 0).sum())
        if documents >= FEWEST_DOCUMENTS and self.favoured > MOST_FAVOURED:
            return (
                f"1 % of the corpus supplies {self.favoured:.2%} of the tokens, more than "
                f"{MOST_FAVOURED:.0%}: one document or group has most of the text, so random "
                "next sentences repeat the rest; use examples.pairs=sop or none, or divide it "
                "(corpus.documents, corpus.group_field)"
            )
        if self.telling > MOST_TELLING + self._chance():
            return (
                f"the region of the second segment tells the label of {self.telling:.2%} of the "
                f"pairs, more than {MOST_TELLING:.0%}"
            )
        return None

    def _chance(self) -> float:
        """Return how much of `telling` above one half may be chance.

        Of N fair coins, the larger count exceeds N / 2 by 0.4 √N on average, deviation 0.3 √N.
        """
        totals: NDArray[np.int64] = self.coins.sum(0)
        total = max(int(totals.sum()), 1)
        return float((0.4 * np.sqrt(totals).sum() + SIGMAS * 0.3 * np.sqrt(total)) / total)
