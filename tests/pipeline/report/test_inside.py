"""Inside the fine-tunings: curves, epochs, mixes, types, calibration, errors and kept models."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.special import expit, softmax

from pipeline.config.schema import Config
from pipeline.pages.blocks import Examples, Note, Section, Table
from pipeline.report.calibration import SMALLEST, calibration_error, calibration_groups
from pipeline.report.collect import collect
from pipeline.report.errors import LONGEST, SHOWN, sample_errors
from pipeline.report.inside import inside_section
from pipeline.report.kept import kept_table
from pipeline.report.page import make_page
from pipeline.report.predictions import DECISIONS, RIGHT, Judged, decisions, judged_predictions
from pipeline.report.tasks import read_scores
from pipeline.tasks.answers import Answers, TagAnswers
from pipeline.tasks.batches import TaskData
from pipeline.tasks.config import METRICS, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.multilabel_answers import MultilabelAnswers
from pipeline.tasks.submission import details
from tests.pipeline.reported import SampleRun


def section(run: SampleRun, share_text: bool = False) -> Section:
    collected = collect(run.inputs)
    found = inside_section(read_scores(collected), collected, share_text)
    assert found is not None
    return found


def table(found: Section, caption: str) -> list[list[str]]:
    [one] = [b for b in found.blocks if isinstance(b, Table) and b.caption.startswith(caption)]
    return [[column.name for column in one.columns], *map(list, one.rows)]


def judged(confidence: float, is_right: bool, **more: Any) -> Judged:
    return Judged(**{"inputs": ["x"], "gold": "a", "prediction": "b", **more},
                  confidence=confidence, is_right=is_right)  # fmt: skip


def test_epochs_cuts_and_repairs_are_shown_by_encoder(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    repairs = {"tags": 12, "dropped": 1}
    for seed, best in ((1, 2), (2, 3)):
        more = {"best_epoch": best, "cut_inputs": 1_234, "repairs": repairs}
        run.write_finetuning("mentions", "pretrain", seed, more=more)
        run.write_finetuning("mentions", "random", seed)
    found = section(run)
    headings, trained, random = table(found, "mentions: training")
    assert headings[2:] == [
        "chosen evaluation", "evaluations", "inputs cut", "repairs of the files",
    ]  # fmt: skip
    assert trained == ["pretrain", "1, 2", "2, 3", "3", "1,234", "dropped 1, tags 12"]
    assert random == ["random weights", "1, 2", "2, 2", "3", "0", "0"]
    [figure] = [figure for figure in found.figures if figure.name == "dev-1"]
    assert figure.svg.count("mark-line") == 4  # a line per encoder and seed
    assert figure.svg.count(">pretrain<") == 1  # and one entry of the legend per encoder
    assert [figure.svg.count(f">{epoch}<") for epoch in (1, 2, 3)] == [1, 1, 1]  # ticks


def test_a_baseline_without_epochs_has_no_curve(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    run.write_finetuning("polarity", "tfidf", 1, more={"steps": 0})
    assert not [f for f in section(run).figures if f.name.startswith("dev")]


def test_mixes_are_means_over_seeds(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    for seed, weights in ((1, [0.2, 0.8]), (2, [0.4, 0.6])):
        more = {"mix": {"weights": weights, "gamma": 1.0 + seed}}
        run.write_finetuning("mentions", "pretrain", seed, more=more)
    rows = table(section(run), "mentions: learned mix of layers")[1:]
    assert rows == [["γ", "2.500"], ["embeddings", "0.300"], ["1", "0.700"]]


@pytest.mark.parametrize("share_text", [False, True])
def test_types_are_named_only_where_text_is_shared(tmp_path: Path, share_text: bool) -> None:
    run = SampleRun(tmp_path)
    for seed in (1, 2):
        run.write_finetuning("mentions", "pretrain", seed)
    found = section(run, share_text)
    rows = table(found, "mentions: by type")[1:]
    assert [row[0] for row in rows] == (["no", "yes"] if share_text else ["type 1", "type 2"])
    assert rows[0][1:] == ["48.0", "60.0", "30.0", "31", "28"]  # of the better seed
    said = [block.text for block in found.blocks if isinstance(block, Note)]
    assert said[0].endswith("the best of mentions by development score, pretrain · seed 2.")
    errors = [block for block in found.blocks if isinstance(block, Examples)]
    assert len(errors) == int(share_text)


def test_questions_with_and_without_an_answer_are_scored_apart(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    parts = {
        "f1": 0.7, "exact_match": 0.6, "f1_answerable": 0.5, "exact_match_answerable": 0.4,
        "f1_unanswerable": 0.9, "exact_match_unanswerable": 0.9,
    }  # fmt: skip
    run.config = replace(run.config, task=replace(run.config.task, unanswerable=True))
    more = {"metric": "f1", "score": 0.7, "scores": parts, "kind": "span"}
    output = run.write_finetuning("squad2", "pretrain", 1, more=more)
    answers = [
        {"inputs": ["Who?", "A passage."], "gold": gold, "prediction": guess, "confidence": 0.9,
         "no_answer_margin": 0.0, "n_best": []}
        for gold, guess in ((["The cat"], "cat"), (["a dog"], "cat"), ([], "cat"))
    ]  # fmt: skip
    (output.path / "predictions.jsonl").write_text("".join(json.dumps(a) + "\n" for a in answers))
    found = section(run, share_text=True)
    rows = table(found, "squad2: questions with and without an answer")[1:]
    assert rows == [
        ["pretrain · all questions", "60.0", "70.0"],
        ["pretrain · with an answer", "40.0", "50.0"],
        ["pretrain · without one", "90.0", "90.0"],
    ]
    [made] = collect(run.inputs).of("finetune")
    assert [each.is_right for each in judged_predictions(made)] == [True, False, False]
    [errors] = [block for block in found.blocks if isinstance(block, Examples)]
    assert errors.examples[1].title == "gold: no answer; predicted: cat; confidence 90.0"
    assert "exact match answerable" not in make_page(collect(run.inputs), Config(name="x")).html


def test_calibration_is_right_for_predictions_that_know_how_sure_they_are() -> None:
    rng = np.random.default_rng(0)
    confidences = rng.uniform(0.5, 1.0, 20_000)
    drawn = rng.random(20_000)
    honest = [judged(float(c), bool(d < c)) for c, d in zip(confidences, drawn, strict=True)]
    boastful = [judged(float(c), bool(d < 0.5)) for c, d in zip(confidences, drawn, strict=True)]
    groups = calibration_groups(honest)
    assert [group.size for group in groups] == [2_000] * 10
    assert calibration_error(groups) < 0.015
    assert calibration_error(calibration_groups(boastful)) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("kind", ["tag", "multilabel"])
def test_a_calibrated_model_of_words_or_labels_looks_calibrated(kind: str, tmp_path: Path) -> None:
    """Gold answers are drawn from its probabilities. Judged by sentence, all words right against
    the least certain word's probability, the error of such a tagger was 50 points."""
    rng = np.random.default_rng(0)
    labels = ["O", "B-X", "I-X"]
    logits = rng.normal(0, 1.5, (20_000, 3)).astype(np.float32)
    if kind == "tag":
        answers: Answers = TagAnswers(labels)
        chances = softmax(logits, 1)
        drawn = (chances.cumsum(1) < rng.random((len(chances), 1))).sum(1).clip(max=2)
        sizes = [20] * 1_000
        ends = np.cumsum(sizes)
        golds = [[labels[n] for n in drawn[end - 20 : end]] for end in ends]
    else:
        answers = MultilabelAnswers(TaskConfig(kind="multilabel"), labels, threshold=0.4)
        drawn = rng.random(logits.shape) < expit(logits)
        golds = [[labels[c] for c in np.flatnonzero(row)] for row in drawn]
    examples = [Example(("w",) * (20 if kind == "tag" else 1), tuple(g), "", 0) for g in golds]
    data = SimpleNamespace(examples=examples)
    guesses = answers.decode(logits, cast(TaskData, data))
    run = SampleRun(tmp_path)
    output = run.write_finetuning("toy", "pretrain", 1, more={"kind": kind})
    with (output.path / "predictions.jsonl").open("w") as stream:
        for example, guess in zip(examples, guesses, strict=True):
            line = {"inputs": example.texts, "gold": example.gold, "prediction": guess.answer,
                    "confidence": guess.confidence, **details(guess)}  # fmt: skip
            stream.write(json.dumps(line) + "\n")
    [made] = collect(run.inputs).of("finetune")
    predictions = judged_predictions(made)
    judged_alone = decisions(kind, predictions)
    assert judged_alone is not None and len(judged_alone) == 20_000 * (1 if kind == "tag" else 3)
    assert calibration_error(calibration_groups(judged_alone)) < 0.02
    as_before = calibration_error(calibration_groups(predictions))
    assert as_before > (0.3 if kind == "tag" else 0.1)
    rows = table(section(run), "toy: calibration, expected calibration error")
    assert rows[0][0] == DECISIONS[kind]


