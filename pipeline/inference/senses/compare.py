"""Compare encoders on a word's occurrences: points, separation and a judgement per encoder.

N occurrences, L layers, D width of a vector
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import UsageError
from pipeline.inference.senses.occurrences import Occurrence
from pipeline.inference.senses.projection import project
from pipeline.inference.senses.separation import (
    Ints,
    accuracy,
    cluster,
    distances,
    judge,
    nearest,
    same_vectors,
    silhouette,
    units,
)
from pipeline.inference.senses.views import Layer, Senses, View

if TYPE_CHECKING:
    from pipeline.encoders import Encoder

FEW = 10  # fewer occurrences are drawn but not judged
BLOCK = 32  # sentences encoded at a time, which bounds memory


def compare(
    word: str, occurrences: Sequence[Occurrence], encoders: Mapping[str, "Encoder"]
) -> Senses:
    """Return every encoder's view; the groups are the labels if all occurrences have one."""
    if not occurrences:
        raise UsageError(f"word={word}: there is no occurrence to look at")
    labels = sorted({each.label for each in occurrences if each.label is not None})
    groups = np.array([labels.index(each.label) for each in occurrences if each.label is not None])
    given = groups if len(groups) == len(occurrences) else None
    views = [
        view(name, occurrence_vectors(encoder, occurrences), given)
        for name, encoder in encoders.items()
    ]
    return Senses(word, list(occurrences), labels if given is not None else [], views)


def occurrence_vectors(
    encoder: "Encoder", occurrences: Sequence[Occurrence]
) -> NDArray[np.float32]:
    """Return the vectors [N, L, D] of each occurrence: the mean over its words."""
    rows = []
    for first in range(0, len(occurrences), BLOCK):
        fitting = [_fitting(encoder, each) for each in occurrences[first : first + BLOCK]]
        vectors = encoder.embed([each.words for each in fitting])
        rows += [
            own[each.begin : each.end].mean(0) for each, own in zip(fitting, vectors, strict=True)
        ]
    return np.stack(rows)


def _fitting(encoder: "Encoder", occurrence: Occurrence) -> Occurrence:
    """Return the occurrence with as much context as the encoder has positions for."""
    if encoder.longest is None:
        return occurrence
    room = encoder.longest - encoder.special_units(1)
    taken = encoder.word_units([occurrence.words])

    def units(reach: int) -> int:
        first = max(0, occurrence.begin - reach)
        shared = not taken.may_begin[first]  # shares a unit with the word before
        return int(taken.units[first : occurrence.end + reach].sum()) + shared

    reach = len(occurrence.words)
    while reach and units(reach) > room:
        reach -= 1
    return occurrence.within(reach)


def view(name: str, vectors_NLD: NDArray[np.float32], labels: Ints | None) -> View:
    """Return an encoder's view of its vectors; without labels, groups are k-means clusters."""
    unit = [units(vectors_NLD[:, number]) for number in range(vectors_NLD.shape[1])]
    apart = [distances(each) for each in unit]
    # The lowest layer has no context: it is drawn, but judged only if it is the only layer.
    contextual = range(1, len(unit)) or range(1)
    groups = labels
    if groups is None:
        found = [cluster(unit[number], apart[number]) for number in contextual]
        groups, _ = max(found, key=lambda each: each[1] or -1.0)
    is_judged = labels is not None and len(labels) >= FEW and len(np.unique(labels)) > 1
    near = [nearest(each) for each in apart] if is_judged else []
    layers = [
        Layer(
            number,
            project(unit[number], apart[number]),
            len(np.unique(same_vectors(apart[number]))),
            accuracy(near[number], groups) if is_judged else None,
            silhouette(apart[number], groups),
        )
        for number in range(len(unit))
    ]
    best = max(contextual, key=lambda n: (layers[n].accuracy or 0.0, layers[n].silhouette or -1.0))
    judgement = judge([near[number] for number in contextual], groups) if is_judged else None
    return View(name, layers, groups, best, judgement)
