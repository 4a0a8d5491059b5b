"""Commands about stages: what a report has of named runs, and how sweeps are run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_prep.errors import SesameError, UsageError
from data_prep.reading import sources
from pipeline.commands import sweep
from pipeline.commands.arguments import Arguments
from pipeline.commands.main import run
from pipeline.commands.stages import _report, stage
from pipeline.commands.sweep import prepare_points
from pipeline.config import compose as composing
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.store.runs import Entry, Runs
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.training.exits import Interrupted
from pipeline.workflow.beside import SomeFailed
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Node
from tests.pipeline.reported import SampleRun


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


def test_a_page_about_runs_belongs_to_them(tmp_path: Path) -> None:
    shard = SampleRun(tmp_path).write_shard()
    runs = Runs(Store(tmp_path))
    for name in ("first", "second"):
        runs.record(name, [Entry("shard", shard.fingerprint, "")], replace=True)
    for _ in range(2):  # a page that is there is found again
        stage(Arguments("report", [], ["runs=[first,second]", f"paths.store={tmp_path}"], {}))
    assert runs.names() == ["first", "second"]  # not the experiment's name, which made nothing
    assert [[entry.stage for entry in runs.entries(name)] for name in runs.names()] == [
        ["shard", "report"], ["shard", "report"],
    ]  # fmt: skip


def test_the_folder_of_a_kept_model_is_named_by_its_reference(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = SampleRun(tmp_path).write_model("mentions")
    Runs(Store(tmp_path)).record("mine", [Entry("model", model.fingerprint, "")], replace=True)
    assert run(["path", "model", "model=mine/mentions", f"paths.store={tmp_path}"]) == 0
    assert capfd.readouterr().out == f"{model.path}\n"
    assert run(["path", "model", "model=mine/sst2", f"paths.store={tmp_path}"]) == 2
    assert "the models of this run are mine/mentions" in " ".join(capfd.readouterr().err.split())


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("[first,secnod]", "runs=secnod: no such run; did you mean second?"),
        ("[zzz]", "runs=zzz: no such run; runs here: begun, first, second"),
        ("[12]", "runs=12: no such run"),
        ("begun", "runs=begun: nothing of it is finished yet; see: sesame list"),
    ],
)
def test_a_run_that_cannot_be_shown_is_named(tmp_path: Path, typed: str, says: str) -> None:
    shard = SampleRun(tmp_path).write_shard()
    runs = Runs(Store(tmp_path))
    for name in ("first", "second"):
        runs.record(name, [Entry("shard", shard.fingerprint, "")], replace=True)
    runs.record("begun", [Entry("shard", "0" * 16, "")], replace=True)
    with pytest.raises(UsageError, match=says.replace("?", r"\?")):
        _report(compose_config([f"runs={typed}", f"paths.store={tmp_path}"]), [])


def test_a_point_that_failed_beside_others_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every failing point of a long sweep costs twice."""
    config = Config(task=TaskConfig(name="toy", data_dir=str(tmp_path), train="train.tsv"))
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na\t1\n")
    graphs = []
    for seed in (1, 2, 3):
        graph = Graph(Store(tmp_path), STAGES)
        own = replace(config, encoder="tfidf", finetune=FinetuneConfig(seed=seed))
        graphs.append((graph, graph.add("finetune", own)))
    bad = graphs[1][1].output.reference

    def fail(nodes: list[Node], at_once: int | None) -> None:
        raise SomeFailed({bad: SesameError("the loss is nan")})

    monkeypatch.setattr(sweep, "execute_all", fail)
    unmade = prepare_points(Arguments("finetune", [], [], {}), graphs, None, [])
    assert {number: str(error) for number, error in unmade.items()} == {1: "the loss is nan"}


def test_a_process_killed_beside_others_is_told_and_the_sweep_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(nodes: list[Node], at_once: int | None) -> None:
        raise SesameError("a process was killed")

    monkeypatch.setattr(sweep, "execute_all", fail)
    graph = Graph(Store(tmp_path), STAGES)
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na\t1\n")
    task = TaskConfig(name="toy", data_dir=str(tmp_path), train="train.tsv")
    target = graph.add("finetune", Config(encoder="majority", task=task))
    assert prepare_points(Arguments("finetune", [], [], {}), [(graph, target)], None, []) == {}
    assert "a process was killed; the remaining points run one at a time" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_sweep_that_is_told_to_stop_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its fine-tunings had saved, the sweep trained on until the job was killed."""

    def stop(nodes: list[Node], at_once: int | None) -> None:
        raise Interrupted("interrupted")

    monkeypatch.setattr(sweep, "execute_all", stop)
    graph = Graph(Store(tmp_path), STAGES)
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na\t1\n")
    task = TaskConfig(name="toy", data_dir=str(tmp_path), train="train.tsv")
    target = graph.add("finetune", Config(encoder="majority", task=task))
    with pytest.raises(Interrupted):
        prepare_points(Arguments("finetune", [], [], {}), [(graph, target)], None, [])


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


@pytest.mark.parametrize("command", [["plan"], ["run", "--until", "shard"], ["shard"], ["report"]])
def test_a_command_composes_and_searches_once(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A composition takes 0.3 s, and a folder of a million files takes minutes to walk."""
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("\n\n".join(f"Line {n} is a text. So it is." for n in range(99)))
    composed: list[tuple[str, ...]] = []
    walked: list[str] = []
    compose, walk = composing.compose, sources._walk

    def count_compositions(name: str, overrides: list[str], **options: bool) -> object:
        composed.append(tuple(overrides))
        return compose(name, overrides, **options)

    def count_walks(key: str, folder: str, *others: Any) -> None:
        walked.append(folder)
        walk(key, folder, *others)

    monkeypatch.setattr(composing, "compose", count_compositions)
    monkeypatch.setattr(sources, "_walk", count_walks)
    own = ["experiment=smoke", f"corpus.paths={texts}", f"paths.store={tmp_path}", "task.name=own"]
    own += ["corpus.fraction=1", "corpus.workers=1"]
    assert run([*command, *own]) == (2 if command == ["report"] else 0)
    # An instance of the experiment has overrides of its own, and so a composition of its own.
    assert len(composed) == len(set(composed))
    assert sum(len(overrides) == len(own) for overrides in composed) == 1
    assert walked == [str(texts)]
