"""Word similarity: correlate an encoder's cosines with human judgements of word pairs.

Each word is encoded as a text of one word; its vector is the mean over its tokens. Pairs with a
word that static vectors do not know are left out and counted, as is usual.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from data_prep.errors import SesameError
from pipeline.encoders import Encoder, StaticEncoder
from pipeline.tasks.examples import read_lines
from pipeline.tasks.heads import pool
from pipeline.tasks.metrics import spearman

MAX_LENGTH = 32  # maximum units of a word
Pair = tuple[str, str, float]


@dataclass(frozen=True)
class Similarity:
    """An encoder's correlation with one list of pairs."""

    name: str
    spearman: float
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
            first, second, score = cells[:3]
            pairs.append((first, second, float(score)))
        except ValueError:
            if pairs:
                raise SesameError(
                    f"{path}:{number}: not two words and a number separated by tabs"
                ) from None
    if len(pairs) < 2:
        raise SesameError(f"{path}: fewer than two pairs of words")
    return pairs


def measure(encoder: Encoder, path: Path) -> Similarity:
    """Return Spearman's correlation of cosines and judgements."""
    pairs = read_pairs(path)
    used = [pair for pair in pairs if _known(encoder, pair)]
    words = sorted({word for a, b, _ in used for word in (a, b)})
    if not words:
        return Similarity(path.stem, 0.0, 0, len(pairs))
    with torch.inference_mode():
        inputs = encoder.eval().encode_texts([(word,) for word in words], MAX_LENGTH)
        batch = inputs.batch(np.arange(len(words)))
        vectors = pool(encoder(batch)[-1], batch.lengths, "mean")
        unit = torch.nn.functional.normalize(vectors, dim=1).double().numpy()
    row = {word: number for number, word in enumerate(words)}
    cosines = np.array([unit[row[a]] @ unit[row[b]] for a, b, _ in used])
    judged = np.array([score for _, _, score in used])
    return Similarity(path.stem, spearman(cosines, judged), len(used), len(pairs))


def _known(encoder: Encoder, pair: Pair) -> bool:
    return not isinstance(encoder, StaticEncoder) or all(map(encoder.knows, pair[:2]))
