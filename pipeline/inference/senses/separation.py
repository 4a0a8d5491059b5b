"""How far senses lie apart: nearest neighbours, silhouettes, clusters, and what chance would do.

All by cosine. N occurrences, D width of a vector
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EQUAL = 1e-5  # cosine distance below which two vectors are the same; rounding makes less
PERMUTATIONS = 999  # so that p has three digits
MOST_CLUSTERS = 6
SEED = 0


@dataclass(frozen=True)
class Judgement:
    """What an encoder's best layer reaches, beside the best layers under shuffled labels."""

    accuracy: float  # share of occurrences whose nearest neighbour has their label
    chance: float  # mean of the same with shuffled labels
    p: float  # share of shuffles that do as well

    @property
    def is_better_than_chance(self) -> bool:
        """Whether shuffled labels do as well only one time in twenty."""
        return self.p <= 0.05


def units(vectors_ND: NDArray[np.float32]) -> Floats:
    """Vectors of length one; those of nothing, as an unknown word has, stay zero."""
    wide = vectors_ND.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    result: Floats = wide / np.where(lengths > 0, lengths, 1)
    return result


def distances(units_ND: Floats) -> Floats:
    """Cosine distances of all pairs, from 0 to 2; none to oneself, nor from nothing to nothing."""
    apart_NN = np.clip(1 - units_ND @ units_ND.T, 0, 2)
    np.fill_diagonal(apart_NN, 0)
    empty = ~units_ND.any(1)
    apart_NN[np.ix_(empty, empty)] = 0
    return apart_NN


def same_vectors(apart_NN: Floats) -> Ints:
    """Of each occurrence the first that has the same vector."""
    first: Ints = (apart_NN < EQUAL).argmax(1)
    return first


def nearest(apart_NN: Floats) -> Floats:
    """Each one's nearest others; several that are as near share the row's one."""
    others = apart_NN + np.diag(np.full(len(apart_NN), np.inf))
    near = (others <= others.min(1, keepdims=True) + EQUAL).astype(np.float64)
    result: Floats = near / near.sum(1, keepdims=True)
    return result


def accuracy(nearest_NN: Floats, groups: Ints) -> float:
    """The share of occurrences whose nearest neighbour is of their own group."""
    is_group = np.eye(groups.max() + 1)[groups]
    return float((nearest_NN @ is_group * is_group).sum() / len(groups))


def silhouette(apart_NN: Floats, groups: Ints) -> float | None:
    """Mean silhouette (Rousseeuw 1987), from -1 to 1; None where groups do not allow any."""
    from sklearn.metrics import silhouette_score

    if not 2 <= len(np.unique(groups)) < len(groups):
        return None
    return float(silhouette_score(apart_NN, groups, metric="precomputed"))


def judge(neighbours: Sequence[Floats], groups: Ints) -> Judgement:
    """The best of several layers' neighbours against the best under shuffled labels.

    All layers see the same shuffles and the best of each counts, so the choice of a layer is paid
    for (the maximum statistic of permutation tests; Westfall and Young 1993).
    """
    reached = max(accuracy(near, groups) for near in neighbours)
    rng = np.random.default_rng(SEED)
    by_chance = np.array(
        [
            max(accuracy(near, shuffled) for near in neighbours)
            for shuffled in (rng.permutation(groups) for _ in range(PERMUTATIONS))
        ]
    )
    as_good = int((by_chance >= reached - 1e-9).sum())  # sums round differently
    p = (1 + as_good) / (1 + PERMUTATIONS)
    return Judgement(reached, float(by_chance.mean()), p)


def cluster(units_ND: Floats, apart_NN: Floats) -> tuple[Ints, float | None]:
    """Groups by k-means, the largest first, and their silhouette, which also chooses k."""
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
    """The groups numbered from the largest to the smallest."""
    order = np.argsort(-np.bincount(groups), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    numbered: Ints = rank[np.asarray(groups)]
    return numbered
