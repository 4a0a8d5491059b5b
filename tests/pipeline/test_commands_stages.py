"""Commands about stages: what a report has of named runs, and how sweeps are run."""

from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.cli import Arguments
from pipeline.commands.stages import _report, stage
from pipeline.compose import compose_config
from pipeline.runs import Entry, Runs
from pipeline.store import Store


def test_fine_tunings_of_one_label_are_all_reported(tmp_path: Path) -> None:
    """`sesame finetune` for one task after another gives a run outputs without labels."""
    store = Store(tmp_path)
    entries = []
    for task in ("sst2", "stsb"):
        output = store.output("finetune", f"{task:0<16}")
        request = {"stage": "finetune", "config": {"task": {"name": task}}, "upstream": {}}
        output.begin(request)
        output.finish(request, {}, {})
        entries.append(Entry("finetune", output.fingerprint, ""))
    Runs(store).record("mine", entries, replace=True)
    _, report = _report(compose_config(["runs=mine", f"paths.store={tmp_path}"]), [])
    assert {item.path for item in report.inputs.values()} == {
        store.output("finetune", entry.fingerprint).path for entry in entries
    }


@pytest.mark.parametrize(
    ("number", "more", "said"),
    [
        ("0", [], "--at-once 0: must be a whole number"),
        ("two", [], "--at-once two: must be a whole number"),
        ("2", ["hydra/launcher=submitit_slurm"], "hydra/launcher=submitit_slurm says how"),
        ("2", ["hydra/sweeper=optuna"], "hydra/sweeper=optuna says how"),
    ],
)
def test_a_sweep_is_told_once_how_points_are_run(
    number: str, more: list[str], said: str, tmp_path: Path
) -> None:
    words = ["experiment=smoke", f"paths.store={tmp_path}", "finetune.seed=1,2", *more]
    with pytest.raises(UsageError, match=said):
        stage(Arguments("finetune", [], words, {"-m": "", "--at-once": number}))
    assert not list(tmp_path.iterdir())
