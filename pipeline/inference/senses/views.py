"""Results for a word's occurrences; `compare` computes them and `drawing` draws them.

N occurrences
"""

from dataclasses import dataclass

from pipeline.inference.senses.occurrences import Occurrence
from pipeline.inference.senses.separation import Floats, Ints, Judgement


@dataclass(frozen=True)
class Layer:
    """A layer's vectors projected to a plane, and the separation of its groups."""

    number: int  # 0 is the layer before any context
    points: Floats  # [N, 2]
    distinct: int  # number of distinct vectors
    accuracy: float | None  # of nearest neighbours; None without labels
    silhouette: float | None  # of the labels, or of the clusters without labels


@dataclass(frozen=True)
class View:
    """One encoder's view of all occurrences."""

    encoder: str
    layers: list[Layer]
    groups: Ints  # [N]: label numbers, or cluster numbers, largest cluster first
    best: int  # the layer with the best separation
    judgement: Judgement | None  # None without labels or with too few occurrences


@dataclass(frozen=True)
class Senses:
    """A word's occurrences and every encoder's view of them."""

    word: str
    occurrences: list[Occurrence]
    labels: list[str]  # sorted; empty without labels
    views: list[View]
