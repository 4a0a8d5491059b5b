"""Fine-tuning on ranks: processes of their own, with pretraining's engine.

`RankLoop` runs in the command's process: it starts the ranks, waits, and loads the best weights.
A rank runs `python -m pipeline.stages.rank_loop <folder>` on the `FinetuneJob` in `.rank.json`.
"""

import json
import sys
import uuid
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep.errors import SesameError
from data_prep.files import write_atomically
from data_prep.progress import console
from pipeline.config.schema import Config
from pipeline.models.registry import model_config
from pipeline.stages.encoder_inputs import open_encoder
from pipeline.stages.tracked import live
from pipeline.stages.watching import reporting
from pipeline.store.checkpoints import CHECKPOINTS
from pipeline.store.journal import Journal, read_lines
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.history import History, Trained
from pipeline.tasks.splits import read_splits
from pipeline.tracking.config import TrackingConfig
from pipeline.training.config import TrainerConfig
from pipeline.training.exits import Diverged
from pipeline.training.job import FILE, check_token
from pipeline.training.stopping import StopRequest
from pipeline.workflow.stage import Work

if TYPE_CHECKING:
    from pipeline.tasks.answers import Answers
    from pipeline.tasks.encoded import EncodedSplits
    from pipeline.tasks.model import Model
    from pipeline.tasks.plain_loop import TrainingFiles

ENTRY = "pipeline.stages.rank_loop"
CUT = ".cut_inputs.json"  # from rank 0: the number of truncated inputs


def trainer_config(config: FinetuneConfig) -> TrainerConfig:
    """Return the settings of fine-tuning as the engine takes them."""
    return TrainerConfig(
        strategy=config.strategy or ("ddp" if config.devices > 1 else "single"),
        accelerator=config.accelerator,
        devices=config.devices,
        precision=config.precision,
        global_batch_size=config.batch_size,
        seed=config.seed,
        timeout_minutes=config.timeout_minutes,
    )


@dataclass(frozen=True)
class FinetuneJob:
    """One launch of one fine-tuning on ranks."""

    name: str  # of the run
    encoder: Any
    store: str
    model: dict[str, Any]  # section of the config, for encoders with random weights
    task: dict[str, Any]
    finetune: dict[str, Any]
    tracking: dict[str, Any]
    inputs: dict[str, str]  # folders by role
    out: str  # folder of the output
    journal: str
    checkpoint: str | None  # name of the checkpoint to resume from
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, work: Work, files: "TrainingFiles", checkpoint: Path | None) -> "FinetuneJob":
        """Return the job of a stage's work."""
        config = work.config
        return cls(
            name=config.name,
            encoder=config.encoder,
            store=str(Path(config.paths.store).absolute()),
            model=asdict(config.model),
            task=asdict(config.task),
            finetune=asdict(config.finetune),
            tracking=asdict(live(work)),
            inputs={role: str(path.resolve()) for role, path in work.inputs.items()},
            out=str(work.out.absolute()),
            journal=str(files.journal.absolute()),
            checkpoint=checkpoint.name if checkpoint else None,
        )

    def config(self) -> Config:
        """Return the sections of the config that a rank needs."""
        return replace(
            Config(),
            name=self.name,
            encoder=self.encoder,
            paths=replace(Config().paths, store=self.store),
            model=model_config(self.model),
            task=TaskConfig(**self.task),
            finetune=FinetuneConfig(**self.finetune),
            tracking=TrackingConfig(**self.tracking),
        )


class RankLoop:
    """Trains a model on ranks; see `pipeline.tasks.finetuning.Loop`."""

    def __init__(self, work: Work, files: "TrainingFiles") -> None:
        self._work, self._files = work, files

    def fit(self, model: "Model", data: "EncodedSplits", answers: "Answers") -> Trained:
        """Start or resume training; at the end the model has the best evaluation's weights.

        The ranks encode the data; this process does only if weights come from it.
        """
        from pipeline.training.checkpoint import newest_good
        from pipeline.training.launch import launch_here

        work, folder = self._work, self._files.folder
        config, task = work.config.finetune, work.config.task
        if model.head.alike is not None:
            config.refuse_parts()
        work.check_lease()
        checkpoint = newest_good(folder / CHECKPOINTS, say)
        step = int(checkpoint.name) if checkpoint else 0
        if checkpoint is not None:
            say(f"goes on from step {step:,}")
        folder.mkdir(parents=True, exist_ok=True)
        Journal(self._files.journal, work.check_lease).cut(step)
        history = History(task.metric, config.patience)
        self._best(history)  # refused now rather than after training
        job = FinetuneJob.of(work, self._files, checkpoint)
        write_atomically(folder / FILE, json.dumps(asdict(job)))
        with reporting(self._files.journal, work.report, history.key, is_numbered=True):
            try:
                launch_here(folder, trainer_config(config), ENTRY)
            except Diverged as error:
                raise SesameError(
                    f"{error.dropped.reason} in too many steps in a row; lower "
                    f"finetune.lr={config.lr:g}"
                ) from error
        best = self._best(history)
        assert best is not None, "every training is evaluated after its last step"
        if model.encoder.grows:
            data.training()
        load_weights(model, best)
        return Trained(history, json.loads((folder / CUT).read_text()))

    def _best(self, history: History) -> Path | None:
        """Read the journal; return the checkpoint of the best evaluation, if there was one.

        Raises a SesameError if it is damaged or missing.
        """
        from pipeline.training.checkpoint import damage

        history.read(read_lines(self._files.journal), sys.maxsize)
        if history.best is None:
            return None
        best = self._files.folder / CHECKPOINTS / f"{history.best.step:08d}"
        if fault := damage(best):
            raise SesameError(
                f"{best}: the checkpoint with the best weights is damaged ({fault}); put a good "
                f"copy back, or, to start over from the first step, remove {self._files.folder}; "
                "then run the same command again"
            )
        return best


