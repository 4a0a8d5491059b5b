"""Checkpoints of hundreds of ranks: shares are equal, files are whole, nothing waits for the disk.

Ranks of `fake` process groups run one after another, or as threads of one process.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from data_prep.errors import SesameError
from pipeline.store.checkpoints import checkpoints
from pipeline.training import saving
from pipeline.training.checkpoint import damage, newest_good, read_state
from pipeline.training.parameter_state import owners
from pipeline.training.restoring import SavedParameters, read_carried
from pipeline.training.saving import Saver, copy_part
from pipeline.training.whole_engines import ReplicatedEngine, SingleEngine
from tests.pipeline.training.test_checkpoint import Engine, save, saver, state_at

RANKS = (1, 8, 64, 256)
MOMENTS = ("exp_avg", "exp_avg_sq")


def make_network() -> nn.Module:
    """Parameters of very unequal sizes, as BERT's."""
    torch.manual_seed(0)
    layers = [nn.Linear(12, 12) for _ in range(40)]
    return nn.Sequential(nn.Embedding(300, 12), *layers, nn.LayerNorm(12))


def attach(engine: Any, network: nn.Module) -> Any:
    """Give an engine the network and a stepped optimizer, without Lightning's trainer."""
    shapes = {name: part.shape for name, part in network.named_parameters()}
    engine._lightning_module = SimpleNamespace(model=network, shapes=shapes)
    engine._optimizers = [torch.optim.AdamW(network.parameters())]
    engine.prepare()
    torch.manual_seed(1)
    for state in engine._optimizers[0].state.values():
        for key in MOMENTS:
            state[key].copy_(torch.rand_like(state[key]))
    return engine


