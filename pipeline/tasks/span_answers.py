"""Answers that are spans of a passage: the best span over all windows, with SQuAD's scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pipeline.encoders import Encoder
from pipeline.tasks.answers import Answers, Floats, Prediction
from pipeline.tasks.batches import TaskData
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.span_windows import SpanData, Window, encode_spans
from pipeline.tasks.squad_scores import answer_scores, best_threshold, squad_scores

N_BEST = 20  # spans kept per question

Span = tuple[int, int]  # first character in the passage, one past the last


@dataclass(frozen=True)
class SpanPrediction(Prediction):
    """The best spans of a question. The answer is the best span, or empty for no answer."""

    margin: float  # logit sum of "no answer" minus the logit sum of the best span
    n_best: tuple[tuple[str, float], ...]  # spans and their probabilities, best first
    spans: tuple[Span, ...]  # the characters of each in the passage


class SpanAnswers(Answers):
    """A span of the second text, or the empty answer if questions may be unanswerable."""

    kind = "span"
    outputs = 2

    def __init__(self, task: TaskConfig, threshold: float = 0.0) -> None:
        self.labels = []
        self.threshold = threshold  # predict "no answer" if the margin is larger
        self._task = task
        self.is_tunable = task.unanswerable

    def fitted(self) -> dict[str, Any]:
        """Return the margin above which a question has no answer."""
        return {"threshold": self.threshold}

    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> SpanData:
        """Encode windows of passages; the targets mark where answers start and end."""
        return encode_spans(encoder, examples, self._task, max_length)

    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """Return the best spans of each example over all its windows."""
        assert isinstance(data, SpanData)
        by_example = groupby(data.windows, key=lambda window: window.example)
        return [
            self._predict(outputs_UC, data.examples[number], list(windows))
            for number, windows in by_example
        ]

    def tuned(self, outputs_UC: Floats, data: TaskData) -> "SpanAnswers":
        """Return a copy with the threshold of the best F1 on `data` (only task.unanswerable)."""
        if not self.is_tunable:
            return self
        margins, gains = [], []
        for example, guess in zip(data.examples, self.decode(outputs_UC, data), strict=True):
            assert isinstance(guess, SpanPrediction)
            margins.append(guess.margin)
            of_best, of_none = (
                answer_scores(_accepted(example), text, unanswerable=True)[1]
                for text in (guess.n_best[0][0], "")
            )
            gains.append(of_best - of_none)
        return SpanAnswers(self._task, best_threshold(np.array(margins), np.array(gains)))

    def score(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Return exact match and F1 as SQuAD's official scripts compute them."""
        gold = [_accepted(example) for example in examples]
        predicted = [str(guess.answer) for guess in predictions]
        return squad_scores(gold, predicted, self._task.unanswerable)

    def _predict(
        self, outputs_UC: Floats, example: Example, windows: Sequence[Window]
    ) -> SpanPrediction:
        spans: dict[Span, float] = {}  # a span in two windows gets the larger score
        nothing = np.inf  # "no answer" scores the minimum over windows: it must hold in all of them
        for window in windows:
            nothing = min(nothing, float(outputs_UC[window.origin].sum()))
            for span, value in best_spans(outputs_UC, window, self._task.max_answer):
                spans[span] = max(value, spans.get(span, -np.inf))
        ranked = sorted(spans.items(), key=lambda item: (-item[1], item[0]))[:N_BEST]
        values = [value for _, value in ranked]
        margin = nothing - values[0]
        rivals = np.array([*values, nothing] if self._task.unanswerable else values)
        sure = np.exp(rivals - rivals.max())
        sure /= sure.sum()
        passage = example.texts[1]
        places = tuple(span for span, _ in ranked)
        n_best = tuple(
            (passage[start:end], float(p))
            for ((start, end), _), p in zip(ranked, sure, strict=False)
        )
        if self._task.unanswerable and margin > self.threshold:
            return SpanPrediction("", float(sure[-1]), margin, n_best, places)
        return SpanPrediction(*n_best[0], margin, n_best, places)


def best_spans(outputs_UC: Floats, window: Window, max_words: int) -> list[tuple[Span, float]]:
    """Return a window's N_BEST spans of at most `max_words` words with their logit sums."""
    start, end = outputs_UC[window.units].astype(np.float64).T  # [parts] each
    # The last part that may end a span, for each first part; a span has at most `most` parts.
    last = np.searchsorted(window.words, window.words + max_words) - 1
    sizes = last - np.arange(len(last)) + 1
    most = int(sizes.max())
    # sums[s, d]: the span from part s to part s + d; -inf beyond the last one allowed.
    after = np.concatenate([end, np.full(most - 1, -np.inf)])
    sums: NDArray[np.float64] = start[:, None] + sliding_window_view(after, most)
    flat = np.where(np.arange(most) < sizes[:, None], sums, -np.inf).ravel()
    best = np.argpartition(-flat, min(N_BEST, flat.size) - 1)[:N_BEST]
    best = best[np.isfinite(flat[best])]
    first, length = np.divmod(best, most)
    characters = window.characters
    return [
        ((int(characters[s, 0]), int(characters[s + d, 1])), float(flat[at]))
        for s, d, at in zip(first, length, best, strict=True)
    ]


def _accepted(example: Example) -> tuple[str, ...]:
    assert isinstance(example.gold, tuple)
    return example.gold
