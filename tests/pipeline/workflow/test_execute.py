"""Outputs made several at a time are those made in turn; a failure leaves the others whole."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from data_prep.errors import SesameError
from data_prep.passes import UNITS
from data_prep.vectors.table import VectorTable
from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.store import content
from pipeline.store.lease import read_holder
from pipeline.store.outputs import LEASE, Output, Store
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.training.exits import Interrupted
from pipeline.workflow import execute as execute_module
from pipeline.workflow.beside import SomeFailed
from pipeline.workflow.execute import PROCESS_BYTES, execute, execute_all
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Node, Request, Stage, Work

SEEDS = (1, 2, 3)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    VectorTable(["good", "bad"], np.eye(2, dtype=np.float32)).write(tmp_path)
    rng = np.random.default_rng(0)
    words = [rng.choice(["good", "bad", "film"], size=4) for _ in range(60)]
    rows = [f"{' '.join(each)}\t{int('good' in each)}" for each in words]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows, ""]))
    task = TaskConfig(name="toy", data_dir=str(tmp_path), train="train.tsv")
    tuning = FinetuneConfig(epochs=1, head="bigru", max_seq_length=8, accelerator="cpu")
    return Config(encoder=str(tmp_path), task=task, finetune=tuning)


def fine_tunings(config: Config, store: Path) -> list[Node]:
    graph = Graph(Store(store), STAGES)
    for seed in SEEDS:
        graph.add("finetune", replace(config, finetune=replace(config.finetune, seed=seed)))
    return list(graph.nodes.values())


def test_seeds_at_once_give_what_they_give_in_turn_and_a_failure_stops_no_other(
    config: Config, tmp_path: Path
) -> None:
    in_turn, at_once = (fine_tunings(config, tmp_path / name) for name in ("turn", "once"))
    execute_all(in_turn)
    (tmp_path / "none.tsv").write_text("sentence\tlabel\n")
    bad = replace(at_once[-1].config, task=replace(config.task, train="none.tsv"))
    graph = Graph(Store(tmp_path / "once"), STAGES)
    graph.add("finetune", bad)
    with pytest.raises(SomeFailed, match=r"none\.tsv: too few examples") as failed:
        execute_all([*graph.nodes.values(), *at_once], at_once=2)
    assert list(failed.value.failures) == [list(graph.nodes)[-1]]
    assert [node.stage for node in in_turn].count("finetune") == len(SEEDS)
    for one, other in zip(in_turn, at_once, strict=True):
        for path in one.output.path.iterdir():
            if path.name != "run.json" and path.is_file():
                assert path.read_bytes() == (other.output.path / path.name).read_bytes()


class Toy(Stage):
    """A stage whose work is a function of the test."""

    name, format, sections = "toy", 1, ()

    def __init__(self, work: Callable[[Work], dict[str, Any]]) -> None:
        self.work = work

    def inputs(self, config: Config) -> dict[str, Request]:
        return {}

    def run(self, work: Work) -> dict[str, Any]:
        return self.work(work)


def toy_node(store: Path, work: Callable[[Work], dict[str, Any]]) -> Node:
    """An output that `work` makes."""
    request: dict[str, Any] = {"stage": "toy", "config": {}, "upstream": {}, "files_read": {}}
    return Node(Toy(work), "", Config(), {}, request, Store(store).output("toy", "0" * 16))


def take_over(out: Path) -> None:
    """What another launch does that finds this one's lease stale."""
    holder = json.loads((out / LEASE).read_text())
    (out / LEASE).write_text(json.dumps(holder | {"token": "another launch"}))


def test_a_launch_that_loses_its_lease_while_it_hashes_finishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(work: Work) -> dict[str, Any]:
        (work.out / "file").write_text("content")
        return {}

    node = toy_node(tmp_path, run)
    hash_file = content.checksum

    def slow(path: Path) -> str:
        take_over(node.output.path)
        return hash_file(path)

    monkeypatch.setattr(content, "checksum", slow)
    with pytest.raises(SesameError, match="taken over by another launch"):
        execute(node)
    left = sorted(path.name for path in node.output.path.iterdir())
    assert left == [LEASE, ".request.json", "file"]


def test_the_lease_is_checked_when_the_manifest_is_written_and_has_no_name_yet(
    tmp_path: Path,
) -> None:
    output = Store(tmp_path).output("toy", "0" * 16)
    output.begin({})
    found: list[list[str]] = []

    def check_lease() -> None:
        found.append(sorted(path.name for path in output.path.iterdir()))
        if len(found) == 2:
            raise SesameError("taken over")

    with pytest.raises(SesameError, match="taken over"):
        output.finish({}, {}, {}, check_lease)
    assert found[0] == [".request.json"]
    assert [name.split(".")[1] for name in found[1]] == ["manifest", "request", "json"]
    assert sorted(path.name for path in output.path.iterdir()) == [".request.json", "run.json"]


