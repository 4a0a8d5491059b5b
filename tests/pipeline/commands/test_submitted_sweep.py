"""The points of a submitted sweep, and the command that prints any sweep."""

import json
from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.cluster.frozen import Submission
from pipeline.commands.submitted_sweep import (
    find_sweep,
    label_nodes,
    print_sweep,
    record_sweep,
)
from pipeline.commands.sweep_points import Point, write_point
from pipeline.config.sweep import read_sweep
from pipeline.store.outputs import Store
from pipeline.workflow.stage import Node
from tests.pipeline.cluster.test_planning import graph_of

WORDS = ["task=polarity", "finetune.lr=1e-4,5e-4", "finetune.seed=7,8", "optim.lr=1e-3"]


@pytest.fixture
def sweep(tmp_path: Path) -> tuple[Store, Path, list[Node]]:
    swept = read_sweep(WORDS)
    points = swept.points()
    graphs = [graph_of(tmp_path, *point) for point in points]
    settings = [swept.settings(point) for point in points]
    nodes = label_nodes(graphs, settings)
    store = Store(tmp_path)
    record_sweep(Submission(tmp_path / "submissions" / "one"), store, graphs, settings, nodes)
    return store, tmp_path / "sweeps" / "one", nodes


def test_every_point_names_the_one_output_it_is_measured_by(
    sweep: tuple[Store, Path, list[Node]],
) -> None:
    _, folder, nodes = sweep
    points = json.loads((folder / "sweep.json").read_text())["points"]
    assert [point["settings"] for point in points] == [
        [f"finetune.lr={lr}", f"finetune.seed={seed}"]
        for lr in ("0.0001", "0.0005")
        for seed in (7, 8)
    ]
    # The recipe fine-tunes several encoders, so its one pretraining is what a point is known by.
    assert len({point["output"] for point in points}) == 1
    assert points[0]["output"].startswith("pretrain/")
    assert all("optim.lr" not in node.label for node in nodes if node.stage == "pretrain")


def test_unfinished_points_are_counted(
    sweep: tuple[Store, Path, list[Node]], capfd: pytest.CaptureFixture[str]
) -> None:
    store, folder, _ = sweep
    print_sweep(folder, store)
    assert "one: 4 of 4 points are not finished" in capfd.readouterr().err


def test_a_local_sweep_is_printed_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path)
    for number, name in enumerate(("2026-01-01", "2026-02-01")):
        point = Point(0, [f"finetune.lr={number}"], "", None, "it broke")
        write_point(tmp_path / "sweeps" / name / "0", point)
    assert find_sweep(store, "").name == "2026-02-01"
    print_sweep(find_sweep(store, "2026-01"), store)
    said = capfd.readouterr().err
    assert "Sweep of 1 points" in said and "finetune.lr=0" in said
    with pytest.raises(UsageError, match="there is no sweep that begins with 2027"):
        find_sweep(store, "2027")
