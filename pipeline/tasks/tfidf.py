"""The TF-IDF baseline: weighted counts of words and word pairs with a linear model.

Uses scikit-learn's logistic regression for labels and ridge regression for numbers. The strength of
the regularisation is chosen on the development set. Sentence pairs have the features of `heads`: u,
v, |u − v| and u ∗ v.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pipeline.tasks.answers import Prediction
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuning import Outcome, scored
from pipeline.tasks.kinds import make_answers
from pipeline.tasks.splits import Splits

STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # inverse regularisation strengths to try


def fit_tfidf(splits: Splits, task: TaskConfig) -> Outcome:
    """Fit one model per strength, keep the best on the development set, score the test set."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[^\w\s]")
    words.fit(text for example in splits.train for text in example.texts)
    train_X = _features(words, splits.train)
    gold: list[Any] = [example.gold for example in splits.train]
    answers = make_answers(task, splits.labels, splits.train)

    def predict(model: Any, examples: Sequence[Example]) -> list[Prediction]:
        X = _features(words, examples)
        if task.kind == "regress":
            values = np.clip(model.predict(X), min(gold), max(gold))  # as `NumberAnswers`
            return [Prediction(float(value), None) for value in values]
        chances = model.predict_proba(X)
        return [
            Prediction(str(model.classes_[best]), float(row[best]))
            for row, best in zip(chances, chances.argmax(1), strict=True)
        ]

    models, dev_scores = [], []
    for strength in STRENGTHS:
        model = (
            Ridge(alpha=1 / strength)
            if task.kind == "regress"
            else LogisticRegression(C=strength, max_iter=1000)
        )
        models.append(model.fit(train_X, gold))
        scores = answers.score(splits.dev, predict(model, splits.dev))
        dev_scores.append(scores[task.metric])
    best = int(np.argmax(dev_scores))
    return Outcome(
        **scored(partial(predict, models[best]), answers, splits),
        dev_scores=dev_scores,
        best_epoch=best + 1,
        steps=0,
        cut=0,
    )


def _features(words: Any, examples: Sequence[Example]) -> Any:
    from scipy.sparse import hstack

    sides = [words.transform(side) for side in zip(*(e.texts for e in examples), strict=True)]
    if len(sides) == 1:
        return sides[0]
    u, v = sides
    return hstack([u, v, abs(u - v), u.multiply(v)]).tocsr()
