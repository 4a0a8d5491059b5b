"""Work units as tasks of a Ray of two nodes on this machine: the same bytes as from a pool."""

import importlib.util
import os
import random
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_prep.corpus.build import make_shards
from data_prep.errors import SesameError, UsageError
from data_prep.passes import ArraySlice, Passes, SliceDone
from data_prep.ray_tasks import RayTasks
from data_prep.work_units import LocalPool, WorkUnit
from pipeline.config.schema import Config
from pipeline.workflow.stage import Work
from tests.data_prep.small_shards import config_for, digests, document, write_documents


@pytest.fixture(scope="module")
def executor() -> Iterator[RayTasks]:
    """A head and a second node, one core each. Ray's absence fails where SESAME_REQUIRE_RAY=1."""
    if importlib.util.find_spec("ray") is None:
        said = "ray is not installed; pip install 'sesame-encoders[ray]'"
        if os.environ.get("SESAME_REQUIRE_RAY") == "1":
            pytest.fail(said)
        pytest.skip(said)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    handler = signal.getsignal(signal.SIGTERM)
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=100_000_000, include_dashboard=False)
        yield RayTasks(cluster.address)
    finally:
        ray.shutdown()
        cluster.shutdown()
        signal.signal(signal.SIGTERM, handler)


def meet(number: int, folder: Path) -> None:
    """Units 0 and 1 end only if they run at the same time: a FIFO opens when both ends do."""
    import ray

    with open(folder.parent / "fifo", "rw"[number]):
        (folder / "node").write_text(ray.get_runtime_context().get_node_id())


def fail(number: int, folder: Path) -> None:
    if number == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    raise SesameError(f"texts.txt, line {number}: damaged")


def units(*numbers: int) -> list[WorkUnit]:
    return [WorkUnit(f"{number:03d}", number) for number in numbers]


def test_both_nodes_make_units_and_handlers_of_signals_stay(
    executor: RayTasks, tmp_path: Path
) -> None:
    def ours(*_: object) -> None: ...

    os.mkfifo(tmp_path / "fifo")
    before = signal.signal(signal.SIGTERM, ours)
    try:
        made = Passes(tmp_path, executor).run("nodes", units(0, 1), meet)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len({(folder / "node").read_text() for folder in made}) == 2


def test_an_error_of_a_unit_is_raised_as_it_is(executor: RayTasks, tmp_path: Path) -> None:
    with pytest.raises(SesameError, match=r"^texts\.txt, line 7: damaged$"):
        Passes(tmp_path, executor).run("nodes", units(7), fail)


def test_a_unit_that_kills_its_worker_is_named(
    executor: RayTasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.ray_tasks.RETRIES", 0)
    with pytest.raises(SesameError, match=r"^nodes: Ray lost the worker of 008 .*finished work"):
        Passes(tmp_path, executor).run("nodes", units(8), fail)


def test_every_executor_gives_the_same_bytes_and_may_take_over(
    executor: RayTasks, tmp_path: Path
) -> None:
    rng = random.Random(0)
    paths = str(write_documents(tmp_path / "texts.jsonl", [document(rng) for _ in range(60)]))
    corpus = config_for(paths, shard_size=30_000)

    def out(name: str) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        return tmp_path / name

    make_shards(corpus, out("pool"), 12_000, passes=Passes.below(out("pool"), LocalPool(2)))
    make_shards(corpus, out("ray"), 12_000, passes=Passes.below(out("ray"), executor))
    for maker, share in (
        (LocalPool(1), ArraySlice(0, 3, "clean")),
        (executor, ArraySlice(1, 3, "clean")),
        (executor, ArraySlice(2, 3, "clean")),
        (executor, ArraySlice(1, 2, "write")),
    ):
        step = Passes.below(out("changed"), maker, share, ("clean", "write"))
        with pytest.raises(SliceDone):
            make_shards(corpus, out("changed"), 12_000, passes=step)
    make_shards(corpus, out("changed"), 12_000)
    assert digests(out("ray")) == digests(out("pool")) == digests(out("changed"))


def test_a_cluster_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest.importorskip("ray"), "is_initialized", lambda: False)
    with socket.socket() as bound:  # a port at which nobody listens
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(SesameError, match=f"^ray_address={address}: no Ray cluster answers"):
            Passes(tmp_path, RayTasks(address)).run("none", units(1), fail)


def test_the_config_chooses_the_executor(tmp_path: Path) -> None:
    pool = Work(Config(), {}, tmp_path, "abcd").passes(3, ("clean",))
    assert (pool.executor, pool.divided) == (LocalPool(3), ("clean",))
    config = Config(executor="ray", ray_address="head:6379")
    assert Work(config, {}, tmp_path, "abcd").passes(3, ()).executor == RayTasks("head:6379")


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"executor=ray: .*sesame-encoders\[ray\]"):
        Passes(tmp_path, RayTasks()).run("none", units(1), fail)
