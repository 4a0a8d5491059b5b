"""Predictions in the files that others score: GLUE's leaderboard, conlleval, SQuAD's scripts."""

import json
from collections.abc import Sequence
from pathlib import Path

from data_prep.files import write_atomically
from pipeline.tasks.answers import Prediction
from pipeline.tasks.examples import Example
from pipeline.tasks.span_answers import SpanPrediction


def write_answers(
    folder: Path, name: str, kind: str, examples: Sequence[Example], guesses: Sequence[Prediction]
) -> None:
    """One file of answers to a file of examples, in the form that fits the task's kind."""
    folder.mkdir(exist_ok=True)
    if kind == "tag":
        write_atomically(folder / f"{name}.conll", _conll(examples, guesses))
    elif kind == "span":
        write_spans(folder / f"{name}.json", examples, guesses)
    else:
        write_atomically(folder / f"{name}.tsv", _glue(guesses))


def write_spans(path: Path, examples: Sequence[Example], guesses: Sequence[Prediction]) -> None:
    """SQuAD's: an object of answers by question; the empty answer where there is none."""
    answers = {e.id: guess.answer for e, guess in zip(examples, guesses, strict=True)}
    write_atomically(path, json.dumps(answers, ensure_ascii=False))


def write_null_odds(path: Path, examples: Sequence[Example], guesses: Sequence[Prediction]) -> None:
    """What SQuAD 2.0's script takes as --na-prob-file, to find its own best threshold."""
    odds = {
        example.id: guess.margin
        for example, guess in zip(examples, guesses, strict=True)
        if isinstance(guess, SpanPrediction)
    }
    write_atomically(path, json.dumps(odds))


def span_details(guess: Prediction) -> dict[str, object]:
    """What predictions.jsonl says of a span beyond its answer."""
    if not isinstance(guess, SpanPrediction):
        return {}
    return {"no_answer_margin": guess.margin, "n_best": guess.n_best}


def _glue(guesses: Sequence[Prediction]) -> str:
    """GLUE's: rows by number from 0; numbers of a regression with three decimals."""
    answers = [
        f"{guess.answer:.3f}" if isinstance(guess.answer, float) else guess.answer
        for guess in guesses
    ]
    rows = [f"{number}\t{answer}" for number, answer in enumerate(answers)]
    return "\n".join(["index\tprediction", *rows, ""])


def _conll(examples: Sequence[Example], guesses: Sequence[Prediction]) -> str:
    sentences = []
    for example, guess in zip(examples, guesses, strict=True):
        assert isinstance(guess.answer, tuple)
        pairs = zip(example.texts, guess.answer, strict=True)
        sentences.append("".join(f"{word}\t{tag}\n" for word, tag in pairs))
    return "\n".join(sentences)
