"""Project vectors to a plane by t-SNE (van der Maaten and Hinton 2008; openTSNE); deterministic."""

import numpy as np

from pipeline.inference.senses.separation import Floats, same_vectors

PERPLEXITY = 30.0  # maximum; a third of the number of points if that is smaller
FEWEST = 5  # fewer distinct vectors are projected to their principal axes
SEED = 0


def project(units_ND: Floats, apart_NN: Floats) -> Floats:
    """Return one point per vector; equal vectors get the same point.

    For vectors of length one, Euclidean neighbours equal cosine neighbours.
    """
    firsts, places = np.unique(same_vectors(apart_NN), return_inverse=True)
    distinct = units_ND[firsts]
    points = _axes(distinct) if len(distinct) < FEWEST else _tsne(distinct)
    placed: Floats = points[places]
    return placed


def _axes(units_ND: Floats) -> Floats:
    """Return the first two principal components; a single vector maps to the origin."""
    left, sizes, _ = np.linalg.svd(units_ND - units_ND.mean(0), full_matrices=False)
    points = np.zeros((len(units_ND), 2))
    width = min(2, len(sizes))
    points[:, :width] = (left * sizes)[:, :width]
    return points


def _tsne(units_ND: Floats) -> Floats:
    from openTSNE import TSNE

    perplexity = min(PERPLEXITY, (len(units_ND) - 1) / 3)
    tsne = TSNE(
        perplexity=perplexity,
        metric="euclidean",
        neighbors="exact",
        initialization="pca",
        random_state=SEED,
        n_jobs=1,  # sums over several threads would not be reproducible
    )
    return np.asarray(tsne.fit(units_ND), np.float64)
