"""Write predictions in the formats of GLUE's leaderboard, conlleval and SQuAD's scripts."""

import json
from collections.abc import Sequence
from pathlib import Path

from data_prep.files import write_atomically
from pipeline.tasks.answers import Prediction, TagPrediction
from pipeline.tasks.choice_answers import ChoicePrediction
from pipeline.tasks.examples import Example, Gold
from pipeline.tasks.multilabel_answers import LabelsPrediction
from pipeline.tasks.span_answers import SpanPrediction

DIGITS = 6  # of the probabilities of words and labels


def write_answers(
    folder: Path, name: str, kind: str, examples: Sequence[Example], guesses: Sequence[Prediction]
) -> None:
    """Write `folder/name` with one prediction per example, in the format of the task's kind."""
    folder.mkdir(exist_ok=True)
    if kind == "tag":
        write_atomically(folder / f"{name}.conll", _conll(examples, guesses))
    elif kind == "span":
        write_spans(folder / f"{name}.json", examples, guesses)
    else:
        write_atomically(folder / f"{name}.tsv", _glue(guesses))


def write_spans(path: Path, examples: Sequence[Example], guesses: Sequence[Prediction]) -> None:
    """Write SQuAD's format: a JSON object, question id to answer; "" means no answer."""
    answers = {e.id: guess.answer for e, guess in zip(examples, guesses, strict=True)}
    write_atomically(path, json.dumps(answers, ensure_ascii=False))


def write_null_odds(path: Path, examples: Sequence[Example], guesses: Sequence[Prediction]) -> None:
    """Write the --na-prob-file of SQuAD 2.0's script, from which it finds its own threshold."""
    odds = {
        example.id: guess.margin
        for example, guess in zip(examples, guesses, strict=True)
        if isinstance(guess, SpanPrediction)
    }
    write_atomically(path, json.dumps(odds))


def details(guess: Prediction) -> dict[str, object]:
    """Return the extra fields of a kind of answer in predictions.jsonl."""
    if isinstance(guess, SpanPrediction):
        return {"no_answer_margin": guess.margin, "n_best": guess.n_best}
    if isinstance(guess, ChoicePrediction):
        return {"shares": guess.shares}
    if isinstance(guess, TagPrediction):
        return {"scores": [round(score, DIGITS) for score in guess.scores]}
    if isinstance(guess, LabelsPrediction):
        return {"scores": {label: round(score, DIGITS) for label, score in guess.scores.items()}}
    return {}


def _glue(guesses: Sequence[Prediction]) -> str:
    """Return GLUE's format: rows from 0; numbers with three decimals; commas between labels."""
    rows = [f"{number}\t{_cell(guess.answer)}" for number, guess in enumerate(guesses)]
    return "\n".join(["index\tprediction", *rows, ""])


def _cell(answer: Gold) -> str:
    if isinstance(answer, float):
        return f"{answer:.3f}"
    return answer if isinstance(answer, str) else ",".join(answer)


def _conll(examples: Sequence[Example], guesses: Sequence[Prediction]) -> str:
    sentences = []
    for example, guess in zip(examples, guesses, strict=True):
        assert isinstance(guess.answer, tuple)
        pairs = zip(example.texts, guess.answer, strict=True)
        sentences.append("".join(f"{word}\t{tag}\n" for word, tag in pairs))
    return "\n".join(sentences)
