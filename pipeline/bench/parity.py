"""`sesame bench parity`: an encoder fine-tuned by Sesame and by transformers: scores, time, memory.

The task, the encoder and all settings are those of `sesame finetune`, on one CPU process, with
finetune.seed and the two seeds after it. The peer trains the encoder's folder with the class of
transformers for this kind of task (see `transformers_loop`), on the same examples and tokens, with
the same batch size, schedule and weight decay. Each side draws its own batches. Both sides evaluate
the development set after every epoch and score the test set with the weights of the best one (a
task without a test file: the development set, as its line says). Each side has its own process with
all threads; they alternate in turns of a second or two. Memory is each process's peak.
Try it: sesame bench parity encoder=/models/minilm task=wnut17 task.data_dir=/data/wnut17
"""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch

from data_prep.errors import UsageError
from pipeline.bench.figures import Figure, compared
from pipeline.bench.transformers_loop import KINDS, TransformersLoop
from pipeline.bench.turns import Spent, race
from pipeline.bench.usage import peak_bytes
from pipeline.config.schema import Config
from pipeline.encoders import load_encoder
from pipeline.stages.prepare_encoder import prepare_encoder
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.finetune_config import FinetuneConfig
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.kinds import make_answers
from pipeline.tasks.splits import Splits, read_splits

SEEDS = 3


class Job(NamedTuple):
    """One fine-tuning, as both sides do it."""

    folder: str  # of the encoder
    task: TaskConfig
    splits: Splits
    config: FinetuneConfig


class SideResult(NamedTuple):
    """Result of one side's fine-tuning."""

    score: float  # the task's metric on the test set
    peak: int  # bytes


def measure(config: Config) -> list[Figure]:
    """Return test scores over seeds, examples per second, and peak memory of both sides."""
    _check(config)
    folder = str(prepare_encoder("bench", config, [])["encoder"])
    task = replace(config.task, further_tests={}, unlabelled={})
    rounds: list[list[tuple[Spent, SideResult]]] = []
    trained = 0
    for seed in range(config.finetune.seed, config.finetune.seed + SEEDS):
        settings = replace(config.finetune, seed=seed, accelerator="cpu")
        job = Job(folder, task, read_splits(task, seed), settings)
        trained = len(job.splits.train) * settings.epochs
        rounds.append(race([partial(_Ours, job)], partial(_Peer, job)))
    ours, theirs = ([100 * runs[side][1].score for runs in rounds] for side in (0, 1))
    peaks = [max(runs[side][1].peak for runs in rounds) / 1e6 for side in (0, 1)]
    return [
        Figure(
            f"{task.metric} on {task.scored_split}, {SEEDS} seeds",
            fmean(ours), "%", fmean(theirs), None,
            f"deviations {stdev(ours):.1f}, {stdev(theirs):.1f}",
        ),
        compared(
            "training with its evaluations", trained, "examples/s",
            [(runs[0][0], runs[1][0]) for runs in rounds],
        ),
        Figure("peak memory", peaks[0], "MB", peaks[1], peaks[1] / peaks[0]),
    ]  # fmt: skip


def _check(config: Config) -> None:
    """Raise UsageError for a task or settings that the peer does not have."""
    task, settings = config.task, config.finetune
    if task.train is None or task.kind not in KINDS:
        raise UsageError(f"task={task.name}: bench parity takes tasks of kind {', '.join(KINDS)}")
    if task.class_weights is not None:
        raise UsageError("task.class_weights: bench parity: the peer weighs all classes alike")
    if len(config.encoders) != 1 or config.encoder is None:
        raise UsageError(f"encoder={config.encoder}: bench parity takes one folder or run")
    plain = replace(
        FinetuneConfig(), lr=settings.lr, batch_size=settings.batch_size, epochs=settings.epochs,
        seed=settings.seed, warmup=settings.warmup, weight_decay=settings.weight_decay,
        clip=settings.clip, max_seq_length=settings.max_seq_length,
        accelerator=settings.accelerator, checkpoint_minutes=settings.checkpoint_minutes,
    )  # fmt: skip
    if settings != plain or settings.clip == 0:
        raise UsageError(
            "bench parity: the peer has finetune.lr, batch_size, epochs, seed, warmup, "
            "weight_decay, clip (above 0) and max_seq_length; leave the other finetune keys out"
        )


class _Ours:
    """The work of `sesame finetune` after its files are read."""

    def __init__(self, job: Job) -> None:
        self._job, self._encoder = job, load_encoder(Path(job.folder))

    def __call__(self) -> SideResult:
        """Train and score."""
        job = self._job
        outcome = finetune(self._encoder, job.splits, job.task, job.config)
        return SideResult(outcome.scores[job.task.metric], peak_bytes())


class _Peer:
    """The same by transformers' class, from its pretrained weights."""

    def __init__(self, job: Job) -> None:
        import transformers

        task, splits = job.task, job.splits
        kind = "TokenClassification" if task.kind == "tag" else "SequenceClassification"
        self._answers = make_answers(task, splits.labels, splits.train)
        torch.manual_seed(job.config.seed)
        model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
            job.folder, num_labels=self._answers.outputs, local_files_only=True
        )
        encoder = load_encoder(Path(job.folder))
        longest = job.config.max_seq_length
        self._train, self._dev, self._test = (
            self._answers.encode(encoder, part, longest)
            for part in (splits.train, splits.dev, splits.test)
        )
        self._metric = task.metric
        self._loop = TransformersLoop(model, job.config, model.config.pad_token_id)

    def __call__(self) -> SideResult:
        """Train, keep the weights of the best epoch, and score."""
        best, weights = -math.inf, {}
        for _ in self._loop.epochs(self._train):
            score = self._score(self._dev)
            if score > best:
                state = self._loop.model.state_dict()
                best, weights = score, {name: value.clone() for name, value in state.items()}
        self._loop.model.load_state_dict(weights)
        return SideResult(self._score(self._test), peak_bytes())

    def _score(self, data: Any) -> float:
        guesses = self._answers.decode(self._loop.outputs(data), data)
        return self._answers.score(data.examples, guesses)[self._metric]
