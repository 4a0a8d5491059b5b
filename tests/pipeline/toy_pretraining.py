"""A toy pretraining for tests: counting sequences as examples, a small BERT, and many runs in one
pair of processes, because importing Lightning and DeepSpeed takes longer than training the toy.

As a script it is one rank: `python toy_pretraining.py <plan.json>`.
"""

import json
import math
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.errors import SesameError
from data_prep.examples.chunks import Chunk, ChunkWriter
from data_prep.examples.config import ExamplesConfig
from pipeline.config.schema import Config, TrackingConfig
from pipeline.models.bert.config import BertConfig
from pipeline.stages.pretrain import Pretrain
from pipeline.store.checkpoints import CHECKPOINTS
from pipeline.training.checkpoint import before_divergence, newest_good
from pipeline.training.config import OptimConfig, PhaseConfig, PretrainConfig, TrainerConfig
from pipeline.training.environment import local_variables
from pipeline.training.exits import REPORTS, Diverged
from pipeline.training.job import Job
from pipeline.training.rank import train
from pipeline.training.stopping import StopRequest
from pipeline.workflow.stage import Work
from tests.small_disk import resize

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = 60
VOCABULARY = [*SPECIALS, *(f"p{number}" for number in range(PIECES))]


def toy_rows(rng: np.random.Generator, count: int, longest: int, static: bool) -> Chunk:
    """Rows that count upwards; the second segment goes on counting, or starts anywhere."""
    tokens, lengths, second, labels = [], [], [], []
    targets: list[np.ndarray] = []
    for _ in range(count):
        half = int(rng.integers(longest // 4, longest // 2 - 2))
        start, label = int(rng.integers(PIECES)), int(rng.integers(2))
        other = int(rng.integers(PIECES)) if label else start + half
        first_half = (start + np.arange(half)) % PIECES + len(SPECIALS)
        second_half = (other + np.arange(half)) % PIECES + len(SPECIALS)
        row = np.concatenate([[2], first_half, [3], second_half, [3]])
        tokens.append(row)
        lengths.append(len(row))
        second.append(half + 2)
        labels.append(label)
        targets.append(np.sort(rng.choice(np.arange(1, half + 1), 2, replace=False)))
    masks: dict[str, Any] = {}
    if static:
        masks = {
            "target": np.concatenate(targets).astype("<u2"),
            "target_examples": np.arange(0, 2 * count + 1, 2, dtype="<i4"),
            "input": np.full(2 * count, 4, "<u2"),
        }
    return Chunk(
        tokens=np.concatenate(tokens).astype("<u2"),
        row_examples=np.arange(count + 1, dtype="<i4"),
        example_tokens=np.concatenate([[0], np.cumsum(lengths)]).astype("<i4"),
        second=np.array(second, "<u2"),
        label=np.array(labels, "|i1"),
        coin=np.ones(count, "|i1"),
        documents=np.zeros((count, 2), "<u4"),
        **masks,
    )


def write_examples(folder: Path, longest: int) -> Path:
    """A folder as the examples stage leaves it."""
    folder.mkdir(parents=True)
    for seed, (split, rows) in enumerate({"train": 256, "heldout": 48}.items()):
        static = split == "heldout"
        with ChunkWriter(
            folder, split, shard_size=1 << 20, chunk_rows=16,
            vocab_size=len(VOCABULARY), static=static,
        ) as writer:  # fmt: skip
            writer.add(toy_rows(np.random.default_rng(seed), rows, longest, static))
    return folder


@dataclass(frozen=True)
class Toy:
    """Inputs shared by all toy runs, and a place for them."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> "Toy":
        write_examples(root / "examples" / "short", 24)
        write_examples(root / "examples" / "long", 40)
        (root / "tokenizer").mkdir()
        (root / "tokenizer" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        return cls(root)

    def work(self, name: str, config: Config) -> Work:
        """A pretraining of this config in a directory called `name`."""
        out = self.root / "runs" / name
        out.mkdir(parents=True, exist_ok=True)
        inputs = {
            "tokenizer": self.root / "tokenizer",
            "examples.0": self.root / "examples" / "short",
            "examples.1": self.root / "examples" / "long",
        }
        return Work(config, inputs, out, name)


def toy_config(
    two_phases: bool = False,
    lr: float = 3e-3,
    dropout: float = 0.0,
    optim: dict[str, Any] | None = None,
    masks: dict[str, Any] | None = None,
    **trainer: Any,
) -> Config:
    """Eight steps of a BERT with two layers; a checkpoint every four."""
    phases = [PhaseConfig(24, 0.5), PhaseConfig(40, 0.5)] if two_phases else []
    defaults: dict[str, Any] = {
        "global_batch_size": 16,
        "max_steps": 8,
        "log_every": 1,
        "eval_every": 4,
        "checkpoint_every": 4,
        "keep_checkpoints": 3,
        "shuffle_window": 2,
        "seed": 0,
        "timeout_minutes": 5.0,
    }
    config = Config(
        model=BertConfig(
            layers=2, hidden=30, heads=2, intermediate=50, max_positions=64,
            dropout=dropout, attention_dropout=dropout,
        ),
        optim=OptimConfig(**({"lr": lr, "warmup": 0.2} | (optim or {}))),
        examples=ExamplesConfig(**(masks or {})),
        trainer=TrainerConfig(**(defaults | trainer)),
        pretrain=PretrainConfig(phases),
        tracking=TrackingConfig(mode="disabled"),
    )  # fmt: skip
    config.trainer.check()
    return config


@dataclass(frozen=True)
class Leg:
    """One training of a plan: a run directory, and what happens to it."""

    run_dir: str
    copy_of: str | None = None  # start from this run's checkpoint `step`
    step: int = 0
    goes_on: bool = False  # start from its own newest checkpoint
    signal: int = 0  # that ranks `hit` send to themselves after a step or two
    poison: tuple[int, ...] = ()  # the steps at which ranks `hit` multiply the loss by `factor`
    factor: float = math.nan
    poison_evaluation: tuple[int, ...] = ()  # the same for held-out evaluations after these steps
    diverges: bool = False  # because of the poison; it is then rolled back, and runs without it
    stops_with: str = ""  # what every rank says when it stops
    file_limit: int = 0  # bytes that ranks `hit` can write to a file
    fills_disk: bool = False  # the run lies on a disk too small for its second checkpoint
    disk: int = 0  # kilobytes that this disk then gets
    hit: tuple[int, ...] = ()
    stop_at: int | None = None  # it is a rehearsal that ends after this step


def run_pair(legs: list[Leg], plan: Path) -> None:
    """Train all legs in turn in one pair of processes, as the launcher would each of them."""
    plan.write_text(json.dumps([vars(leg) for leg in legs]))
    environment = dict(os.environ) | local_variables(TrainerConfig(strategy="ddp", devices=2))
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(plan)],
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=600)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(outputs)


def copy_checkpoint(source: Path, target: Path, step: int) -> None:
    """Make `target` a run that was killed after the source run's checkpoint `step`."""
    name = f"{step:08d}"
    shutil.copytree(source / "checkpoints" / name, target / "checkpoints" / name)
    for journal in ("metrics.jsonl", "timing.jsonl"):
        shutil.copy(source / journal, target)


def lines(run: Path) -> list[dict[str, Any]]:
    """What a run's metrics.jsonl says."""
    path = run / "metrics.jsonl"
    if not path.exists():
        return []
    return [
        json.loads(line)
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]


def last_step(run: Path) -> int:
    """The last step a run has told about."""
    return max((line["step"] for line in lines(run)), default=0)


def start_run(toy: Toy, name: str, **config: Any) -> subprocess.Popen[str]:
    """Run the stage in a process of its own, as the command would; its stderr is kept."""
    call = f"run_toy(Path({str(toy.root)!r}), {name!r}, {config!r})"
    return subprocess.Popen(
        [sys.executable, "-c", f"from tests.pipeline.toy_pretraining import *; {call}"],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
    )


def run_toy(root: Path, name: str, config: dict[str, Any]) -> None:
    """The stage on toy data, and errors as the command line shows them."""
    try:
        Pretrain().run(Toy(root).work(name, toy_config(**config)))
    except SesameError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def _train_leg(leg: Leg, rank: int) -> None:
    run_dir = Path(leg.run_dir)
    job = Job.read(run_dir)
    if job.trainer.strategy == "single" and rank:
        return
    if rank == 0:
        if leg.disk:
            resize(run_dir, leg.disk)
        if leg.copy_of is not None:
            copy_checkpoint(Path(leg.copy_of), run_dir, leg.step)
        if leg.copy_of is not None or leg.goes_on:
            newest = newest_good(run_dir / CHECKPOINTS, print)
            job = replace(job, checkpoint=newest.name if newest else None)
        (run_dir / REPORTS).mkdir(exist_ok=True)
        replace(job, stop_at=leg.stop_at).write(run_dir)
    if dist.is_initialized() and job.trainer.strategy != "single":
        dist.barrier()
    stop = StopRequest()
    stop.listen()
    with ExitStack() as stack:
        if rank in leg.hit and leg.signal:
            stack.callback(_signal_soon(run_dir, leg.signal).join)
        if rank in leg.hit:
            stack.enter_context(_poisoned(leg.poison, leg.poison_evaluation, leg.factor))
        if rank in leg.hit and leg.file_limit:
            stack.enter_context(_file_limit(leg.file_limit))
        try:
            finished = train(run_dir, stop)
        except Diverged as error:
            assert leg.diverges
            diverged = error
        except SesameError as error:
            full = "could not be saved" if leg.file_limit or leg.fills_disk else ""
            expected = full or leg.stops_with
            assert expected and expected in str(error), error
        else:
            assert not (leg.diverges or leg.file_limit or leg.fills_disk or leg.stops_with)
            assert finished == (leg.signal == 0 and leg.stop_at is None), leg
    if leg.diverges:
        if rank == 0:
            good = before_divergence(run_dir / CHECKPOINTS, print)
            checkpoint = good.name if good else None
            replace(job, checkpoint=checkpoint, skip=diverged.dropped).write(run_dir)
        dist.barrier()
        assert train(run_dir, stop)


def _signal_soon(run_dir: Path, number: int) -> threading.Thread:
    begun = last_step(run_dir)

    def watch() -> None:
        while last_step(run_dir) <= begun:
            time.sleep(0.002)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@contextmanager
def _poisoned(steps: Sequence[int], evaluations: Sequence[int], factor: float) -> Iterator[None]:
    healthy = TrainingModule.forward

    def poisoned(self: TrainingModule, batch: Any) -> Any:
        losses = healthy(self, batch)
        if self.state.step in (steps if torch.is_grad_enabled() else evaluations):
            return losses._replace(mlm_sum=losses.mlm_sum * factor)
        return losses

    TrainingModule.forward = poisoned  # type: ignore[method-assign]
    yield
    TrainingModule.forward = healthy  # type: ignore[method-assign]


@contextmanager
def _file_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


if __name__ == "__main__":
    import torch
    import torch.distributed as dist

    from pipeline.training import strategy
    from pipeline.training.train_step import TrainingModule

    strategy.PERSISTENT = 0  # else ZeRO 3 would keep the toy's small parameters on every rank
    for item in json.loads(Path(sys.argv[1]).read_text()):
        _train_leg(Leg(**item), int(os.environ["RANK"]))
