"""Spans: windows carry the gold answer rightly, the best span is found, and it can be learnt."""

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.reading.untrusted import read_object
from data_prep.text import words
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline.encoders import BertEncoder, Encoder, random_encoder
from pipeline.models.bert.config import BertConfig
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.span_answers import SpanAnswers, SpanPrediction, best_spans
from pipeline.tasks.span_windows import SpanData, encode_spans
from pipeline.tasks.splits import Splits
from pipeline.tasks.submission import write_null_odds, write_spans

LETTERS = "abcdefghij"
VOCABULARY = [*Specials().names(), *LETTERS, *(f"##{c}" for c in LETTERS), ".", ",", "?", "(", ")"]
MODEL = BertConfig(
    layers=2, hidden=32, heads=2, intermediate=64, max_positions=32, dropout=0.0,
    attention_dropout=0.0,
)  # fmt: skip
TASK = TaskConfig(name="toy", kind="span", reader="squad", metric="f1", stride=6, max_answer=4)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = tmp_path_factory.mktemp("tokenizer")
    library = from_vocabulary(VOCABULARY, lowercase=True, strip_accents=False, specials=Specials())
    write_folder(folder, library, Specials(), None)
    return random_encoder(MODEL, folder, seed=0)


def asked(question: str, passage: str, *answers: str, id: str = "") -> Example:
    start = passage.index(answers[0]) if answers else None
    return Example((question, passage), answers, "", 0, id, start)


def pieces(encoder: Encoder, data: SpanData) -> list[str]:
    assert isinstance(encoder, BertEncoder)
    parts = np.split(data.inputs.tokens, data.inputs.offsets[1:-1])
    return [" ".join(encoder.tokenizer.piece(token) for token in part) for part in parts]