def test_what_a_rerun_needs_is_removed_after_the_manifest_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(work: Work) -> dict[str, Any]:
        (work.out / "file").write_text("content")
        (work.out / ".checkpoint").write_text("hours")
        return {}

    def tidy(stage: Stage, out: Path, inputs: object) -> None:
        assert Store(tmp_path).output("toy", "0" * 16).is_done
        (out / ".checkpoint").unlink()

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Toy, "tidy", tidy)
    node = toy_node(tmp_path, run)
    monkeypatch.setattr(Output, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(node)
    assert (node.output.path / ".checkpoint").exists()
    monkeypatch.undo()
    monkeypatch.setattr(Toy, "tidy", tidy)
    execute(node)
    left = sorted(path.name for path in node.output.path.iterdir())
    assert left == ["file", "manifest.json", "run.json"]


def test_a_stage_can_ask_whether_its_launch_still_holds_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(work: Work) -> dict[str, Any]:
        work.check_lease()
        take_over(work.out)
        work.check_lease()
        return {}

    with pytest.raises(SesameError, match="taken over by another launch"):
        execute(toy_node(tmp_path, run))


@pytest.mark.parametrize(
    ("cores", "memory", "wanted"),
    [
        (8, 1e12, len(SEEDS)),
        (2, 1e12, 2),
        (8, 2 * PROCESS_BYTES + 1e6, 2),
        (8, 1e6, 1),
        (1, 1e12, 1),
    ],
    ids=["all", "by cores", "by memory", "one at least", "one core"],
)
def test_fine_tunings_are_made_one_per_core_as_far_as_memory_goes(
    cores: int,
    memory: float,
    wanted: int,
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody has to know of --at-once; one on all cores would wait for its own threads."""
    made: list[int] = []

    def make(nodes: list[Node], at_once: int = 1, *more: object) -> float:
        made.append(at_once)
        for node in nodes:
            node.output.begin(node.request)
            node.output.finish(node.request, {}, {})
        return 0.0

    nodes = fine_tunings(config, tmp_path / "store")
    execute_all([node for node in nodes if node.stage != "finetune"])
    monkeypatch.setattr(execute_module, "usable_cores", lambda: cores)
    monkeypatch.setattr(
        execute_module.psutil, "virtual_memory", lambda: SimpleNamespace(available=int(memory))
    )
    monkeypatch.setattr(execute_module, "make_beside", make)
    monkeypatch.setattr(execute_module, "_timed", lambda node, is_again: make([node]))
    execute_all(nodes)
    assert made == ([wanted] if wanted > 1 else [1] * len(SEEDS))


def test_an_output_is_not_finished_where_a_file_it_read_has_changed(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph(Store(tmp_path / "store"), STAGES)
    node = graph.add("finetune", config)
    execute_all([each for each in graph.nodes.values() if each.stage != "finetune"])
    path = tmp_path / "train.tsv"
    whole = path.read_bytes()
    original = node.maker.run

    def run_while_the_file_changes(work: Work) -> dict[str, Any]:
        counts: dict[str, Any] = original(work)
        path.write_bytes(whole + b"good film\t1\n")
        return counts

    monkeypatch.setattr(node.maker, "run", run_while_the_file_changes)
    with pytest.raises(SesameError, match=r"^train\.tsv changed .* run the same command again"):
        execute_all([node])
    assert not node.output.is_done
    monkeypatch.undo()
    path.write_bytes(whole)
    execute_all([node])
    assert node.output.is_done


def test_a_killed_process_is_told_with_its_output_and_the_remedy(
    config: Config, tmp_path: Path
) -> None:
    nodes = fine_tunings(config, tmp_path / "store")
    killed: list[str] = []

    def kill_the_first() -> None:  # as the kernel does when memory runs out
        while not killed:
            for node in nodes:
                holder = read_holder(node.output.path / LEASE) if node.stage == "finetune" else None
                if holder and holder["pid"] != os.getpid():
                    os.kill(holder["pid"], signal.SIGKILL)
                    killed.append(node.output.fingerprint[:8])
                    return
            time.sleep(0.01)

    thread = threading.Thread(target=kill_the_first)
    thread.start()
    with pytest.raises(SesameError) as caught:
        execute_all(nodes, at_once=2)
    thread.join()
    said = str(caught.value)
    assert killed[0] in said and "memory" in said and "--at-once" in said and "\n" not in said
    execute_all(nodes, at_once=2)
    assert all(node.output.is_done for node in nodes)


def test_an_interruption_tells_how_far_the_outputs_are(tmp_path: Path) -> None:
    """A job that is continued compares this with its last start: more work, another text."""

    def run(work: Work) -> dict[str, Any]:
        units = work.out / UNITS
        units.mkdir(exist_ok=True)
        if len(list(units.iterdir())) == 2:
            return {}
        (units / f"{len(list(units.iterdir()))}").mkdir()
        raise Interrupted("interrupted by USR1; run the same command to go on")

    node, told = toy_node(tmp_path, run), []
    for _ in range(2):
        with pytest.raises(Interrupted, match=r"^interrupted by USR1") as caught:
            execute_all([node])
        assert caught.value.store == tmp_path
        told.append(caught.value.progress)
    reference = f"toy/{'0' * 16}"
    assert told == [f"0 of 1 outputs made, {reference} {n} pieces made" for n in (1, 2)]
    execute_all([node])
    assert node.output.is_done
