"""Builds everything that one rank trains with: network, data, engine and callbacks.

Reads the tokenizer and the examples that the `Job` names, and the checkpoint to resume from.
`assemble` is the entry; `rank.train` calls it and hands the `Run` to Lightning.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from data_prep.examples.chunks import ChunkStore
from pipeline.data.cursor import BatchSchedule, Cursor, Identity, Place, check
from pipeline.data.loader import Step
from pipeline.data.strata import Stratum, read_strata
from pipeline.models.cost import RowCost
from pipeline.models.family import Feed
from pipeline.models.registry import family_of
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
from pipeline.training.engine import Engine
from pipeline.training.job import Job
from pipeline.training.network import make_network, start_from
from pipeline.training.probing import Probe
from pipeline.training.profiling import Profile
from pipeline.training.restoring import SavedParameters, read_carried
from pipeline.training.saving import Saver
from pipeline.training.schedule import Phase, phase_at, plan_phases
from pipeline.training.speed import Meter, Reference, Timed, peak_flops
from pipeline.training.strategy import make_engine
from pipeline.training.train_step import TrainingModule
from pipeline.training.updates import PretrainingUpdates

CUDA_WORKERS = 2  # loader processes per rank if trainer.loader_workers is not set
EVALUATION_ROWS = 64  # rows per forward pass if trainer.micro_batch_size is not set


@dataclass(frozen=True)
class Run:
    """The parts that Lightning's trainer needs. `close` must be called at the end."""

    module: TrainingModule
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
    workers: int  # loader processes of this rank

    def steps(self, start: TrainingState) -> Iterator[Step]:
        """Yield every optimizer step from `start` to the end of the last phase."""
        first = phase_at(self.phases, start.step)
        for phase in self.phases[self.phases.index(first) :]:
            goes_on = phase == first
            place = Place(
                step=start.step if goes_on else phase.first,
                position=start.cursor.position if goes_on else 0,
                skipped=start.skipped_in(phase.number),
                stop=phase.end,
            )
            feed = self._feed(self.stores[phase.number], phase.number)
            yield from family_of(self.job.model).steps(self.job.model, feed, place)

    def _feed(self, store: ChunkStore, phase: int) -> Feed:
        trainer = self.job.trainer
        micro_batch_size = self.job.phases[phase].micro_batch_size or trainer.micro_batch_size
        return Feed(
            store=store,
            tokenizer=Path(self.job.tokenizer),
            vocab_size=self.job.vocab_size,
            masks=self.job.masks,
            schedule=BatchSchedule(trainer.global_batch_size, trainer.ramp_steps),
            seed=trainer.seed,
            shuffle_window=trainer.shuffle_window,
            rank=self.rank,
            world=trainer.world_size,
            micro_batch_size=micro_batch_size,
            workers=self.workers,
            total_steps=self.phases[-1].end,
        )

    def held_out(self, phase: int) -> Iterable[Any]:
        """Return this rank's held-out batches, in the sequence length of phase number `phase`."""
        feed = self._held_out_feed(phase)
        return family_of(self.job.model).held_out(self.job.model, feed, self.job.trainer.eval_rows)

    def held_out_strata(self, phase: int) -> dict[str, Iterable[Any]]:
        """Return the batches of `held_out` by source and by language; empty without either.

        Streams (ELMo) cross documents and are not divided.
        """
        if not family_of(self.job.model).masks_tokens:
            return {}
        feed = self._held_out_feed(phase)
        assert feed.micro_batch_size is not None
        found = {
            name: Stratum(
                feed.store,
                documents,
                rows=self.job.trainer.eval_rows,
                micro_batch_size=feed.micro_batch_size,
                rank=feed.rank,
                world=feed.world,
            )
            for name, documents in read_strata(feed.store).items()
        }
        return {name: stratum for name, stratum in found.items() if len(stratum)}

    def _held_out_feed(self, phase: int) -> Feed:
        feed = self._feed(ChunkStore(Path(self.job.examples[phase]), "heldout"), phase)
        return replace(feed, micro_batch_size=feed.micro_batch_size or EVALUATION_ROWS)


def open_data(job: Job, rank: int, accelerator: str) -> Data:
    """Open the training examples of a job and fix the steps of each phase.

    Raises `UsageError` if the job has no usable budget.
    """
    stores = [ChunkStore(Path(folder), "train") for folder in job.examples]
    phases = plan_phases(
        job.trainer,
        [phase.share for phase in job.phases],
        [family_of(job.model).tokens_per_row(job.model, store) for store in stores],
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
    workers = job.trainer.loader_workers
    if workers is None:  # a GPU must not wait for the loader; CPU ranks need their cores themselves
        workers = CUDA_WORKERS if accelerator == "cuda" else 0
    return Data(job, stores, phases, identities, rank, workers)


class Start(Callback):
    """Prepares training before the first step.

    Creates the optimizer state, loads the checkpoint if there is one, and appends a line about this
    launch to launches.jsonl (rank 0).
    """

    def __init__(self, checkpoint: Path | None, launches: Journal) -> None:
        self._checkpoint, self._launches = checkpoint, launches

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        engine = pl_module.engine
        engine.prepare()
        if self._checkpoint is not None:
            saved = SavedParameters(self._checkpoint, pl_module.shapes)
            engine.restore(saved, pl_module.state.updates)
            carried = read_carried(self._checkpoint, engine.rank, engine.ranks)
            if carried is not None:
                pl_module.objective.restore(carried.to(pl_module.device))
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
    data = open_data(job, rank, accelerator)
    checkpoint = run_dir / CHECKPOINTS / job.checkpoint if job.checkpoint else None
    state = _state(checkpoint, data)
    network, objective = make_network(job)
    if checkpoint is None:
        start_from(network, job, say)
    if trainer.compile:
        network.compile(dynamic=True)
    steps = Timed(data.steps(state))
    module = TrainingModule(
        network,
        objective,
        PretrainingUpdates(job.optim, family_of(job.model).stacked_matrices),
        trainer,
        state,
        data.phases,
        data.identities,
        stop_requested,
        steps.next_step,
    )
    if job.optim.updates_rows(trainer.strategy):
        family = family_of(job.model)
        module.row_gradients = family.keep_row_gradients(job.model, network, job.vocab_size)
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
    inner, outer = family_of(job.model).cost(job.model, job.vocab_size).largest_product()
    meter = Meter(
        steps,
        row_costs(data),
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
        saver.close()
        watchdog.stop()
        if tracker:
            tracker.close()

    callbacks = [
        Start(checkpoint, Journal(run_dir / "launches.jsonl", fence)),
        Metrics(metrics, timing, meter, trainer.log_every, track),
        Evaluation(
            data.held_out,
            data.held_out_strata,
            trainer.eval_every,
            job.source is not None,
            metrics,
            track,
            say,
        ),
        Checkpoints(saver, trainer.checkpoint_every, [metrics, timing], job.stop_at),
        bar,
        watchdog,
    ]
    if job.stop_at is not None:
        callbacks.insert(1, Probe(run_dir, checkpoint, saver))  # after `Start` has restored
    if trainer.profile is not None:
        callbacks.append(Profile(trainer.profile, run_dir, say))
    return Run(module, engine, steps, callbacks, watchdog, close)


def row_costs(data: Data) -> list[RowCost]:
    """Return the training cost of a row, per phase."""
    job, family = data.job, family_of(data.job.model)
    return [
        family.row_cost(job.model, job.vocab_size, store, phase.max_seq_length)
        for phase, store in zip(job.phases, data.stores, strict=True)
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
