"""A page about two runs: curves over one another, settings that differ, scores beside papers'."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.schema import Config
from pipeline.pages.blocks import Note, Section, Table
from pipeline.report.chosen import chosen_finetunings
from pipeline.report.collect import collect
from pipeline.report.comparison import comparison_section
from pipeline.report.confusion import confusion_tables
from pipeline.report.curves import HOURS, MINUTES, STEPS, TOKENS, Journal, draw_curves, time_scale
from pipeline.report.layers import layers_section
from pipeline.report.learning import learning_section
from pipeline.report.page import make_page
from pipeline.report.tasks import BEST_ON_DEV, headline, read_scores, tasks_section
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.summary import CHOSEN_ON_DEV
from tests.pipeline.reported import CHOICES, SampleRun, write_two_runs


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> SampleRun:
    """Runs `left` and `right`."""
    return write_two_runs(tmp_path_factory.mktemp("two"))


def tables(section: Section | None) -> dict[str, dict[str, list[str]]]:
    """A section's tables by caption, their rows by first cell; headings stand under ""."""
    assert section is not None
    found = [block for block in section.blocks if isinstance(block, Table)]
    return {
        table.caption: {"": [column.name for column in table.columns]}
        | {row[0]: list(row[1:]) for row in table.rows}
        for table in found
    }


def test_curves_lie_over_one_another_by_tokens_and_by_time(two_runs: SampleRun) -> None:
    page = make_page(collect(two_runs.inputs), Config(name="x"))
    svgs = {figure.name: figure.svg for figure in page.figures}
    for name, x_title in (("mlm-loss", "tokens"), ("mlm-loss-by-time", "minutes")):
        for said in ("left · pretrain", "right · pretrain", f">{x_title}<"):
            assert said in svgs[name], (name, said)
    assert "lr-by-time" not in svgs  # a schedule is one of steps
    assert "Dashed: on held-out rows." in page.html


def test_a_curve_of_one_of_the_runs_says_whose_it_is(two_runs: SampleRun) -> None:
    journals = [Journal(made) for made in collect(two_runs.inputs).of("pretrain")]
    lines = [{"step": step, "forward_loss": 5.0 / step, "tokens": step} for step in (1, 2)]
    vars(journals[1])["metrics"] = lines  # as an ELMo beside a BERT
    svgs = {figure.name: figure.svg for figure in draw_curves(journals, TOKENS)}
    assert "right · pretrain" in svgs["forward-loss"]
    assert "left · pretrain" in svgs["mlm-loss"]


def test_steps_are_placed_by_what_the_journal_says(two_runs: SampleRun) -> None:
    journal = Journal(collect(two_runs.inputs).of("pretrain")[0])
    assert journal.places([0, 15, 300], STEPS) == [0, 15, 300]
    assert journal.places([0, 15, 300], TOKENS) == [0, 105_000, 2_100_000]
    assert journal.places([10, 300], HOURS) == pytest.approx([2.8 / 3600, 30 * 2.8 / 3600])


