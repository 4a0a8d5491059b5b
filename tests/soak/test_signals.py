"""Every signal of preemption, to every set of ranks, twenty times, through the real launcher."""

import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from pipeline.store.checkpoints import checkpoints
from pipeline.training.checkpoint import damage
from pipeline.training.exits import INTERRUPTED
from tests.pipeline.toy_pretraining import Toy, last_step, start_run

TIMES = 20
STEPS = 2000  # more than all launches together take
RUN = {"strategy": "ddp", "devices": 2, "max_steps": STEPS, "eval_every": STEPS,
       "checkpoint_every": STEPS, "timeout_minutes": 1.0}  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A toy, and its run that nobody interrupts."""
    toy = Toy.make(tmp_path_factory.mktemp("toy"))
    run = start_run(toy, "undisturbed", **RUN)
    said = run.communicate(timeout=600)[1]
    assert run.returncode == 0, said
    return toy


@pytest.mark.soak
@pytest.mark.parametrize("hit", [(0, 1), (0,), (1,)], ids=["all ranks", "rank 0", "rank 1"])
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
def test_a_signal_saves_and_leaves(
    undisturbed: Toy, number: signal.Signals, hit: tuple[int, ...]
) -> None:
    draw = random.Random(f"{number}{hit}")
    name = f"{number.name} to {hit}"
    run = undisturbed.root / "runs" / name
    for _ in range(TIMES):
        interrupt(undisturbed, name, run, number, hit, draw.uniform(0, 0.5))
        newest = checkpoints(run / "checkpoints")[-1]
        assert damage(newest) is None
        assert int(newest.name) == last_step(run)
    finished = start_run(undisturbed, name, **RUN)
    said = finished.communicate(timeout=600)[1]
    assert finished.returncode == 0, said
    whole = undisturbed.root / "runs" / "undisturbed" / "metrics.jsonl"
    assert (run / "metrics.jsonl").read_bytes() == whole.read_bytes()


def interrupt(
    toy: Toy, name: str, run: Path, number: signal.Signals, hit: tuple[int, ...], later: float
) -> None:
    """Go on, let it take a few steps, and send the signal to these ranks only."""
    begun = last_step(run)
    launched = start_run(toy, name, **RUN)
    while last_step(run) <= begun:
        assert launched.poll() is None, launched.communicate()[1]
        time.sleep(0.005)
    time.sleep(later)
    ranks = {int(rank.environ()["RANK"]): rank for rank in psutil.Process(launched.pid).children()}
    for rank in hit:
        ranks[rank].send_signal(number)
    said = launched.communicate(timeout=120)[1]
    assert launched.returncode == INTERRUPTED, said
    assert not any(rank.is_running() for rank in ranks.values())
