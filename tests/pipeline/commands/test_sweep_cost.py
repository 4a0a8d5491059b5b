"""`plan -m` and `estimate -m`: what a sweep costs in all, shared stages counted once."""

import re
from pathlib import Path

import pytest

from pipeline.commands.estimate import SWEEP_GPU
from pipeline.commands.main import run
from pipeline.commands.sweep_cost import cost_of, total
from pipeline.config.compose import compose_config

WORDS = ["experiment=bert_base", "corpus.paths=corpus.txt"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "corpus.txt").write_text("Some words. And more.\n" * 5000)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def costs(*points: str) -> list[float]:
    made = [cost_of([], compose_config([*WORDS, p]), SWEEP_GPU, 0.4, None) for p in points]
    found = total(made)
    assert found.hours is not None and found.disk is not None
    return [found.hours, found.disk]


def test_shared_stages_are_counted_once() -> None:
    hours, disk = costs("optim.lr=1e-4")
    both = costs("optim.lr=1e-4", "optim.lr=2e-4")
    one = cost_of([], compose_config(WORDS), SWEEP_GPU, 0.4, None).found.disk
    own = (one["pretrain"] or 0) + (one["export"] or 0)
    assert both == pytest.approx([2 * hours, disk + own])
    assert costs("optim.lr=1e-4", "trainer.devices=1") == pytest.approx([hours, disk])  # the same
    data = costs("examples.duplicates=10", "examples.duplicates=5")
    assert data[1] == pytest.approx(disk + own + (one["examples"] or 0) / 2)


def test_what_is_made_costs_nothing_more() -> None:
    point = cost_of([], compose_config(WORDS), SWEEP_GPU, 0.4, None)
    left = total([point], lambda number, stage: stage in ("pretrain", "export"))
    assert left.disk == sum(point.found.disk[stage] or 0 for stage in ("pretrain", "export"))
    assert total([point], lambda number, stage: False) == total([])


def test_a_plan_of_a_sweep_has_rows_with_settings_and_totals(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "-m", *WORDS, "optim.lr=1e-4,2e-4", "trainer.seed=1,2"]) == 0
    said = capsys.readouterr().err
    assert len(re.findall(r"^pretrain optim\.lr=0\.000[12], trainer\.seed=[12]", said, re.M)) == 4
    assert said.count("\nshard ") + said.startswith("shard ") == 1
    assert "4 points: 16 of 16 outputs to make" in said and "201.6 hours of pretraining" in said
    assert not (folder / "store").exists()


def test_an_estimate_of_a_sweep_has_a_row_per_point(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment=bert_base", "optim.lr=1e-4,2e-4", "--gpu=H100", "--price=2"]
    assert run(["estimate", "-m", *words]) == 0
    said = capsys.readouterr().out
    assert "optim.lr=0.0001" in said and "every device a H100 at 40 %" in said
    assert "2 points: 31.8 hours of pretraining, 64 dollars, disk unknown: set corpus" in said


def test_hours_on_cpus_are_not_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "-m", "experiment=demo", "optim.lr=1e-4,2e-4"]) == 0
    assert "2 points: unknown hours (CPUs) of pretraining" in capsys.readouterr().out


def test_sources_of_a_corpus_are_estimated_too(folder: Path) -> None:
    named = compose_config(["experiment=bert_base", "corpus.sources.a=corpus.txt"])
    plain = compose_config(WORDS)
    found = [cost_of([], c, SWEEP_GPU, 0.4, None).found.disk["shard"] for c in (named, plain)]
    assert found[0] == found[1] == (folder / "corpus.txt").stat().st_size


def test_a_budget_of_many_passes_is_remarked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", *WORDS]) == 0
    said = capsys.readouterr().out
    assert "The budget reads the text " in said and "lower trainer.max_steps, or add text" in said
    assert run(["estimate", *WORDS, "trainer.max_steps=10"]) == 0
    assert "The budget reads the text " not in capsys.readouterr().out
