"""Builds everything that one rank trains with: network, data, engine and callbacks.

Reads the tokenizer and the examples that the `Job` names, and the checkpoint to resume from.
`assemble` is the entry; `rank.train` calls it and hands the `Run` to Lightning.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from data_prep.examples.chunks import ChunkStore
from data_prep.examples.masking import Vocabulary
from data_prep.tokenizers import Tokenizer
from pipeline.data.cursor import BatchSchedule, Cursor, Identity, check
from pipeline.data.loader import HeldOut, Loader, Step
from pipeline.data.order import Order
from pipeline.data.streams import HeldOutStreams, StreamLoader, StreamSlice, Words
from pipeline.models.config import BertConfig, ElmoConfig, ModelConfig
from pipeline.models.flops import elmo_flops_per_word, flops_per_token
from pipeline.store.checkpoints import CHECKPOINTS
from pipeline.store.journal import Journal
from pipeline.tracking.tracker import Tracker
from pipeline.tracking.training import Training
from pipeline.training.callbacks import (
    Checkpoints,
    Evaluation,
    Metrics,
    ProgressBar,
    Watchdog,
)
from pipeline.training.checkpoint import TrainingState, read_state
from pipeline.training.job import Job
from pipeline.training.network import make_network, start_from
from pipeline.training.objective import AnyBatch
from pipeline.training.saving import Saver, read_carried, read_parameters
from pipeline.training.schedule import Phase, phase_at, plan_phases
from pipeline.training.speed import Cost, Meter, Reference, Timed, peak_flops
from pipeline.training.strategy import Engine, make_engine
from pipeline.training.sums import Sums
from pipeline.training.train_step import Pretraining

EVALUATION_ROWS = 64  # rows per forward pass if trainer.micro_batch_size is not set


@dataclass(frozen=True)
class Run:
    """The parts that Lightning's trainer needs. `close` must be called at the end."""

    module: Pretraining
    engine: Engine
    steps: Timed
    callbacks: list[Callback]
    watchdog: Watchdog
    close: Callable[[], None]


@dataclass(frozen=True)
class Data:
    """The examples of all phases, and this rank's way of reading them."""

    job: Job
    stores: list[ChunkStore]
    phases: list[Phase]
    identities: list[Identity]
    rank: int

    def steps(self, start: TrainingState) -> Iterator[Step]:
        """Yield every optimizer step from `start` to the end of the last phase."""
        first = phase_at(self.phases, start.step)
        for phase in self.phases[self.phases.index(first) :]:
            goes_on = phase == first
            yield from self._loader(
                phase,
                step=start.step if goes_on else phase.first,
                position=start.cursor.position if goes_on else 0,
                skipped=start.skipped_in(phase.number),
            )

    def _loader(self, phase: Phase, **place: Any) -> Iterable[Step]:
        trainer, store = self.job.trainer, self.stores[phase.number]
        if isinstance(self.job.model, ElmoConfig):
            return StreamLoader(
                store,
                self._words(self.job.model),
                self._share(),
                self.job.model.window,
                micro_batch_size=self._micro_batch_size(phase.number),
                stop=phase.end,
                **place,
            )
        return Loader(
            store,
            Order(store.rows_per_chunk, trainer.seed, trainer.shuffle_window),
            Vocabulary.of(Tokenizer.load(Path(self.job.tokenizer))),
            self.job.masks,
            BatchSchedule(trainer.global_batch_size, trainer.ramp_steps),
            rank=self.rank,
            world=trainer.world_size,
            micro_batch_size=self._micro_batch_size(phase.number),
            stop=phase.end,
            workers=trainer.loader_workers,
            **place,
        )

    def held_out(self, phase: int) -> Iterable[AnyBatch]:
        """Return this rank's held-out batches, in the sequence length of phase number `phase`."""
        trainer, model = self.job.trainer, self.job.model
        store = ChunkStore(Path(self.job.examples[phase]), "heldout")
        sizes: dict[str, int] = {
            "rows": trainer.eval_rows,
            "micro_batch_size": self._micro_batch_size(phase) or EVALUATION_ROWS,
        }
        if isinstance(model, ElmoConfig):
            return HeldOutStreams(store, self._words(model), self._share(), model.window, **sizes)
        return HeldOut(store, rank=self.rank, world=trainer.world_size, **sizes)

    def _share(self) -> StreamSlice:
        trainer = self.job.trainer
        return StreamSlice(trainer.global_batch_size, self.rank, trainer.world_size)

    def _words(self, model: ElmoConfig) -> Words:
        return _load_words(self.job.tokenizer, self.job.vocab_size, model.max_characters)

    def _micro_batch_size(self, phase: int) -> int | None:
        return self.job.phases[phase].micro_batch_size or self.job.trainer.micro_batch_size


