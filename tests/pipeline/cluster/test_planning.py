"""Jobs planned for a graph, without a cluster: arrays, dependencies, names."""

from itertools import pairwise
from pathlib import Path

import pytest

from data_prep.errors import UsageError
from data_prep.passes import UNITS
from pipeline.cluster.planning import Planned, plan_jobs
from pipeline.cluster.site import Site
from pipeline.commands.submitted_sweep import label_nodes
from pipeline.config.compose import compose_config
from pipeline.config.sweep import read_sweep
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.graph import Graph, experiment_graph
from pipeline.workflow.stage import Node


def graph_of(store: Path, *overrides: str) -> Graph:
    words = ["experiment=smoke", f"paths.store={store}", *overrides]
    return experiment_graph(
        Store(store), STAGES, compose_config(words), lambda p: compose_config([*words, *p])
    )


def swept(store: Path, *overrides: str) -> list[Node]:
    words = ["experiment=smoke", *overrides]
    sweep = read_sweep(words)
    points = sweep.points()
    graphs = [graph_of(store, *point[1:]) for point in points]
    return label_nodes(graphs, [sweep.settings(point) for point in points])


def by_name(planned: list[Planned]) -> dict[str, Planned]:
    return {job.name: job for job in planned}


def test_fine_tunings_that_wait_for_the_same_become_one_array(tmp_path: Path) -> None:
    nodes = list(graph_of(tmp_path).nodes.values())
    jobs = by_name(plan_jobs(nodes, Site(at_once=3), {}))
    arrays = [job for job in jobs.values() if len(job.nodes) > 1]
    tunings = [node for node in nodes if node.stage == "finetune"]
    assert sum(len(job.nodes) for job in arrays) == len(tunings) == 4
    assert all(job.array == f"0-{len(job.nodes) - 1}%3" for job in arrays)
    (report,) = [job for job in jobs.values() if job.node.stage == "report"]
    assert {job.name for job in arrays} < set(report.after) <= set(jobs)
    single = plan_jobs(nodes, Site(array=1), {})
    assert all(len(job.nodes) == 1 and not job.array for job in single)


def test_arrays_are_no_larger_than_slurm_allows(tmp_path: Path) -> None:
    nodes = list(graph_of(tmp_path).nodes.values())
    jobs = plan_jobs(nodes, Site(array=8), {}, most_tasks=3)
    pieces = [job for job in jobs if job.shares]
    assert pieces and all(job.shares == job.tasks == 3 for job in pieces)
    assert all(job.array == "0-2%4" for job in pieces)
    tunings = [job for job in jobs if job.node.stage == "finetune"]
    assert all(len(job.nodes) <= 3 for job in tunings)
    assert sum(len(job.nodes) for job in tunings) == 4


def test_what_is_queued_is_waited_for(tmp_path: Path) -> None:
    nodes = list(graph_of(tmp_path).nodes.values())
    (pretraining,) = [node for node in nodes if node.stage == "pretrain"]
    queued = {node.output.reference: "7" for node in nodes if node.stage != "finetune"}
    tunings = plan_jobs(nodes, Site(), queued)
    assert {job.node.stage for job in tunings} == {"finetune"}
    assert all(job.after_jobs == ["7"] for job in tunings)
    assert pretraining.output.reference in queued


def test_jobs_of_a_sweep_are_named_by_what_they_depend_on(tmp_path: Path) -> None:
    nodes = swept(tmp_path, "optim.lr=0.001,0.01", "finetune.seed=1,2", "trainer.devices=2")
    jobs = plan_jobs(nodes, Site(array=1), {})
    titles: dict[str, list[str]] = {}
    for job in jobs:
        titles.setdefault(job.node.stage, []).append(job.title)
    assert [title.rpartition("-")[2] for title in titles["pretrain"]] == ["lr=0.001", "lr=0.01"]
    assert [title.rpartition("-")[2] for title in titles["shard"]] == ["shard"]
    assert "finetune-lr=0.001,encoder=pretrain" in titles["finetune"][0]
    assert max(len(job.title) for job in jobs) <= 60


def test_an_array_is_named_by_the_keys_that_differ(tmp_path: Path) -> None:
    nodes = swept(tmp_path, "task=polarity", "finetune.lr=1e-4,5e-4", "finetune.seed=1,2")
    arrays = [job for job in plan_jobs(nodes, Site(), {}) if len(job.nodes) > 1]
    assert any("lr" in job.title.rpartition("-")[2].split(",") for job in arrays)


def test_gpus_are_in_the_options_and_too_few_are_refused(tmp_path: Path) -> None:
    nodes = list(graph_of(tmp_path, "trainer.accelerator=cuda").nodes.values())
    site = Site(gpus="a100", gpu_option="gres", stages={})
    jobs = by_name(plan_jobs(nodes, site, {}, {"": 4}))
    (training,) = [job for job in jobs.values() if job.node.stage == "pretrain"]
    assert "--gres=gpu:a100:2" in training.options and "--nodes=1" in training.options
    assert not any("gpu" in option for option in jobs["01-shard"].options)
    with pytest.raises(UsageError, match=r"site\.yaml: trainer\.devices=2: needs 2 GPUs per node"):
        plan_jobs(nodes, Site(), {}, {"": 1})


def test_every_divided_pass_is_an_array_after_the_one_before(tmp_path: Path) -> None:
    nodes = list(graph_of(tmp_path).nodes.values())
    jobs = by_name(plan_jobs(nodes, Site(array=3), {}))
    chain = [
        "01-shard-clean", "01-shard-write", "01-shard", "02-tokenizer-count", "02-tokenizer",
        "03-examples-tokenize", "03-examples-pairs", "03-examples-rows", "03-examples-write",
        "03-examples",
    ]  # fmt: skip
    assert jobs["01-shard-clean"].after == []
    for before, name in pairwise(chain):
        assert before in jobs[name].after
        assert jobs[name].of_pass == name.split("-")[2] if jobs[name].shares else True


def test_a_large_corpus_finds_its_repeats_in_arrays_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = list(graph_of(tmp_path, "corpus.near_duplicates=0.8").nodes.values())
    monkeypatch.setattr("pipeline.stages.shard.ONE_GROUP", 0)
    planned = plan_jobs(nodes[:1], Site(array=3), {})
    assert [job.of_pass for job in planned] == [
        "clean", "sign_documents", "match_documents", "sign_near", "match_near", "lend_near",
        "compare_near", "sign_paragraphs", "match_paragraphs", "place", "write", "",
    ]  # fmt: skip


def test_only_the_missing_shares_of_a_pass_are_planned(tmp_path: Path) -> None:
    nodes = list(graph_of(tmp_path).nodes.values())[:1]
    units = nodes[0].output.path / UNITS
    units.mkdir(parents=True)
    for number in range(3):
        (units / f".share-clean-{number}-of-3").touch()
    (units / ".share-write-1-of-3").touch()
    array, whole = plan_jobs(nodes, Site(array=3), {})
    assert (array.of_pass, array.array, array.after) == ("write", "0,2%4", [])
    assert whole.after == [array.name]
