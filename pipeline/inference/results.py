"""Typed answers of a fine-tuned model, one class per kind of task.

Character offsets count Python characters of the given text; ends are excluded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.tasks.answers import Prediction
from pipeline.tasks.choice_answers import ChoicePrediction
from pipeline.tasks.span_answers import SpanPrediction


@dataclass(frozen=True)
class Label:
    """The label of a text or pair, with the probabilities of all labels."""

    label: str
    score: float
    scores: dict[str, float]


@dataclass(frozen=True)
class Labels:
    """The labels of a text or pair, with the probability of each label on its own."""

    labels: list[str]
    scores: dict[str, float]


@dataclass(frozen=True)
class Number:
    """The number of a text or pair."""

    value: float


@dataclass(frozen=True)
class Entity:
    """A tagged run of words: the type, the characters, and the least certain word's probability."""

    type: str
    start: int
    end: int
    text: str
    score: float


@dataclass(frozen=True)
class Tags:
    """A tag per word, and the entities that BIO tags form."""

    words: list[str]
    tags: list[str]
    scores: list[float]
    entities: list[Entity]


@dataclass(frozen=True)
class Answer:
    """The answer to a question; an empty text says that the passage has none."""

    text: str
    start: int | None
    end: int | None
    score: float
    n_best: list["Answer"]


@dataclass(frozen=True)
class Choice:
    """The best of several choices, with the probabilities of all of them."""

    number: int  # counted from 0
    label: str  # its name in the task's files
    text: str
    score: float
    scores: list[float]


Result = Label | Labels | Number | Tags | Answer | Choice


def as_json(result: Result | Entity) -> dict[str, Any]:
    """Return a result as plain values; probabilities have six digits."""
    return {name: _plain(value) for name, value in vars(result).items()}


def _plain(value: Any) -> Any:
    match value:
        case float():
            return round(value, 6)
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case Entity():
            return as_json(value)
        case Answer():  # a rival has no rivals of its own
            own = as_json(value)
            del own["n_best"]
            return own
    return value


def label_of(logits_C: np.ndarray[Any, Any], labels: Sequence[str]) -> Label:
    """Return the most probable label."""
    shares = softmax(logits_C)
    best = int(shares.argmax())
    return Label(labels[best], float(shares[best]), dict(zip(labels, shares.tolist(), strict=True)))


def tags_of(
    tags: list[str],
    scores: list[float],
    words: Sequence[str],
    characters: Sequence[tuple[int, int]],
    text: str,
) -> Tags:
    """Return the tags of a sentence; words and their characters are in `text`."""
    return Tags(list(words), tags, scores, _entities(tags, scores, characters, text))


def _entities(
    tags: Sequence[str],
    scores: Sequence[float],
    characters: Sequence[tuple[int, int]],
    text: str,
) -> list[Entity]:
    """Return the runs of BIO tags; an I- of another type, or after O, begins a new entity."""
    runs: list[tuple[str, int, int]] = []  # type, first word, last word
    for place, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        if mark not in ("B", "I") or not kind:
            continue
        is_next = runs and runs[-1][2] == place - 1 and runs[-1][0] == kind
        if mark == "I" and is_next:
            runs[-1] = (kind, runs[-1][1], place)
        else:
            runs.append((kind, place, place))
    return [
        Entity(
            kind,
            int(characters[first][0]),
            int(characters[last][1]),
            text[characters[first][0] : characters[last][1]],
            min(scores[first : last + 1]),
        )
        for kind, first, last in runs
    ]


def answer_of(guess: Prediction) -> Answer:
    """Return the best span of a passage, with its rivals."""
    assert isinstance(guess, SpanPrediction) and guess.confidence is not None
    rivals = [
        Answer(text, start, end, score, [])
        for (text, score), (start, end) in zip(guess.n_best, guess.spans, strict=True)
    ]
    if not guess.answer:
        return Answer("", None, None, guess.confidence, rivals)
    best = rivals[0]
    return Answer(best.text, best.start, best.end, guess.confidence, rivals)


def labels_of(logits_C: np.ndarray[Any, Any], labels: Sequence[str], threshold: float) -> Labels:
    """Return the labels whose probability is above the threshold."""
    chances = 1 / (1 + np.exp(-logits_C.astype(np.float64)))
    scores = dict(zip(labels, chances.tolist(), strict=True))
    return Labels([label for label, chance in scores.items() if chance > threshold], scores)


def choice_of(guess: Prediction, choices: Sequence[str]) -> Choice:
    """Return the best of an item's choices."""
    assert isinstance(guess, ChoicePrediction) and guess.confidence is not None
    best = guess.number
    return Choice(best, str(guess.answer), choices[best], guess.confidence, list(guess.shares))


def softmax(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return probabilities over the last axis."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    shares: np.ndarray[Any, Any] = shifted / shifted.sum(-1, keepdims=True)
    return shares
