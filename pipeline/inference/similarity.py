"""Similarity: correlate an encoder's cosines with human judgements of pairs of words or sentences.

A word is encoded as a text of one word. Vectors of words and sentences are pooled over their units.
Pairs with a word that static vectors do not know are left out and counted, as is usual.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from data_prep.errors import SesameError
from pipeline.encoders import Encoder, StaticEncoder
from pipeline.encoders.sentences import embed_sentences
from pipeline.tasks.examples import read_lines
from pipeline.tasks.metrics import pearson, spearman

Pair = tuple[str, str, float]


@dataclass(frozen=True)
class Similarity:
    """An encoder's correlations with one list of pairs."""

    name: str
    spearman: float
    pearson: float
    used: int
    pairs: int


def read_pairs(path: Path) -> list[Pair]:
    """Read two words and a number per line, separated by tabs, as in SimLex-999 and WordSim-353.

    Lines that begin with # are comments. The first line may be a heading.
    """
    pairs: list[Pair] = []
    for number, line in read_lines(path):
        cells = line.split("\t")
        if not line.strip() or line.startswith("#"):
            continue
        try:
            first, second, score = cells[0], cells[1], float(cells[2])
            if not math.isfinite(score):
                raise ValueError(score)
            pairs.append((first, second, score))
        except (ValueError, IndexError):
            if pairs:
                raise SesameError(
                    f"{path}:{number}: not two words and a number separated by tabs"
                ) from None
    if len(pairs) < 2:
        raise SesameError(f"{path}: fewer than two pairs of words")
    return pairs


def measure(
    encoder: Encoder, path: Path, layers: str = "last", pooling: str = "mean"
) -> Similarity:
    """Return the correlations of cosines and judgements for a file of word pairs.

    layers, pooling: see `correlate`.
    """
    pairs = read_pairs(path)
    used = [pair for pair in pairs if _known(encoder, pair)]
    return correlate(encoder, path.stem, used, len(pairs), layers, pooling)


def correlate(
    encoder: Encoder,
    name: str,
    used: Sequence[Pair],
    pairs: int,
    layers: str = "last",
    pooling: str = "mean",
) -> Similarity:
    """Return the correlations for pairs of texts and numbers; `pairs` counts those not used too.

    layers: see `embed.Layers`; `last` or `mix`. Both correlations are 0 without pairs.
    """
    if not used:
        return Similarity(name, 0.0, 0.0, 0, pairs)
    texts = sorted({text for a, b, _ in used for text in (a, b)})
    vectors = torch.from_numpy(embed_sentences(encoder, texts, layers, pooling))
    unit = torch.nn.functional.normalize(vectors, dim=1).double().numpy()
    row = {text: number for number, text in enumerate(texts)}
    cosines = np.array([unit[row[a]] @ unit[row[b]] for a, b, _ in used])
    judged = np.array([score for _, _, score in used])
    both = spearman(cosines, judged), pearson(cosines, judged)
    return Similarity(name, *both, len(used), pairs)


def _known(encoder: Encoder, pair: Pair) -> bool:
    return not isinstance(encoder, StaticEncoder) or all(map(encoder.knows, pair[:2]))
