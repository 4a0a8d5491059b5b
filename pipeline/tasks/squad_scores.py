"""SQuAD's exact match and F1, by the rules of its two official scripts, and 2.0's threshold.

An answer is normalised: lower case, without ASCII punctuation, without the articles a, an and the,
with single spaces. It is scored against every accepted answer, and the best counts. Version 2.0
knows questions without an answer: the empty answer is theirs, and only equals itself.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(answer: str) -> str:
    """What of an answer is compared."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def answer_scores(gold: Sequence[str], predicted: str, unanswerable: bool) -> tuple[float, float]:
    """Exact match and F1 of one answer, against the accepted ones."""
    accepted = [normalise(answer) for answer in gold]
    if unanswerable:  # 2.0 leaves out answers of which nothing remains; no answer is the empty one
        accepted = [answer for answer in accepted if answer] or [""]
    guess = normalise(predicted)
    exact = max(float(guess == answer) for answer in accepted)
    return exact, max(_f1(answer, guess, unanswerable) for answer in accepted)


def _f1(truth: str, guess: str, unanswerable: bool) -> float:
    """F1 of the words in common."""
    there, found = truth.split(), guess.split()
    if unanswerable and not (there and found):
        return float(there == found)
    common = (Counter(there) & Counter(found)).total()
    return 2 * common / (len(there) + len(found)) if common else 0.0


def squad_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], unanswerable: bool
) -> dict[str, float]:
    """Means over all questions; of those with and without an answer too where some have none."""
    pairs = [
        answer_scores(accepted, guess, unanswerable)
        for accepted, guess in zip(gold, predicted, strict=True)
    ]
    exact, f1 = np.array(pairs, np.float64).reshape(-1, 2).T
    scores = {"f1": _mean(f1), "exact_match": _mean(exact)}
    if unanswerable:
        has_answer = np.array([any(map(normalise, accepted)) for accepted in gold], bool)
        for name, part in (("answerable", has_answer), ("unanswerable", ~has_answer)):
            scores |= {f"f1_{name}": _mean(f1[part]), f"exact_match_{name}": _mean(exact[part])}
    return scores


def best_threshold(margins: NDArray[np.float64], gains: NDArray[np.float64]) -> float:
    """The margin above which to answer nothing, so that the mean score becomes largest.

    `margins` say by how much no answer is likelier than the best one, `gains` by how much the best
    answer scores more than none. Of equally good thresholds the smallest is taken.
    """
    order = np.argsort(margins, kind="stable")
    totals = np.concatenate([[0.0], np.cumsum(gains[order])])
    # A threshold lies at a margin, so that of equal margins all or none answer.
    ends = np.append(np.flatnonzero(np.diff(margins[order])) + 1, len(order))
    best = int(np.argmax(totals[[0, *ends]]))
    return float(margins[order][ends[best - 1] - 1]) if best else float("-inf")


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0
