"""Checkpoints: whole or not at all, checked before use, the last few kept."""

import errno
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
import torch

from data_prep.errors import SesameError
from pipeline.config.schema import Config
from pipeline.data.cursor import Cursor, Identity
from pipeline.export.weights import read_weights
from pipeline.models.sums import Sums
from pipeline.stages.pretrain import Pretrain
from pipeline.store.checkpoints import checkpoints
from pipeline.store.journal import Journal
from pipeline.training.checkpoint import TrainingState, damage, newest_good, read_state
from pipeline.training.parameter_state import ParameterState
from pipeline.training.restoring import SavedParameters
from pipeline.training.saving import Saver
from pipeline.training.whole_engines import SingleEngine
from pipeline.workflow.stage import Work

IDENTITY = Identity("examples", "shards", 0, 32, 16, 0)


class Engine(SingleEngine):
    """An engine whose weights are what the test says."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.value = 1.0

    def state(self):  # type: ignore[no-untyped-def]
        for name in ("a.weight", "b.bias"):
            tensor = torch.full((3, 2), self.value)
            yield ParameterState(name, tensor, {"exp_avg": tensor * 2, "exp_avg_sq": tensor * 3})


def state_at(step: int) -> TrainingState:
    cursor = Cursor(0, step * 16, ((32, 48),), IDENTITY)
    window = Sums({"mlm_sum": 0.1 + step, "predictions": 3.0})
    return TrainingState(cursor, step, step - 1, 77, 1.5, [0.1, 0.2], 0, window)


def saver(folder: Path, engine: Engine, messages: list[str], **options: object) -> Saver:
    settings: dict[str, object] = {"keep": 2, "keep_every": None, "fence": lambda: None}
    return Saver(folder, engine, say=messages.append, **(settings | options))  # type: ignore[arg-type]


def save(writer: Saver, state: TrainingState) -> bool:
    """Save a checkpoint, and wait until it is there."""
    writer.start(state)
    return writer.wait()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Checkpoints of steps 10 and 20, with weights 1.0 and 2.0."""
    engine = Engine()
    writer = saver(tmp_path, engine, [])
    for step, engine.value in ((10, 1.0), (20, 2.0)):
        assert save(writer, state_at(step))
    return tmp_path


def test_a_checkpoint_gives_back_what_it_was_given(saved: Path) -> None:
    newest = newest_good(saved, pytest.fail)
    assert newest == saved / "00000020"
    assert read_state(newest) == state_at(20)
    shapes = {"a.weight": torch.Size((3, 2)), "b.bias": torch.Size((3, 2))}
    parameters = SavedParameters(newest, shapes)
    for name in shapes:
        assert parameters.moments(name) == ["exp_avg", "exp_avg_sq"]
        assert parameters.whole(name).unique().tolist() == [2.0]
        assert parameters.whole(f"exp_avg/{name}").unique().tolist() == [4.0]
        assert parameters.whole(f"exp_avg_sq/{name}").unique().tolist() == [6.0]
    assert set(read_weights([newest])) == set(shapes)


def test_rows_to_skip_in_a_later_phase_survive_a_checkpoint(tmp_path: Path) -> None:
    state = state_at(10)
    state.skip(1, 0, 32)
    state.skip(1, 32, 64)
    state.skip(0, 200, 232)
    assert save(saver(tmp_path, Engine(), []), state)
    found = read_state(tmp_path / "00000010")
    assert found == state
    assert found.cursor.skipped == found.skipped_in(0) == ((32, 48), (200, 232))
    assert found.skipped_in(1) == ((0, 64),)
    found.begin_phase(1, IDENTITY)
    assert found.cursor == Cursor(1, 0, ((0, 64),), IDENTITY)


def test_a_series_of_dropped_steps_goes_on_in_the_next_phase() -> None:
    """Else the checkpoint at the phase's start would pass for one from before the divergence."""
    state = state_at(10)
    state.dropped_steps, state.dropped_since = 3, 112
    state.begin_phase(1, IDENTITY)
    assert (state.dropped_steps, state.dropped_since) == (3, 0)
    state.dropped_steps, state.dropped_since = 0, None
    state.begin_phase(2, IDENTITY)
    assert state.dropped_since is None


@pytest.mark.parametrize(
    "name", ["weights-00000-of-00001.safetensors", "state.json", "checksums.json"]
)
@pytest.mark.parametrize("how", ["cut", "changed", "missing"])
def test_a_damaged_newest_falls_back_and_says_so(saved: Path, name: str, how: str) -> None:
    path = saved / "00000020" / name
    content = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[:-7])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    messages: list[str] = []
    good = newest_good(saved, messages.append)
    assert good == saved / "00000010"
    assert read_state(good) == state_at(10)
    assert len(messages) == 1
    assert "checkpoint 00000020 is damaged" in messages[0]
    # It is kept, under a name that neither counts among the newest nor gets into the manifest.
    assert checkpoints(saved) == [good]
    aside = saved / ".00000020.damaged"
    assert str(aside) in messages[0]
    assert aside.is_dir() and (how == "missing" or (aside / name).exists())


def test_the_best_checkpoint_stays_until_a_better_one_is_saved(tmp_path: Path) -> None:
    """Though the better one is known while one between them is written."""
    best, is_known = 10, threading.Event()
    writer = saver(
        tmp_path, Engine(), [], keep=1, best=lambda: best, fence=lambda: is_known.wait() and None
    )
    is_known.set()
    assert save(writer, state_at(10))
    is_known.clear()
    writer.start(state_at(20))
    best = 30
    is_known.set()
    assert writer.wait()
    assert [path.name for path in checkpoints(tmp_path)] == ["00000010", "00000020"]
    assert save(writer, state_at(30))
    assert [path.name for path in checkpoints(tmp_path)] == ["00000030"]


