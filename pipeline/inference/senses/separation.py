"""Measure the separation of senses: nearest neighbours, silhouettes, clusters, chance level.

All by cosine. N occurrences, D width of a vector
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EQUAL = 1e-5  # vectors below this cosine distance are equal; rounding errors are smaller
PERMUTATIONS = 999  # gives p three digits
MOST_CLUSTERS = 6
SEED = 0


@dataclass(frozen=True)
class Judgement:
    """The accuracy of an encoder's best layer, against the best layers under shuffled labels."""

    accuracy: float  # share of occurrences whose nearest neighbour has the same label
    chance: float  # mean accuracy with shuffled labels
    p: float  # share of shuffles that reach the accuracy

    @property
    def is_better_than_chance(self) -> bool:
        """True if at most one shuffle in twenty reaches the accuracy."""
        return self.p <= 0.05


def units(vectors_ND: NDArray[np.float32]) -> Floats:
    """Scale vectors to length one; zero vectors, of unknown words, stay zero."""
    wide = vectors_ND.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    result: Floats = wide / np.where(lengths > 0, lengths, 1)
    return result


def distances(units_ND: Floats) -> Floats:
    """Return cosine distances [N, N] from 0 to 2; 0 to itself and between zero vectors."""
    apart_NN = np.clip(1 - units_ND @ units_ND.T, 0, 2)
    np.fill_diagonal(apart_NN, 0)
    empty = ~units_ND.any(1)
    apart_NN[np.ix_(empty, empty)] = 0
    return apart_NN


def same_vectors(apart_NN: Floats) -> Ints:
    """Return, per occurrence, the first occurrence with the same vector."""
    first: Ints = (apart_NN < EQUAL).argmax(1)
    return first


def nearest(apart_NN: Floats) -> Floats:
    """Return the nearest neighbours as weights [N, N]; ties share the row's weight equally."""
    others = apart_NN + np.diag(np.full(len(apart_NN), np.inf))
    near = (others <= others.min(1, keepdims=True) + EQUAL).astype(np.float64)
    result: Floats = near / near.sum(1, keepdims=True)
    return result


def accuracy(nearest_NN: Floats, groups: Ints) -> float:
    """Return the share of occurrences whose nearest neighbour is in the same group."""
    is_group = np.eye(groups.max() + 1)[groups]
    return float((nearest_NN @ is_group * is_group).sum() / len(groups))


def silhouette(apart_NN: Floats, groups: Ints) -> float | None:
    """Return the mean silhouette (Rousseeuw 1987), from -1 to 1; None if it is not defined."""
    from sklearn.metrics import silhouette_score

    if not 2 <= len(np.unique(groups)) < len(groups):
        return None
    return float(silhouette_score(apart_NN, groups, metric="precomputed"))


def judge(neighbours: Sequence[Floats], groups: Ints) -> Judgement:
    """Test the best layer's accuracy against the best layer's under shuffled labels.

    All layers see the same shuffles, and the best layer of each shuffle counts. This corrects for
    choosing the best layer (the maximum statistic of permutation tests; Westfall and Young 1993).
    """
    reached = max(accuracy(near, groups) for near in neighbours)
    rng = np.random.default_rng(SEED)
    by_chance = np.array(
        [
            max(accuracy(near, shuffled) for near in neighbours)
            for shuffled in (rng.permutation(groups) for _ in range(PERMUTATIONS))
        ]
    )
    as_good = int((by_chance >= reached - 1e-9).sum())  # tolerance for rounding errors
    p = (1 + as_good) / (1 + PERMUTATIONS)
    return Judgement(reached, float(by_chance.mean()), p)


def cluster(units_ND: Floats, apart_NN: Floats) -> tuple[Ints, float | None]:
    """Return k-means groups, largest first, and their silhouette, which also chooses k."""
    from sklearn.cluster import KMeans

    count = len(np.unique(same_vectors(apart_NN)))
    best: tuple[Ints, float | None] = np.zeros(len(units_ND), np.int64), None
    for k in range(2, min(MOST_CLUSTERS, count, len(units_ND) - 1) + 1):
        groups = KMeans(k, n_init=10, random_state=SEED).fit_predict(units_ND)
        value = silhouette(apart_NN, groups)
        if value is not None and (best[1] is None or value > best[1]):
            best = _by_size(groups), value
    return best


def _by_size(groups: Sequence[int] | Ints) -> Ints:
    """Renumber groups from the largest to the smallest."""
    order = np.argsort(-np.bincount(groups), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    numbered: Ints = rank[np.asarray(groups)]
    return numbered