def open_data(job: Job, rank: int) -> Data:
    """Open the training examples of a job and fix the steps of each phase.

    Raises `UsageError` if the job has no usable budget.
    """
    stores = [ChunkStore(Path(folder), "train") for folder in job.examples]
    phases = plan_phases(
        job.trainer,
        [phase.share for phase in job.phases],
        [_tokens_per_row(job, store) for store in stores],
    )
    identities = [
        Identity(
            examples=Path(folder).name,
            shards=store.digest,
            seed=job.trainer.seed,
            shuffle_window=job.trainer.shuffle_window,
            global_batch_size=job.trainer.global_batch_size,
            ramp_steps=job.trainer.ramp_steps,
        )
        for folder, store in zip(job.examples, stores, strict=True)
    ]
    return Data(job, stores, phases, identities, rank)


@lru_cache(maxsize=1)  # shared by training and every evaluation
def _load_words(tokenizer: str, predicted: int, max_characters: int) -> Words:
    return Words.of(Tokenizer.load(Path(tokenizer)), predicted, max_characters)


def _tokens_per_row(job: Job, store: ChunkStore) -> float:
    """Return the mean tokens per row: a window of a stream (ELMo), or a stored row (BERT)."""
    if isinstance(job.model, ElmoConfig):
        return job.model.window
    return store.tokens / max(store.rows, 1)


class Start(Callback):
    """Prepares training before the first step.

    Creates the optimizer state, loads the checkpoint if there is one, and appends a line about this
    launch to launches.jsonl (rank 0).
    """

    def __init__(self, checkpoint: Path | None, launches: Journal) -> None:
        self._checkpoint, self._launches = checkpoint, launches

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Pretraining)
        engine = pl_module.engine
        engine.prepare()
        if self._checkpoint is not None:
            parameters = read_parameters(self._checkpoint, pl_module.shapes)
            engine.restore(parameters, pl_module.state.updates)
            carried = read_carried(self._checkpoint)
            if carried is not None:
                pl_module.objective.restore(carried.to(pl_module.device), engine.rank)
        if engine.rank == 0:
            self._launches.append(
                {
                    "step": pl_module.state.step,
                    "time": datetime.now(UTC).isoformat(timespec="seconds"),
                    "ranks": engine.ranks,
                    "strategy": pl_module.config.strategy,
                }
            )