def load_weights(model: "Model", checkpoint: Path) -> None:
    """Load the weights that ranks have trained, in place.

    On ranks weight decay shrinks all rows of an embedding table. As in the loop in one process,
    rows that no training example has read, whose second moment is 0, stay as they were. (Ranks
    evaluated with the decayed rows, so development scores may differ a little.)
    """
    import torch

    from pipeline.tasks.lazy_rows import large_tables
    from pipeline.tasks.plain_loop import saved_parameters
    from pipeline.training.restoring import SavedParameters

    values = dict(saved_parameters(model))
    saved = SavedParameters(checkpoint, {name: value.shape for name, value in values.items()})
    tables = {id(table.weight) for table in large_tables(model.encoder)}
    with torch.no_grad():
        for name, value in values.items():
            trained = saved.whole(name)
            if id(value) in tables:
                is_read_T = saved.whole(f"exp_avg_sq/{name}").any(1)
                trained = torch.where(is_read_T[:, None], trained, value)
            value.copy_(trained)


def say(text: str) -> None:
    """Print one line for the user."""
    console.print(f"finetune: {text}", markup=False)


def train_rank(folder: Path, stop: StopRequest) -> bool:
    """Train the part of this rank to the end; return False if a stop was requested before."""
    job = FinetuneJob(**json.loads((folder / FILE).read_text()))
    config = job.config()
    trainer = trainer_config(config.finetune)
    from pipeline.training.rank import choose_accelerator, fit, quieten, this_rank

    accelerator = choose_accelerator(config.finetune.accelerator)
    quieten()
    import torch

    from pipeline.tasks.encoded import EncodedSplits
    from pipeline.tasks.finetuned import build
    from pipeline.tasks.kinds import make_answers
    from pipeline.tasks.plain_loop import TrainingFiles
    from pipeline.tasks.rank_training import Launch, Material, assemble
    from pipeline.tracking.tracker import Tracker
    from pipeline.tracking.training import Training

    task, own = config.task, config.finetune
    splits = read_splits(task, own.seed)
    inputs = {role: Path(path) for role, path in job.inputs.items()}
    encoder = open_encoder(config, inputs, own.seed)
    answers = make_answers(task, splits.labels, splits.train)
    torch.manual_seed(own.seed)
    model = build(encoder, answers, task, own).model
    data = EncodedSplits(model, answers, splits, own.max_seq_length)
    train, dev = data.training()
    if this_rank() == 0:
        write_atomically(folder / CUT, json.dumps(data.cut_in_training))
    checkpoint = folder / CHECKPOINTS / job.checkpoint if job.checkpoint else None
    step = int(checkpoint.name) if checkpoint else 0
    tracker = None
    if this_rank() == 0 and config.tracking.loggers:
        tracker = Tracker(config.tracking, Training.in_folder(job.name, Path(job.out)), step, say)
    launch = Launch(
        rank=this_rank(),
        accelerator=accelerator,
        files=TrainingFiles(folder, Path(job.journal)),
        checkpoint=checkpoint,
        fence=partial(check_token, folder, job.token),
        stop_requested=lambda: stop.came,
        track=tracker.log if tracker else lambda line: None,
        say=say,
    )
    run = assemble(Material(model, train, dev, answers, task.metric), own, trainer, launch)
    try:
        if run.module.finished:
            run.close()
            return True
        return fit(run, trainer, accelerator)
    finally:
        if tracker:
            tracker.close()


def main(folder: Path) -> int:
    """Train and return the exit code; see `pipeline.training.rank`."""
    from pipeline.training.rank import train_to_end

    stop = StopRequest()
    stop.listen()
    return train_to_end(folder, stop, train_rank)


if __name__ == "__main__":
    from pipeline.training.rank import leave

    leave(main(Path(sys.argv[1])))