def test_a_passage_of_many_questions_is_cut_into_words_once(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[str] = []

    def counted(text: str, rule: str) -> Any:
        cut.append(text)
        return split(text, rule)

    split = words._split
    monkeypatch.setattr(words, "_split", counted)
    examples = [asked(question, "ab c.", "c") for question in ("a?", "b?", "c?")]
    encode_spans(encoder, examples, TASK, max_length=13)
    assert sorted(cut) == ["a?", "ab c.", "b?", "c?"]


def test_windows_overlap_and_mark_where_the_answer_is(encoder: Encoder) -> None:
    example = asked("a?", "ab c (de, f) g hi j.", "de, f")
    data = encode_spans(encoder, [example], replace(TASK, stride=4), max_length=13)
    assert pieces(encoder, data) == [
        "[CLS] a ? [SEP] a ##b c ( d ##e , f [SEP]",
        "[CLS] a ? [SEP] d ##e , f ) g h ##i [SEP]",
        "[CLS] a ? [SEP] ) g h ##i j . [SEP]",
    ]
    starts, ends = (np.flatnonzero(data.gold[:, side]) for side in (0, 1))
    origins = data.inputs.offsets[:-1]
    assert (starts - origins).tolist() == [8, 4, 0]  # the last window has no answer: [CLS]
    assert (ends - origins).tolist() == [11, 7, 0]


def test_windows_have_the_pieces_of_the_whole_text(encoder: Encoder) -> None:
    texts = ("ab (c)?", "a bc, d.(ef) ghi\u00a0j jj")
    data = encode_spans(encoder, [Example(texts, ("a",), "", 0, "", 0)], TASK, max_length=32)
    whole = encoder.encode_texts([texts], max_length=32)
    assert data.inputs.tokens.tolist() == whole.tokens.tolist()
    assert data.inputs.second.tolist() == whole.second.tolist()


def test_the_gold_span_leads_back_to_its_characters(encoder: Encoder) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        words = ["".join(rng.choice(list(LETTERS), rng.integers(1, 4))) for _ in range(12)]
        passage = " ".join(words)
        first = int(rng.integers(10))
        answer = " ".join(words[first : first + 2])
        start = len(" ".join(words[:first])) + (first > 0)
        example = Example(("a?", passage), (answer,), "", 0, "", start)
        data = encode_spans(encoder, [example], TASK, max_length=20)
        found = 0
        for window in data.windows:
            marked = [np.flatnonzero(data.gold[window.units, side]) for side in (0, 1)]
            if all(len(places) for places in marked):
                (one,), (other,) = marked
                characters = window.characters[one, 0], window.characters[other, 1]
                assert passage[slice(*characters)] == answer
                found += 1
        assert found >= 1


def decoded(
    outputs: np.ndarray, data: SpanData, task: TaskConfig = TASK, threshold: float = 0.0
) -> list[SpanPrediction]:
    guesses = SpanAnswers(task, threshold).decode(outputs.astype(np.float32), data)
    assert all(isinstance(guess, SpanPrediction) for guess in guesses)
    return guesses  # type: ignore[return-value]


def test_the_best_span_of_all_windows_is_found(encoder: Encoder) -> None:
    examples = [asked("a?", "b c d e f g h i j a b c"), asked("b c?", "d e f")]
    data = encode_spans(encoder, examples, TASK, max_length=12)
    outputs = np.random.default_rng(0).normal(size=data.gold.shape)
    for number, guess in enumerate(decoded(outputs, data)):
        spans: dict[str, float] = {}  # every span of every window, one by one
        for window in (w for w in data.windows if w.example == number):
            for first, (unit, (begin, _)) in enumerate(
                zip(window.units, window.characters, strict=True)
            ):
                for last in range(first, min(first + TASK.max_answer, len(window.units))):
                    span = (begin, window.characters[last, 1])
                    value = outputs[unit, 0] + outputs[window.units[last], 1]
                    spans[span] = max(value, spans.get(span, -np.inf))
        ranked = sorted(spans, key=lambda span: -spans[span])[:20]
        passage = examples[number].texts[1]
        assert [text for text, _ in guess.n_best] == [passage[slice(*span)] for span in ranked]
        weights = np.exp([spans[span] for span in ranked])
        assert np.allclose([p for _, p in guess.n_best], weights / weights.sum())
        assert guess.answer == guess.n_best[0][0]


def test_a_span_never_runs_past_its_window(encoder: Encoder) -> None:
    data = encode_spans(encoder, [asked("a?", "b")], TASK, max_length=12)
    outputs = np.zeros(data.gold.shape, np.float32)
    assert best_spans(outputs, data.windows[0], 4) == [((0, 1), 0.0)]


def test_empty_texts_are_answered(encoder: Encoder) -> None:
    examples = [Example(texts, None, "", 0) for texts in (("a?", ""), ("", "b c"), (" ", " "))]
    data = encode_spans(encoder, examples, TASK, max_length=12)
    answers = [guess.answer for guess in decoded(np.zeros(data.gold.shape), data)]
    assert len(answers) == 3 and answers[0] == answers[2] == ""


def test_an_answer_has_at_most_so_many_words(encoder: Encoder) -> None:
    data = encode_spans(encoder, [asked("a?", "abcdefg bc de fg")], TASK, max_length=32)
    [window] = data.windows
    assert len(window.units) == 13  # tokens, of four words
    outputs = np.zeros(data.gold.shape, np.float32)
    outputs[window.units[0], 0] = outputs[window.units[-1], 1] = 9.0
    assert max(value for _, value in best_spans(outputs, window, 4)) == 18.0
    assert max(value for _, value in best_spans(outputs, window, 3)) == 9.0


def test_no_answer_wins_by_the_threshold_that_the_development_set_gives(encoder: Encoder) -> None:
    task = replace(TASK, unanswerable=True)
    examples = [asked("a?", "b c", "b"), asked("a?", "c d"), asked("a?", "d e", "d")]
    data = encode_spans(encoder, examples, task, max_length=12)
    outputs = np.zeros(data.gold.shape, np.float32)
    for window, nothing in zip(data.windows, (3.0, 5.0, 1.0), strict=True):
        outputs[window.origin] = nothing / 2
        outputs[window.units[0]] = 1.0  # the first word, with 2 in all
    assert [g.margin for g in decoded(outputs, data, task)] == [1.0, 3.0, -1.0]
    assert [g.answer for g in decoded(outputs, data, task)] == ["", "", "d"]
    tuned = SpanAnswers(task).tuned(outputs, data)
    assert tuned.threshold == 1.0
    guesses = tuned.decode(outputs, data)
    assert [guess.answer for guess in guesses] == ["b", "", "d"]
    assert tuned.score(examples, guesses)["f1"] == 1.0
    assert SpanAnswers(TASK).tuned(outputs, data).threshold == 0.0  # 1.1 has none


def test_a_threshold_that_never_answers_can_be_stored(encoder: Encoder, tmp_path: Path) -> None:
    """It is the best one for a weak model of SQuAD 2.0, where half the questions have none."""
    task = replace(TASK, unanswerable=True)
    data = encode_spans(encoder, [asked("a?", "b c"), asked("a?", "c d")], task, max_length=12)
    tuned = SpanAnswers(task).tuned(np.zeros(data.gold.shape, np.float32), data)
    path = tmp_path / "fitted.json"
    path.write_text(json.dumps(tuned.fitted()))
    assert read_object(path) == tuned.fitted()
    outputs = np.zeros(data.gold.shape, np.float32)
    for window in data.windows:
        outputs[window.units[0]] = 1e6
    assert [guess.answer for guess in tuned.decode(outputs, data)] == ["", ""]


def toy(count: int, rng: np.random.Generator, unanswerable: bool) -> list[Example]:
    """The answer runs from h to j, somewhere in a passage of other words; some have none."""
    examples = []
    for number in range(count):
        words = [str(word) for word in rng.choice(list("abcdefg"), size=40)]
        at = int(rng.integers(35))
        answers = [] if unanswerable and number % 2 else [f"h, {words[at]} j"]
        passage = " ".join([*words[:at], *answers, *words[at + 1 :]])
        examples.append(asked("a?", passage, *answers, id=f"q{number}"))
    return examples


@pytest.mark.parametrize("unanswerable", [False, True])
def test_spans_can_be_learnt(encoder: Encoder, unanswerable: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts: Sequence[list[Example]] = [toy(n, rng, unanswerable) for n in (200, 40, 60)]
    task = replace(TASK, unanswerable=unanswerable, stride=10)
    config = FinetuneConfig(
        lr=5e-3, epochs=3, batch_size=16, max_seq_length=32, accelerator="cpu", dropout=0.0
    )
    outcome = finetune(deepcopy(encoder), Splits(*parts, []), task, config)
    assert outcome.scores["f1"] > 0.9
    assert len(outcome.predictions) == 60
    write_spans(tmp_path / "predictions.json", parts[2], outcome.predictions)
    written = json.loads((tmp_path / "predictions.json").read_text())
    right = [written[e.id] == (e.gold[0] if e.gold else "") for e in parts[2]]
    assert np.mean(right) == pytest.approx(outcome.scores["exact_match"])
    write_null_odds(tmp_path / "null_odds.json", parts[2], outcome.predictions)
    odds = json.loads((tmp_path / "null_odds.json").read_text())
    if unanswerable:  # some threshold parts the answered questions from the others
        answered = [odds[name] for name, answer in written.items() if answer]
        assert max(answered) < min(odds[name] for name, answer in written.items() if not answer)
