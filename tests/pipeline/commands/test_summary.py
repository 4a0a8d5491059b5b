"""Scores over seeds: means, deviations, settings that differ, and what random weights reach."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest
from rich.console import Console

from pipeline.tasks.config import TaskConfig
from pipeline.tasks.summary import LABELS, Gain, Score, gains, scores_table, summarise
from tests.pipeline.reported import SampleRun


def files(run: SampleRun) -> list[Path]:
    return [path / "scores.json" for path in run.inputs.values()]


def test_seeds_are_taken_together(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    for seed in (1, 2, 3):
        run.write_finetuning("polarity", "pretrain", seed)
    [score] = summarise(files(run))
    values = (0.716, 0.72, 0.724)
    assert score.values == pytest.approx(values)
    assert score.mean == pytest.approx(fmean(values))
    assert score.deviation == pytest.approx(stdev(values))
    assert (score.train_examples, score.test_examples) == (400, 2_000)
    assert score.variant == ""


def test_settings_that_differ_keep_scores_apart(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    for lr in (2e-5, 5e-5):
        for seed in (1, 2):
            run.write_finetuning("polarity", "pretrain", seed, lr=lr)
    scores = summarise(files(run))
    assert [score.variant for score in scores] == ["finetune.lr=2e-05", "finetune.lr=5e-05"]
    assert all(len(score.values) == 2 for score in scores)


def test_encoders_of_one_name_are_not_seeds_of_each_other(tmp_path: Path) -> None:
    """`encoder=a/mnli,b/mnli`, or a sweep over pretraining: one seed each, and one was dropped."""
    run = SampleRun(tmp_path)
    made = [run.write_finetuning("polarity", "mnli", seed) for seed in (1, 2, 3, 4)]
    for output, (number, seed) in zip(made, ((1, 1), (1, 2), (2, 1), (2, 2)), strict=True):
        manifest = json.loads((output.path / "manifest.json").read_text())
        manifest["upstream"] = {"encoder": f"model/{number}{0:015}"}
        (output.path / "manifest.json").write_text(json.dumps(manifest))
        scores = json.loads((output.path / "scores.json").read_text())
        (output.path / "scores.json").write_text(json.dumps(scores | {"seed": seed}))
    scores = summarise(files(run))
    assert [(score.encoder, score.seeds) for score in scores] == [
        ("mnli (10000000)", (1, 2)), ("mnli (20000000)", (1, 2)),
    ]  # fmt: skip


def test_labels_tell_scores_apart_and_a_seed_counts_once(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    made = [run.write_finetuning("polarity", "pretrain", 1, labels=n) for n in (40, 400)]
    run.config = replace(run.config, task=replace(run.config.task, train_examples=400))
    made.append(run.write_finetuning("polarity", "pretrain", 1))  # as many, by another limit
    scores = summarise([output.path / "scores.json" for output in made], unnamed=LABELS)
    assert [(score.train_examples, len(score.values)) for score in scores] == [(40, 1), (400, 1)]
    assert {score.variant for score in scores} == {""}


def test_an_encoder_that_a_run_calls_by_two_names_is_one(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    made = [
        run.write_finetuning("polarity", encoder, seed)
        for seed, encoder in enumerate(("pretrain", "sample", "other"), 1)
    ]
    for output, upstream in zip(made, ("export/a", "export/a", "export/b"), strict=True):
        manifest = output.manifest() | {"upstream": {"encoder": upstream}}
        (output.path / "manifest.json").write_text(json.dumps(manifest))
    scores = summarise([output.path / "scores.json" for output in made])
    assert [(score.encoder, len(score.values)) for score in scores] == [
        ("pretrain", 2),
        ("other", 1),
    ]


def test_what_is_scored_and_other_metrics_are_kept(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    for seed in (1, 2):
        run.write_finetuning("polarity", "pretrain", seed)
    run.write_finetuning("mentions", "pretrain", 2, test="test.conll")
    scores = summarise(files(run))
    assert [score.split for score in scores] == ["part of train", "test"]
    assert dict(scores[0].others) == {"matthews": pytest.approx(0.618)}


def test_equal_encoders_of_two_runs_stay_apart(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    run.write_finetuning("polarity", "pretrain", 1)
    both = files(run) * 2
    assert len(summarise(both)) == 1
    assert [score.run for score in summarise(both, ["a", "b"])] == ["a", "b"]


def test_encoders_of_a_task_stand_together(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    for encoder in ("pretrain", "random"):
        for task in ("polarity", "mentions"):
            run.write_finetuning(task, encoder, 1)
    told = [(score.task, score.encoder) for score in summarise(files(run))]
    assert told == [
        ("polarity", "pretrain"), ("polarity", "random"),
        ("mentions", "pretrain"), ("mentions", "random"),
    ]  # fmt: skip


def score(*values: float, encoder: str = "pretrain", variant: str = "") -> Score:
    return Score("t", "accuracy", encoder, values, variant, recipe=variant, origin="bert")


def test_verdicts_are_those_of_the_test_over_seeds() -> None:
    low, high = (0.60, 0.62, 0.61), (0.70, 0.72, 0.71)
    gains = [
        Gain(score(*high), score(*low, encoder="random")),
        Gain(score(*low), score(*high, encoder="random")),
        Gain(score(*low), score(0.66, 0.62, 0.60, encoder="random")),
        Gain(score(0.90, 0.91), score(0.10, 0.11, encoder="random")),
    ]
    assert [gain.verdict for gain in gains] == [
        "clearly ahead", "clearly behind", "cannot tell", "too few seeds",
    ]  # fmt: skip
    assert gains[0].difference == pytest.approx(0.1)


def test_scores_know_their_seeds_and_development_scores(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    for seed in (3, 1):
        run.write_finetuning("polarity", "pretrain", seed)
    [found] = summarise(files(run))
    assert found.seeds == (3, 1) and found.sample.resolution == 1 / 2_000
    assert found.dev_mean == pytest.approx(found.mean + 0.02)
    path = files(run)[0]  # as earlier versions wrote it, the last one for a suite
    content = json.loads(path.read_text())
    for removed, expected in (("dev_score", pytest.approx(found.dev_mean)), ("dev_scores", None)):
        del content[removed]
        path.write_text(json.dumps(content))
        assert summarise(files(run))[0].dev_mean == expected


def test_the_table_says_where_the_epoch_was_chosen_on_the_scored_set(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    console = Console(width=200)
    said = []
    for dev in (None, "dev.tsv"):
        run.config = replace(run.config, task=replace(run.config.task, dev=dev))
        output = run.write_finetuning("polarity", "pretrain", 1)
        with console.capture() as captured:
            console.print(scores_table([output.path]))
        said.append("chosen on the set that is scored" in " ".join(captured.get().split()))
    assert said == [False, True]


def test_the_table_is_headed_by_the_split_that_was_scored(tmp_path: Path) -> None:
    """Scores of a development set stood under "Scores on the test sets"."""
    run = SampleRun(tmp_path)
    outputs, titles = [], []
    for files in ({"dev": "dev.tsv"}, {"test": "test.tsv"}, {}):
        run.config = replace(run.config, task=TaskConfig(**files))
        test = files.get("test")
        outputs.append(run.write_finetuning("polarity", "pretrain", len(outputs), test=test))
        table = scores_table([outputs[-1].path])
        titles.append(table.title)
        assert "scored on" not in [column.header for column in table.columns]
    assert titles == [
        "Scores on the development sets", "Scores on the test sets",
        "Scores on held-out parts of the training files",
    ]  # fmt: skip
    console = Console(width=200)
    with console.capture() as captured:
        console.print(scores_table([outputs[0].path]))
    assert "test" not in captured.get()
    table = scores_table([output.path for output in outputs])
    assert table.title == "Scores"
    [column] = [column for column in table.columns if column.header == "scored on"]
    assert list(column.cells) == ["dev", "test", "part of train"]


def test_gains_compare_only_like_with_like() -> None:
    trained, other = score(0.7, 0.8), score(0.7, 0.8, variant="finetune.lr=1")
    random = score(0.5, 0.5, encoder="random")
    assert gains([trained, other, random]) == {trained: Gain(trained, random)}


def test_random_weights_are_the_baseline_of_their_own_twin_only(tmp_path: Path) -> None:
    """`encoder=mine,other,random:mine,random:other`: twins of two tokenizers were taken for one,
    and `other` was said to be clearly ahead of the twin of `mine`."""
    run = SampleRun(tmp_path)
    made = []
    levels = (("mine", 0.80, 0.50), ("other", 0.70, 0.75))
    for tokenizer, (encoder, trained, random) in enumerate(levels):
        run.tokenizer = str(tokenizer)
        for seed in (1, 2, 3):
            for name, level in ((encoder, trained), ("random", random)):
                value = level + 0.001 * seed
                made.append(run.write_finetuning("polarity", name, seed, more={"score": value}))
    scores = summarise([output.path / "scores.json" for output in made])
    assert [score.encoder for score in scores] == [
        "mine", "random:mine", "other", "random:other",
    ]  # fmt: skip
    assert [len(score.values) for score in scores] == [3, 3, 3, 3]
    assert [score.is_random for score in scores] == [False, True, False, True]
    beside = gains(scores)
    told = {score.encoder: (gain.difference, gain.verdict) for score, gain in beside.items()}
    assert told == {
        "mine": (pytest.approx(0.30), "clearly ahead"),
        "other": (pytest.approx(-0.05), "clearly behind"),
    }


def test_no_gain_is_claimed_over_random_weights_of_another_encoder(tmp_path: Path) -> None:
    """Of a folder or a baseline no twin is known, and `other` has one that was not scored."""
    run = SampleRun(tmp_path)
    made = [run.write_finetuning("polarity", name, 1) for name in ("tfidf", "pretrain")]
    manifest = made[1].manifest() | {"upstream": {"encoder": "folder/0000000000000001"}}
    (made[1].path / "manifest.json").write_text(json.dumps(manifest))
    made.append(run.write_finetuning("polarity", "random", 1))
    run.tokenizer = "2"
    made.append(run.write_finetuning("polarity", "other", 1))
    assert gains(summarise([output.path / "scores.json" for output in made])) == {}


def test_the_scores_table_says_what_pretraining_brought(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    outputs = [
        run.write_finetuning("polarity", encoder, seed)
        for encoder in ("pretrain", "random")
        for seed in (1, 2, 3)
    ]
    console = Console(width=120)
    with console.capture() as captured:
        console.print(scores_table([output.path for output in outputs]))
    text = captured.get()
    assert "+11.0 (clearly ahead)" in " ".join(text.split())
    assert "t-test over at least 3 seeds" in " ".join(text.split())
    assert "72.0" in text and "61.0" in text


def test_random_encoders_of_two_architectures_are_not_one(tmp_path: Path) -> None:
    """Only that of the trained model is its twin."""
    run = SampleRun(tmp_path)
    made = [
        run.write_finetuning("polarity", "pretrain", 1),
        run.write_finetuning("polarity", "random", 1),
    ]
    assert len(gains(summarise([output.path / "scores.json" for output in made]))) == 1
    run.config = replace(run.config, model=replace(run.config.model, layers=7))
    made.append(run.write_finetuning("polarity", "random", 1, lr=1.0))
    path = made[-1].path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["config"]["finetune"] = made[0].manifest()["config"]["finetune"]
    path.write_text(json.dumps(manifest))
    scores = summarise([output.path / "scores.json" for output in made])
    assert [score.variant for score in scores] == ["", "model.layers=2", "model.layers=7"]
    assert gains(scores) == {scores[0]: Gain(scores[0], scores[1])}


def test_lists_in_settings_are_counted_not_shown(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    for pages in (["Canary One"], ["Canary Two", "Canary Three"]):
        run.config = replace(run.config, task=replace(run.config.task, test_documents=pages))
        run.write_finetuning("mentions", "pretrain", len(pages))
    assert [score.variant for score in summarise(files(run))] == [
        "task.test_documents=(1 given)",
        "task.test_documents=(2 given)",
    ]