def test_calibration_of_an_older_tagger_is_left_out_and_the_page_says_so(tmp_path: Path) -> None:
    """Its predictions have no probabilities of words."""
    run = SampleRun(tmp_path)
    output = run.write_finetuning("mentions", "pretrain", 1)
    path = output.path / "predictions.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        del line["scores"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = section(run)
    said = [block.text for block in found.blocks if isinstance(block, Note)]
    assert any("mentions: calibration is left out" in text for text in said)
    assert not [figure for figure in found.figures if figure.name.startswith("calibration")]


def test_few_predictions_make_few_groups() -> None:
    """In groups of six, chance alone gives a perfectly calibrated model an error of 15 points."""
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(200):
        confidences, drawn = rng.uniform(0.5, 1.0, 64), rng.random(64)
        honest = [judged(float(c), bool(d < c)) for c, d in zip(confidences, drawn, strict=True)]
        groups = calibration_groups(honest)
        assert min(group.size for group in groups) >= SMALLEST
        errors.append(calibration_error(groups))
    assert np.mean(errors) < 0.08
    assert [group.size for group in calibration_groups(honest[:5])] == [5]


def test_equal_confidences_stay_in_one_group() -> None:
    """The majority baseline is as sure of every answer as of any other."""
    constant = [judged(0.7, number % 10 < 7) for number in range(100)]
    [group] = calibration_groups(constant)
    assert (group.size, group.accuracy) == (100, 0.7)
    assert calibration_error([group]) == pytest.approx(0.0)