def test_time_is_told_in_hours_once_a_run_has_taken_one(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    run.write_pretraining("pretrain/short")
    run.seconds["pretrain"] = 3600.0
    run.write_pretraining("pretrain/long")
    short, long = (Journal(made) for made in collect(run.inputs).made)
    assert time_scale([short]) is MINUTES
    assert time_scale([short, long]) is HOURS


def test_only_settings_that_differ_are_told(two_runs: SampleRun) -> None:
    found = tables(comparison_section(collect(two_runs.inputs), share_text=False))
    assert found["Settings that differ"] == {
        "": ["key", "left", "right"],
        "trainer.max_steps": ["300", "500"],
    }
    beside = found["Side by side"]
    assert beside["steps"] == ["300", "500"]
    assert beside["tokens seen"] == ["2.1\u202fM", "3.5\u202fM"]
    assert beside["machine"] == ["x86_64, 2 cores"] * 2


def test_settings_of_a_stage_that_a_run_lacks_stand_apart(
    two_runs: SampleRun, tmp_path: Path
) -> None:
    run = SampleRun(tmp_path)
    run.write_shard()
    run.of_run("right", "shard")
    found = tables(comparison_section(collect(two_runs.inputs | run.inputs), share_text=False))
    assert list(found["Settings that differ"]) == ["", "trainer.max_steps"]
    assert found["Settings that not all runs have"]["corpus.fraction"] == ["–", "1.0"]


def test_one_run_is_compared_with_nothing(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    run.write_pretraining()
    assert comparison_section(collect(run.inputs), share_text=False) is None
    run.of_run("alone", "pretrain")
    alone = collect(run.inputs)
    assert comparison_section(alone, share_text=False) is None
    assert alone.runs == ["alone"] and [made.title for made in alone.made] == ["pretrain"]


def test_scores_of_runs_stand_side_by_side_and_beside_papers(two_runs: SampleRun) -> None:
    found = tables(tasks_section(read_scores(collect(two_runs.inputs)), {}, {}))
    assert found["All tasks"]["left · pretrain"] == ["69.8 ± 0.3", "47.8 ± 0.3"]
    assert found["All tasks"]["right · random weights"] == ["59.8 ± 0.3", "38.8 ± 0.3"]
    ours = found["sst2: accuracy"]["left · pretrain"]
    assert ours[:2] == ["69.8 ± 0.3", "+10.0"]
    assert ours[-2:] == ["400", "2,000 (part of train)"]
    assert found["mentions: entity F1"]["left · pretrain"][-1] == "2,000 (test)"
    papers = found["sst2: published"]
    assert papers[""] == ["model", "accuracy", "on", "source"]
    assert papers["BiLSTM over ELMo, attention"] == ["90.4", "test", "Devlin et al. 2019, table 1"]
    assert "mentions: published" not in found
    assert found["sst2: other scores"]["left · pretrain"] == ["59.8"]


@pytest.mark.parametrize("share_text", [False, True])
def test_guesses_name_labels_only_where_text_is_shared(tmp_path: Path, share_text: bool) -> None:
    run = SampleRun(tmp_path)
    for seed in (1, 3, 2):
        run.write_finetuning("polarity", "pretrain", seed)
        run.write_finetuning("polarity", "random", seed)
        run.write_finetuning("mentions", "pretrain", seed)  # tags, which have no matrix
    [(task, table)] = confusion_tables(collect(run.inputs), share_text).items()
    assert (task, table.caption) == ("polarity", "polarity: predictions of pretrain, seed 3")
    names = ["no", "yes"] if share_text else ["label 1", "label 2"]
    assert [row[0] for row in table.rows] == [column.name for column in table.columns[1:3]] == names
    assert [list(row[1:]) for row in table.rows] == [
        ["724", "276", "72.4\u202f%"], ["286", "714", "71.4\u202f%"],
    ]  # fmt: skip


def test_the_headline_is_chosen_on_the_development_set(tmp_path: Path) -> None:
    """In this sweep the test set prefers the first learning rate, the development set the other."""
    run = SampleRun(tmp_path)
    for lr, tested, developed in ((2e-5, 0.9, 0.6), (5e-5, 0.7, 0.8)):
        for seed in (1, 2, 3):
            more = {"score": tested + seed / 1000, "dev_score": developed + seed / 1000}
            run.write_finetuning("polarity", "pretrain", seed, lr=lr, test="t.tsv", more=more)
    collected = collect(run.inputs)
    facts = headline(read_scores(collected))
    assert facts is not None
    [fact] = facts.facts
    assert fact.value == "70.2 ± 0.1"
    assert fact.note == "accuracy; pretrain · finetune.lr=5e-05: the best of 2 by development score"
    [table] = confusion_tables(collected, share_text=False).values()
    assert table.caption == "polarity: predictions of pretrain, seed 3"
    [made] = chosen_finetunings(collected).values()
    assert made.config["finetune"]["lr"] == 5e-5


def test_the_headline_names_the_encoder_that_it_is_about(tmp_path: Path) -> None:
    """A floor may be ahead; its score must not pass for the trained encoder's."""
    run = SampleRun(tmp_path)
    run.write_finetuning("polarity", "pretrain", 1)
    run.write_finetuning("polarity", "tfidf", 1, more={"score": 0.9, "dev_score": 0.9})
    facts = headline(read_scores(collect(run.inputs)))
    assert facts is not None
    assert "tfidf: the best of 2 by development score" in facts.facts[0].note


def test_fine_tunings_of_earlier_formats_are_chosen_by_their_best_epoch(tmp_path: Path) -> None:
    """They have the development scores of all epochs and the number of the best one."""
    run = SampleRun(tmp_path)
    for seed, developed in ((1, 0.6), (2, 0.8)):
        more = {"dev_scores": [0.1, developed, 0.2], "score": 1.0 - developed}
        output = run.write_finetuning("polarity", "pretrain", seed, lr=seed * 1e-5, more=more)
        for path in (output.path / "scores.json", output.path / "manifest.json"):
            path.write_text(re.sub(r'"dev_score": [\d.]+, ?', "", path.read_text()))
    collected = collect(run.inputs)
    [made] = collected.made[1:]
    assert "dev_score" not in made.counts
    facts = headline(read_scores(collected))
    assert facts is not None and facts.facts[0].value == "20.0"
    assert chosen_finetunings(collected)["polarity"].counts["seed"] == 2


def test_no_score_is_called_the_best_without_a_development_score(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    for lr in (2e-5, 5e-5):
        run.write_finetuning("polarity", "pretrain", 1, lr=lr)
    scores = [replace(score, dev_values=()) for score in read_scores(collect(run.inputs))]
    facts = headline(scores)
    assert facts is not None
    assert facts.facts[0].note == "accuracy; pretrain · finetune.lr=2e-05: the first of 2"


def test_the_headline_says_where_it_was_chosen_on_the_scored_set(tmp_path: Path) -> None:
    """One evaluation leaves no choice of an epoch, but a sweep leaves one of its variants."""
    run = SampleRun(tmp_path)
    run.config = replace(run.config, task=replace(run.config.task, dev="dev.tsv"))
    run.write_finetuning("sst2", "pretrain", 1, lr=2e-5, more={"dev_scores": [0.8]})
    page = make_page(collect(run.inputs), Config(name="x")).html
    assert BEST_ON_DEV not in page
    run.write_finetuning("sst2", "pretrain", 1, lr=5e-5, more={"dev_scores": [0.7]})
    assert BEST_ON_DEV in make_page(collect(run.inputs), Config(name="x")).html
    run.inputs.clear()
    for lr in (2e-5, 5e-5):
        run.write_finetuning("sst2", "pretrain", 1, lr=lr, test="test.tsv")
    assert BEST_ON_DEV not in make_page(collect(run.inputs), Config(name="x")).html


def test_the_page_says_where_the_epoch_was_chosen_on_the_scored_set(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    run.config = replace(run.config, task=replace(run.config.task, dev="dev.tsv"))
    run.write_finetuning("sst2", "pretrain", 1)
    page = make_page(collect(run.inputs), Config(name="x")).html
    assert CHOSEN_ON_DEV in page
    assert "Scores on dev are too high" in page
    run.write_finetuning("sst2", "pretrain", 1, more={"dev_scores": [0.8]})  # no choice to make
    assert "too high" not in make_page(collect(run.inputs), Config(name="x")).html
    run.write_finetuning("sst2", "pretrain", 1, test="test.tsv")
    assert "too high" not in make_page(collect(run.inputs), Config(name="x")).html


def test_papers_on_our_split_stand_first(tmp_path: Path) -> None:
    run = SampleRun(tmp_path)
    run.write_finetuning("conll2003", "pretrain", 1, test="eng.testb")
    section = tasks_section(read_scores(collect(run.inputs)), {}, {})
    assert section is not None
    [table] = [b for b in section.blocks if isinstance(b, Table) and "published" in b.caption]
    assert [row[2] for row in table.rows] == ["test"] * 3 + ["dev"] * 3
    assert ["ELMo", "92.22 ± 0.10", "test", "Peters et al. 2018, table 1"] in table.rows


def test_learning_curves_have_a_line_for_each_encoder(two_runs: SampleRun) -> None:
    scores = read_scores(collect(two_runs.inputs))
    section = learning_section(scores)
    [(caption, rows)] = tables(section).items()
    assert caption == "sst2: accuracy"  # mentions were learned from one number of labels
    assert rows[""][1:] == [
        "left · pretrain", "left · random weights", "right · pretrain", "right · random weights",
    ]  # fmt: skip
    assert rows["40"][0] == "64.8 ± 0.3" and rows["400"][0] == "69.8 ± 0.3"
    assert section is not None and [figure.name for figure in section.figures] == ["learning-1"]
    assert learning_section([score for score in scores if score.task == "mentions"]) is None


def test_published_layers_stand_beside_the_task_that_they_are_of(tmp_path: Path) -> None:
    """CoNLL-2003's development F1 stood beside every task, whatever its metric."""
    run = SampleRun(tmp_path)
    run.write_layers("conll2003", "bert")
    section = layers_section(collect(run.inputs))
    rows = tables(section)["conll2003: entity F1"]
    assert rows[""] == ["layers", "bert · dev", "published dev", "bert · test"]
    assert rows["last"] == ["54.0 ± 1.4", "94.9", "44.0 ± 1.4"] and rows["mix"][1] == "–"
    assert section is not None
    assert "without weights" in " ".join(b.text for b in section.blocks if isinstance(b, Note))
    other = SampleRun(tmp_path / "other")
    other.write_layers("mentions", "bert")
    section = layers_section(collect(other.inputs))
    assert section is not None and "ublished" not in str(section.blocks)
    assert "published" not in str(tables(section))


@pytest.mark.parametrize(
    ("files", "heading"),
    [({"dev": "b"}, ""), ({"dev": "b", "test": "c"}, "test"), ({}, "part of train")],
)
@pytest.mark.parametrize("is_older", [False, True])
def test_layers_are_headed_by_the_split_that_was_scored(
    files: dict[str, str], heading: str, is_older: bool, tmp_path: Path
) -> None:
    """A second column "test" repeated the development scores. Format 4 has the task, no split."""
    run = SampleRun(tmp_path)
    task = TaskConfig(name="toy", train="a", **files)
    run.config = replace(run.config, task=task)
    output = run.write_layers("toy", "bert", split=task.scored_split)
    if is_older:
        manifest = output.manifest()
        del manifest["counts"]["split"]
        manifest["format"] = 4
        manifest["counts"]["published"] = {"last": 94.9}
        (output.path / "manifest.json").write_text(json.dumps(manifest))
    rows = tables(layers_section(collect(run.inputs)))["toy: entity F1"]
    assert rows[""] == ["layers", "bert · dev", *([f"bert · {heading}"] if heading else [])]
    assert {len(row) for name, row in rows.items() if name} == {2 if heading else 1}


def test_layers_of_two_encoders_share_a_table(two_runs: SampleRun) -> None:
    section = layers_section(collect(two_runs.inputs))
    rows = tables(section)["mentions: entity F1"]
    assert rows[""] == [
        "layers", "left · bert · dev", "right · elmo · dev",
        "left · bert · test", "right · elmo · test",
    ]  # fmt: skip
    assert rows["last"] == ["54.0 ± 1.4", "54.0 ± 1.4", "44.0 ± 1.4", "44.0 ± 1.4"]
    assert section is not None
    assert Note("Width of the BiLSTM in each direction: 200; the paper's: 768.") in section.blocks
    assert [row.replace(" ", "_") for row in rows] == ["", *CHOICES]  # from the first layer up
    assert section is not None and len(section.figures) == 2