def test_a_damaged_checkpoint_is_kept_whatever_was_set_aside_before(saved: Path) -> None:
    (saved / ".00000020.damaged").mkdir()
    (saved / "00000020" / "state.json").unlink()
    assert newest_good(saved, lambda text: None) == saved / "00000010"
    engine = Engine()
    for step in range(30, 70, 10):
        assert save(saver(saved, engine, []), state_at(step))
    assert sorted(path.name for path in saved.iterdir()) == [
        ".00000020.damaged", ".00000020.damaged-2", "00000050", "00000060",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE])
def test_a_checkpoint_that_cannot_be_read_now_is_not_called_damaged(
    saved: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: Path) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("pipeline.training.checkpoint.sha256", refuse)
    before = sorted(saved.rglob("*"))
    with pytest.raises(SesameError) as caught:
        newest_good(saved, pytest.fail)
    assert os.strerror(number) in str(caught.value)
    assert str(saved / "00000020") in str(caught.value)
    assert "nothing was changed" in str(caught.value)
    assert sorted(saved.rglob("*")) == before


def test_a_run_whose_checkpoints_are_all_damaged_starts_over_only_when_told(saved: Path) -> None:
    for checkpoint in checkpoints(saved):
        (checkpoint / "weights-00000-of-00001.safetensors").unlink()
    messages: list[str] = []
    for _ in range(2):  # the second launch finds them set aside, and stops as well
        with pytest.raises(SesameError) as caught:
            newest_good(saved, messages.append)
        said = str(caught.value)
        assert ".00000010.damaged" in said and ".00000020.damaged" in said
        assert "start over" in said
    assert len(messages) == 2
    assert not any("going back" in message for message in messages)
    for aside in list(saved.iterdir()):
        shutil.move(aside, saved.parent / f"kept{aside.name}")  # the user's word
    assert newest_good(saved, pytest.fail) is None


def test_none_is_found_where_there_never_was_one(tmp_path: Path) -> None:
    assert newest_good(tmp_path / "nowhere", pytest.fail) is None


def test_pretraining_stops_before_its_ranks_start_where_no_checkpoint_is_good(
    saved: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(saved, run / "checkpoints", ignore=shutil.ignore_patterns("run"))
    for checkpoint in checkpoints(run / "checkpoints"):
        (checkpoint / "weights-00000-of-00001.safetensors").unlink()
    monkeypatch.setattr(
        "pipeline.training.launch.launch", lambda *arguments: pytest.fail("it starts over")
    )
    with pytest.raises(SesameError, match="start over"):
        Pretrain().run(Work(Config(), {}, run, "0" * 16))
    assert Pretrain().how_far(run) == "every checkpoint damaged"  # not "started": that is no start


def test_what_a_kill_leaves_behind_is_no_checkpoint(saved: Path) -> None:
    shutil.copytree(saved / "00000020", saved / ".00000030.tmp")
    assert newest_good(saved, pytest.fail) == saved / "00000020"
    engine = Engine()
    assert save(saver(saved, engine, []), state_at(30))
    assert newest_good(saved, pytest.fail) == saved / "00000030"
    assert not list(saved.glob(".*"))


def test_the_last_few_and_those_for_analysis_are_kept(tmp_path: Path) -> None:
    writer = saver(tmp_path, Engine(), [], keep_every=20)
    for step in range(10, 70, 10):
        save(writer, state_at(step))
    assert [int(path.name) for path in checkpoints(tmp_path)] == [20, 40, 50, 60]


def test_a_disk_that_refuses_leaves_the_old_ones_alone(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipeline.training.saving.save_file", refuse)
    messages: list[str] = []
    assert not save(saver(saved, Engine(), messages), state_at(30))
    assert messages == [
        "checkpoint not saved, training goes on: [Errno 28] No space left on device"
    ]
    assert [path.name for path in sorted(saved.iterdir())] == ["00000010", "00000020"]
    assert all(damage(path) is None for path in checkpoints(saved))


def test_an_orphaned_launch_cannot_write(saved: Path) -> None:
    def fence() -> None:
        raise SesameError("another launch has taken over")

    with pytest.raises(SesameError, match="taken over"):
        save(saver(saved, Engine(), [], fence=fence), state_at(30))
    assert [path.name for path in checkpoints(saved)] == ["00000010", "00000020"]


def test_another_model_is_refused_by_name(saved: Path) -> None:
    shape = torch.Size((3, 2))
    with pytest.raises(SesameError, match=r"at parameter b\.bias"):
        SavedParameters(saved / "00000020", {"a.weight": shape, "c.weight": shape})
    with pytest.raises(SesameError, match=r"a\.weight has shape \[3, 2\], the model's has \[5\]"):
        wrong = {"a.weight": torch.Size((5,)), "b.bias": shape}
        SavedParameters(saved / "00000020", wrong)


def test_a_journal_on_a_full_disk_says_what_to_do() -> None:
    with pytest.raises(SesameError, match=r"/dev/full cannot be written \(No space left.*room"):
        Journal(Path("/dev/full"), lambda: None).append({"step": 1})


def test_a_journal_is_cut_to_the_checkpoint(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "metrics.jsonl", lambda: None)
    for step in range(1, 6):
        journal.append({"step": step})
    with open(tmp_path / "metrics.jsonl", "a") as stream:
        stream.write('{"step": 6, "lo')  # a kill tears a line
    journal.cut(4)
    kept = (tmp_path / "metrics.jsonl").read_text()
    assert [json.loads(line)["step"] for line in kept.splitlines()] == [1, 2, 3, 4]
    Journal(tmp_path / "nothing.jsonl", lambda: None).cut(4)