@contextmanager
def fake_rank(rank: int, ranks: int) -> Iterator[None]:
    """One rank of a process group whose collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


def tensors_of(engine: Any) -> dict[str, Tensor]:
    """All weights and moments by key, as they stand in the engine."""
    found = {}
    for name, parameter in engine.named_parameters():
        found[name] = parameter.detach()
        for key in MOMENTS:
            found[f"{key}/{name}"] = engine._optimizers[0].state[parameter][key]
    return found


@pytest.mark.parametrize("ranks", [1, 3, 64, 256, 1024])
def test_shares_are_equal_up_to_one_parameter(ranks: int) -> None:
    sizes = [30_000_000, 500_000, *([1_000_000, 1_000] * 150), 2]
    saved_by = owners(sizes, ranks)
    assert saved_by == sorted(saved_by) and len(saved_by) == len(sizes)
    shares = [0] * ranks
    for size, owner in zip(sizes, saved_by, strict=True):
        shares[owner] += size
    assert sum(shares) == sum(sizes)
    assert max(shares) <= sum(sizes) / ranks + max(sizes)


@pytest.mark.parametrize("ranks", RANKS)
def test_every_rank_copies_its_share_and_no_tensor_twice(ranks: int) -> None:
    engine = attach(ReplicatedEngine(), make_network())
    expected = tensors_of(engine)
    total = sum(tensor.numel() for tensor in expected.values())
    largest = 3 * 300 * 12
    seen: dict[str, Tensor] = {}
    for rank in range(ranks):
        with fake_rank(rank, ranks):
            part = copy_part(engine, state_at(10), None)
        mine = {key: value for file in part.files.values() for key, value in file.items()}
        assert sum(tensor.numel() for tensor in mine.values()) <= total / ranks + largest
        assert not seen.keys() & mine.keys()
        seen |= mine
    assert seen.keys() == expected.keys()
    assert all(torch.equal(seen[key], expected[key]) for key in expected)


def test_a_copy_does_not_follow_training() -> None:
    engine = attach(SingleEngine(torch.device("cpu")), make_network())
    part = copy_part(engine, state_at(10), None)
    before = {key: tensor.clone() for key, tensor in tensors_of(engine).items()}
    with torch.no_grad():
        for tensor in tensors_of(engine).values():
            tensor.add_(1)
    copied = {key: value for file in part.files.values() for key, value in file.items()}
    assert all(torch.equal(copied[key], before[key]) for key in before)


class Threads:
    """Connects ranks that are threads of one process, as `HostGroup` connects processes."""

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks)
        self._values: list[Any] = [None] * ranks

    def group(self, rank: int) -> "Threads.Group":
        return Threads.Group(self, rank)

    class Group:
        def __init__(self, all_ranks: "Threads", rank: int) -> None:
            self._all, self._rank = all_ranks, rank

        def gather(self, value: Any) -> list[Any]:
            self._all._values[self._rank] = value
            self._all._barrier.wait()
            values = list(self._all._values)
            self._all._barrier.wait()
            return values

        def sum(self, values: list[float]) -> list[float]:
            return [sum(each) for each in zip(*self.gather(values), strict=True)]


class ThreadRank(ReplicatedEngine):
    """One of many ranks in a process; all share the network and optimizer of another engine."""

    rank, ranks = 0, 1

    def __init__(self, rank: int, threads: Threads, ranks: int, other: Any) -> None:
        super().__init__()
        self.rank, self.ranks = rank, ranks  # type: ignore[misc]
        self.make_host_group = lambda: threads.group(rank)  # type: ignore
        self._lightning_module, self._optimizers = other._lightning_module, other._optimizers


def save_with(ranks: int, folder: Path, network: nn.Module, **options: Any) -> list[bool]:
    """Save one checkpoint by the real `Saver` of so many ranks; return what each was told."""
    threads = Threads(ranks)
    shared = attach(SingleEngine(torch.device("cpu")), network)
    engines = [ThreadRank(rank, threads, ranks, shared) for rank in range(ranks)]
    savers = [saver(folder, engine, [], **options) for engine in engines]  # type: ignore[arg-type]
    for rank, writer in enumerate(savers):
        writer.start(state_at(10), torch.full((2, 2, 1, 3), float(rank)))
    return [writer.wait() for writer in savers]


class CountedReads(SavedParameters):
    """Counts the elements that one rank reads."""

    elements = 0

    def whole(self, key: str) -> Tensor:
        found = super().whole(key)
        self.elements += found.numel()
        return found


@pytest.mark.parametrize("ranks", [64, 256])
def test_a_checkpoint_of_many_ranks_is_read_in_shares_by_any_number(
    tmp_path: Path, ranks: int
) -> None:
    network = make_network()
    assert save_with(ranks, tmp_path, network) == [True] * ranks
    saved = newest_good(tmp_path, pytest.fail)
    assert saved is not None
    expected = tensors_of(attach(SingleEngine(torch.device("cpu")), network))
    shapes = {name: part.shape for name, part in network.named_parameters()}
    for readers in (1, 12):
        engine = attach(ReplicatedEngine(), make_network())
        for tensor in tensors_of(engine).values():
            tensor.zero_()
        total = sum(tensor.numel() for tensor in expected.values())
        for rank in range(readers):  # into one network: each rank reads what it would send
            with fake_rank(rank, readers):
                reads = CountedReads(saved, shapes)
                engine.restore(reads, 9)
                assert reads.elements <= total / readers + 3 * 300 * 12
        found = tensors_of(engine)
        assert all(torch.equal(found[key], expected[key]) for key in expected)
    carried = [read_carried(saved, rank, 32) for rank in range(32)]
    streams = torch.cat([part for part in carried if part is not None], 2)[0, 0, :, 0]
    assert streams.tolist() == list(range(ranks))


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """One file with all weights; the moments of every second parameter in a file per rank."""
    expected = tensors_of(attach(SingleEngine(torch.device("cpu")), make_network()))
    weights = [key for key in expected if "/" not in key]
    files: dict[str, list[str]] = {"weights.safetensors": weights}
    for rank in range(2):
        keys = [f"{moment}/{name}" for name in weights[rank::2] for moment in MOMENTS]
        files[f"moments-{rank:05d}-of-00002.safetensors"] = keys
    for file, keys in files.items():
        saving.save_file({key: expected[key] for key in keys}, tmp_path / file)
    engine = attach(SingleEngine(torch.device("cpu")), make_network())
    for tensor in tensors_of(engine).values():
        tensor.zero_()
    shapes = {name: expected[name].shape for name in weights}
    engine.restore(SavedParameters(tmp_path, shapes), 9)
    assert all(torch.equal(tensor, expected[key]) for key, tensor in tensors_of(engine).items())
    stated = json.loads(state_at(10).as_json()) | {"format": 1}
    (tmp_path / "state.json").write_text(json.dumps(stated))
    assert read_state(tmp_path) == state_at(10)


def test_slices_of_a_saved_tensor_are_those_of_the_flattened_one(tmp_path: Path) -> None:
    network = make_network()
    save_with(3, tmp_path, network)
    shapes = {name: part.shape for name, part in network.named_parameters()}
    parameters = SavedParameters(tmp_path / "00000010", shapes)
    for name in ("0.weight", "1.bias"):
        whole = torch.cat([parameters.whole(f"exp_avg/{name}").flatten(), torch.zeros(40)])
        for start, length in ((0, 5), (7, 12), (11, 14), (0, len(whole)), (len(whole) - 45, 20)):
            part = parameters.flat(f"exp_avg/{name}", start, length)
            assert torch.equal(part, whole[start : start + length])
        beyond = parameters.flat(f"exp_avg/{name}", len(whole), 3)
        assert torch.equal(beyond, torch.zeros(3))


def test_one_rank_of_many_that_cannot_write_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = saving.save_file

    def refuse(tensors: dict[str, Tensor], path: Path) -> None:
        if path.name == "moments-00005-of-00008.safetensors":
            raise OSError(28, "No space left on device")
        write(tensors, path)

    monkeypatch.setattr(saving, "save_file", refuse)
    assert save_with(8, tmp_path, make_network()) == [False] * 8
    assert list(tmp_path.iterdir()) == []


class Held:
    """A disk that writes nothing until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.released = threading.Event(), threading.Event()
        write = saving.save_file

        def hold(tensors: dict[str, Tensor], path: Path) -> None:
            self.asked.set()
            assert self.released.wait(60)
            write(tensors, path)

        monkeypatch.setattr(saving, "save_file", hold)


