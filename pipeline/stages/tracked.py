"""Every fine-tuning and layer table is a run on the dashboards.

Its numbers per epoch, or per head of a layer table, are kept in `.tracking/metrics.jsonl` of its
folder. TensorBoard, CSV and an online wandb are updated during training. For an offline wandb
`sesame sync` makes the run from the journal, because starting wandb would take longer than a small
fine-tuning.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_prep.progress import console
from pipeline.stages.encoder_inputs import encoder_label
from pipeline.store.checkpoints import CHECKPOINTS, checkpoints
from pipeline.store.journal import Journal, read_lines
from pipeline.tasks.history import Evaluation
from pipeline.tracking.config import TrackingConfig
from pipeline.tracking.training import Training
from pipeline.workflow.stage import Work

TRAINING = ".training"  # folder of an unfinished fine-tuning with its checkpoints


@dataclass(frozen=True)
class Followed:
    """The journal and the dashboards of one fine-tuning."""

    log: Callable[[dict[str, Any]], None]
    work: Work

    def write(self, line: dict[str, Any]) -> None:
        """Write a line of the journal, and tell the dashboards."""
        self.log(line)

    def evaluated(self, evaluation: Evaluation) -> None:
        """Report a score to a sweep that may stop the fine-tuning."""
        self.work.report(evaluation.number, evaluation.score)

    def after_head(self, head: int, choice: str, score: float) -> None:
        """Note the score of one head of a layer table."""
        self.write({"step": head, choice: score})

    def scored(self, step: int, scores: dict[str, float]) -> None:
        """Write the test scores to the journal, unless an earlier, killed launch has done so."""
        line = {"step": step, **{f"test_{name}": value for name, value in scores.items()}}
        if line not in read_lines(training_journal(self.work)):
            self.write(line)


def training_journal(work: Work) -> Path:
    """Return the file with the numbers of a fine-tuning's steps."""
    [path] = Training.in_folder(work.config.name, work.out).journals
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def followed(work: Work, is_trained: bool = False) -> Iterator[Followed]:
    """Open the journal and the dashboards of a fine-tuning.

    Lines after the newest checkpoint are removed: these steps are taken again. `is_trained`: ranks
    have trained, and told the dashboards all lines so far.
    """
    training = Training.in_folder(work.config.name, work.out)
    journal = Journal(training_journal(work), work.check_lease)
    step = -1
    if not is_trained:
        saved = checkpoints(work.out / TRAINING / CHECKPOINTS)
        step = int(saved[-1].name) if saved else 0
        journal.cut(step)
    tracking = live(work, training.output.stage)
    if not tracking.loggers:
        yield Followed(journal.append, work)
        return
    from pipeline.tracking.tracker import Tracker  # imports Lightning, which takes seconds

    tracker = Tracker(tracking, training, step, lambda text: console.print(text, markup=False))

    def write(line: dict[str, Any]) -> None:
        journal.append(line)
        tracker.log(line)

    try:
        yield Followed(write, work)
    finally:
        tracker.close()


def live(work: Work, stage: str = "finetune") -> TrackingConfig:
    """Return the dashboards to update during training, and the run's name on them."""
    config, tracking = work.config, work.config.tracking
    is_offline = tracking.wandb_mode == "offline"
    loggers = [name for name in tracking.active if not (name == "wandb" and is_offline)]
    last = f"seed={config.finetune.seed}" if stage == "finetune" else stage
    label = f"{config.task.name}, {encoder_label(config)}, {last}"
    return replace(tracking, loggers=loggers, label=tracking.label or label)
