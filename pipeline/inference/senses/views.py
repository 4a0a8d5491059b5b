"""A word's occurrences as encoders see them: what `compare` computes and `drawing` draws.

N occurrences
"""

from dataclasses import dataclass

from pipeline.inference.senses.occurrences import Occurrence
from pipeline.inference.senses.separation import Floats, Ints, Judgement


@dataclass(frozen=True)
class Layer:
    """A layer's vectors on a plane, and how its groups lie apart."""

    number: int  # 0 is before any context
    points: Floats  # [N, 2]
    distinct: int  # how many vectors differ
    accuracy: float | None  # of nearest neighbours; None without labels
    silhouette: float | None  # of labels, or else of clusters


@dataclass(frozen=True)
class View:
    """One encoder's view of all occurrences."""

    encoder: str
    layers: list[Layer]
    groups: Ints  # [N]: numbers of labels, or of clusters, the largest first
    best: int  # the layer that separates best
    judgement: Judgement | None  # None without labels, or where there are too few occurrences


@dataclass(frozen=True)
class Senses:
    """A word's occurrences and every encoder's view of them."""

    word: str
    occurrences: list[Occurrence]
    labels: list[str]  # sorted; none where occurrences have none
    views: list[View]