def test_training_goes_on_while_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, disk = Engine(), Held(monkeypatch)
    writer = saver(tmp_path, engine, [])
    writer.start(state_at(10))
    assert disk.asked.wait(60)
    writer.check()
    engine.value = 2.0  # the next steps
    assert checkpoints(tmp_path) == []  # it does not exist before it is whole
    disk.released.set()
    writer.close()  # also the way out after an error of training
    (saved,) = checkpoints(tmp_path)
    assert damage(saved) is None
    shapes = dict.fromkeys(("a.weight", "b.bias"), torch.Size((3, 2)))
    assert SavedParameters(saved, shapes).whole("a.weight").unique().tolist() == [1.0]


def test_the_next_checkpoint_waits_for_the_one_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, disk = Engine(), Held(monkeypatch)
    writer = saver(tmp_path, engine, [])
    writer.start(state_at(10))
    copied = threading.Event()
    engine.state = lambda: copied.set() or iter(())  # type: ignore
    second = threading.Thread(target=lambda: save(writer, state_at(20)))
    second.start()
    assert disk.asked.wait(60) and not copied.is_set()  # one copy in memory at a time
    disk.released.set()
    second.join(60)
    assert copied.is_set()
    assert [path.name for path in checkpoints(tmp_path)] == ["00000010", "00000020"]


def test_an_orphaned_launch_learns_it_at_its_next_step(tmp_path: Path) -> None:
    def fence() -> None:
        raise SesameError("another launch has taken over")

    writer: Saver = saver(tmp_path, Engine(), [], fence=fence)
    writer.start(state_at(10))
    writer.close()
    with pytest.raises(SesameError, match="taken over"):
        writer.check()
    assert checkpoints(tmp_path) == []