def assemble(
    job: Job, run_dir: Path, rank: int, accelerator: str, stop_requested: Callable[[], bool],
    say: Callable[[str], None],
) -> Run:  # fmt: skip
    """Build the run of one rank, positioned in the data where the checkpoint left off.

    job             the resolved config and the folders to read
    run_dir         the run's folder; rank 0 cuts its journals back to the checkpoint's step
    accelerator     cpu, cuda or mps
    stop_requested  polled once per step
    say             prints one line for the user

    Every rank must call it with the same job. Raises `SesameError` if the checkpoint was made with
    other data.
    """
    trainer = job.trainer
    data = open_data(job, rank)
    checkpoint = run_dir / CHECKPOINTS / job.checkpoint if job.checkpoint else None
    state = _state(checkpoint, data)
    network, objective = make_network(job)
    if checkpoint is None:
        start_from(network, job, say)
    if trainer.compile:
        network.compile(dynamic=True)
    module = Pretraining(
        network, objective, job.optim, trainer, state, data.phases, data.identities, stop_requested
    )
    engine = make_engine(
        trainer.strategy,
        accelerator,
        job.optim.clip,
        timedelta(minutes=trainer.timeout_minutes + 1),
    )
    fence = partial(job.check_current, run_dir)
    metrics = Journal(run_dir / "metrics.jsonl", fence)
    timing = Journal(run_dir / "timing.jsonl", fence)
    if rank == 0:
        metrics.cut(state.step)
        timing.cut(state.step)
    tracker = None
    if rank == 0:
        training = Training.in_folder(job.name, run_dir)
        tracker = Tracker(job.tracking, training, state.step, say)
    track: Callable[[dict[str, Any]], None] = tracker.log if tracker else _nowhere
    steps = Timed(data.steps(state))
    inner, outer = _largest_product(job.model)
    meter = Meter(
        steps,
        costs(data),
        Reference(partial(peak_flops, precision=trainer.precision, inner=inner, outer=outer)),
    )
    saver = Saver(
        run_dir / CHECKPOINTS,
        engine,
        trainer.keep_checkpoints,
        trainer.keep_every,
        fence,
        say,
    )
    bar, watchdog = ProgressBar(), Watchdog(trainer.timeout_minutes)

    def close() -> None:
        bar.close()
        watchdog.stop()
        if tracker:
            tracker.close()

    callbacks = [
        Start(checkpoint, Journal(run_dir / "launches.jsonl", fence)),
        Metrics(metrics, timing, meter, trainer.log_every, track),
        Evaluation(data.held_out, trainer.eval_every, job.source is not None, metrics, track, say),
        Checkpoints(saver, trainer.checkpoint_every, [metrics, timing]),
        bar,
        watchdog,
    ]
    return Run(module, engine, steps, callbacks, watchdog, close)


def _largest_product(model: ModelConfig) -> tuple[int, int]:
    """Return (inner, outer) of the matrix product that dominates a training step."""
    if isinstance(model, ElmoConfig):
        return model.projection, 4 * model.cell
    assert isinstance(model, BertConfig)
    return model.hidden, model.intermediate


def costs(data: Data) -> list[Cost]:
    """Return the training cost of a row, per phase."""
    model, vocab_size = data.job.model, data.job.vocab_size
    if isinstance(model, ElmoConfig):
        word = elmo_flops_per_word(model, vocab_size)
        return [Cost(model.window, lambda sums: word * sums.tokens) for _ in data.stores]
    assert isinstance(model, BertConfig)
    bert = model

    def flops(store: ChunkStore, sums: Sums) -> float:
        mean_length = store.tokens / max(store.examples, 1)
        predicted = sums.predictions / max(sums.tokens, 1)
        return flops_per_token(bert, vocab_size, mean_length, predicted) * sums.tokens

    return [
        Cost(phase.max_seq_length, partial(flops, store))
        for phase, store in zip(data.job.phases, data.stores, strict=True)
    ]


def _state(checkpoint: Path | None, data: Data) -> TrainingState:
    if checkpoint is None:
        state = TrainingState(Cursor(data.phases[0].number, 0, (), data.identities[0]))
    else:
        state = read_state(checkpoint)
        check(state.cursor, data.identities[state.cursor.phase], str(checkpoint))
    skip = data.job.skip
    if skip is not None:
        state.skip(skip.phase, skip.start, skip.stop)
    return state


def _nowhere(line: dict[str, Any]) -> None:
    """Discard a metrics line: only rank 0 tracks."""
