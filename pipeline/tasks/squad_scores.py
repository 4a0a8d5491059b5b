"""SQuAD's exact match and F1, by the rules of its two official scripts, and 2.0's threshold.

Answers are normalised: lower case, no ASCII punctuation, no articles (a, an, the), single spaces.
A prediction is scored against every accepted answer, and the best score counts. In version 2.0 a
question may have no answer; then only the empty prediction is correct.
"""

import re
import string
import sys
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PUNCTUATION = str.maketrans("", "", string.punctuation)
NEVER_ANSWER = -sys.float_info.max  # a threshold; finite, because JSON has no infinity
ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(answer: str) -> str:
    """Return the normalised answer, which is what gets compared."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def answer_scores(gold: Sequence[str], predicted: str, unanswerable: bool) -> tuple[float, float]:
    """Return exact match and F1 of one prediction against the accepted answers."""
    accepted = [normalise(answer) for answer in gold]
    if unanswerable:  # 2.0's script ignores answers that become empty; none left means no answer
        accepted = [answer for answer in accepted if answer] or [""]
    guess = normalise(predicted)
    exact = max(float(guess == answer) for answer in accepted)
    return exact, max(_f1(answer, guess, unanswerable) for answer in accepted)


def _f1(truth: str, guess: str, unanswerable: bool) -> float:
    """Return the F1 of the words in common."""
    there, found = truth.split(), guess.split()
    if unanswerable and not (there and found):
        return float(there == found)
    common = (Counter(there) & Counter(found)).total()
    return 2 * common / (len(there) + len(found)) if common else 0.0


def squad_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], unanswerable: bool
) -> dict[str, float]:
    """Return mean scores over all questions.

    `unanswerable`: also the means over questions with an answer and without one.
    """
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
    """Return the margin above which to predict "no answer", so that the mean score is largest.

    `margins`: [questions], score of "no answer" minus score of the best span.
    `gains`: [questions], F1 of the best span minus F1 of "no answer".
    Of equally good thresholds the smallest is returned; NEVER_ANSWER is below every margin.
    """
    order = np.argsort(margins, kind="stable")
    totals = np.concatenate([[0.0], np.cumsum(gains[order])])
    # Thresholds are margins, so questions with equal margins are treated alike.
    ends = np.append(np.flatnonzero(np.diff(margins[order])) + 1, len(order))
    best = int(np.argmax(totals[[0, *ends]]))
    return float(margins[order][ends[best - 1] - 1]) if best else NEVER_ANSWER


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0