def test_the_table_of_calibration_is_that_of_the_predictions(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    run.write_finetuning("polarity", "pretrain", 1)
    found = section(run)
    rows = table(found, "polarity: calibration, expected calibration error")[1:]
    assert [row[0] for row in rows] == ["34", "33", "33"]
    assert rows[0][1] == "58.2"  # the mean of 0.5, 0.505, …, 0.665, which is 58.25
    assert {row[2] for row in rows} <= {"73.5", "75.8"}
    assert "calibration-1" in [figure.name for figure in found.figures]


def test_errors_are_few_short_and_the_most_confident_first() -> None:
    every = [judged(n / 100, n % 2 == 0, inputs=["word " * 200]) for n in range(50)]
    shown = sample_errors("classify", every)
    assert len(shown) == SHOWN
    assert [error.title for error in shown[:2]] == [
        "gold: a; predicted: b; confidence 49.0", "gold: a; predicted: b; confidence 47.0",
    ]  # fmt: skip
    assert max(len(piece.text) for error in shown for piece in error.pieces) == LONGEST
    assert sample_errors("classify", [judged(0.9, True)]) == []


def test_wrong_words_of_a_sentence_stand_with_both_tags() -> None:
    wrong = judged(0.8, False, inputs=["Ann", "ran"], gold=["B-X", "O"], prediction=["O", "O"])
    [error] = sample_errors("tag", [wrong])
    assert [piece.text for piece in error.pieces] == ["Ann [gold B-X, predicted O]", "ran"]
    long = judged(0.8, False, inputs=["w"] * 900, gold=["O"] * 900, prediction=["B-X"] * 900)
    [error] = sample_errors("tag", [long])
    assert len("".join(piece.text for piece in error.pieces)) <= LONGEST


def test_every_kind_of_task_is_judged_or_has_numbers() -> None:
    assert {*RIGHT, "regress"} == set(METRICS)


def test_labels_of_a_text_are_right_only_together(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    more = {"kind": "multilabel", "metric": "micro_f1", "scores": {"micro_f1": 0.5}}
    output = run.write_finetuning("topics", "pretrain", 1, more=more)
    guesses = [(["a", "b"], ["b", "a"]), (["a"], ["a", "b"]), ([], ["a"])]
    lines = [
        {"inputs": ["x"], "gold": gold, "prediction": guess, "confidence": 0.7}
        for gold, guess in guesses
    ]
    (output.path / "predictions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    [made] = collect(run.inputs).of("finetune")
    predictions = judged_predictions(made)
    assert [each.is_right for each in predictions] == [True, False, False]
    assert [error.title for error in sample_errors("multilabel", predictions)] == [
        "gold: a; predicted: a, b; confidence 70.0",
        "gold: without label; predicted: a; confidence 70.0",
    ]


def test_a_wrong_choice_stands_with_the_question_and_all_choices() -> None:
    wrong = judged(0.6, False, inputs=["He sat", "down.", "up."], gold="0", prediction="1")
    [error] = sample_errors("choice", [wrong])
    assert error.title == "gold: 0; predicted: 1; confidence 60.0"
    assert [piece.text for piece in error.pieces] == ["He sat", "down.", "up."]


def test_kept_models_stand_with_their_form_and_the_command_that_uses_them(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    run.write_finetuning("mentions", "pretrain", 2)
    run.write_model("mentions")
    page = make_page(collect(run.inputs), Config(name="x"))
    [kept] = [
        block for section in page.sections for block in section.blocks
        if isinstance(block, Table) and block.caption.startswith("Models kept")
    ]  # fmt: skip
    assert kept.rows == [["mentions", "pretrain", "2", "60.0", "45.0", "Sesame's own"]]
    assert "sesame predict model=sample/mentions input=&lt;file&gt;" in page.html
    run.write_model("mentions", "BertForTokenClassification")  # of another sweep point
    html = make_page(collect(run.inputs), Config(name="x")).html
    assert "transformers, BertForTokenClassification" in html
    models = [output for output in run.inputs.values() if "/model/" in str(output)]
    assert len(models) == 2
    for output in models:
        assert f"sesame predict model={output.name} input=" in html


def test_kept_models_are_headed_by_the_split_that_was_scored(tmp_path: Path) -> None:
    """Of a task with a development file only, the second column repeated it as "test"."""
    run = SampleRun(tmp_path)
    run.write_model("mentions", split="dev")
    kept = kept_table(collect(run.inputs))
    assert kept is not None
    assert [column.name for column in kept.columns] == [
        "task", "encoder", "seed", "development", "form",
    ]  # fmt: skip
    assert kept.rows[0][3] == "45.0"
    run.write_model("other")
    kept = kept_table(collect(run.inputs))
    assert kept is not None and [column.name for column in kept.columns][3:5] == [
        "development", "test",
    ]  # fmt: skip
    assert [row[3:5] for row in kept.rows] == [["45.0", "–"], ["60.0", "45.0"]]


def test_results_come_before_settings(tmp_path: Path) -> None:
    run = SampleRun(tmp_path).write_all()
    anchors = [section.anchor for section in make_page(collect(run.inputs), Config()).sections]
    assert anchors == [
        "tasks", "inside", "training", "corpus", "tokenizer", "examples", "run", "next",
    ]  # fmt: skip
