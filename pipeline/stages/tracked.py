"""Every fine-tuning and layer table is a run on the dashboards.

Its numbers per epoch, or per head of a layer table, are kept in `.tracking/metrics.jsonl` of its
folder. TensorBoard, CSV and an online wandb are told while it trains. For an offline wandb
`sesame sync` makes the run from the journal, because starting wandb would take longer than many a
fine-tuning.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from data_prep.progress import console
from pipeline.stages.encoder_inputs import encoder_label
from pipeline.store.journal import Journal
from pipeline.tasks.finetuning import Epoch
from pipeline.tracking.config import TrackingConfig
from pipeline.tracking.training import Training
from pipeline.workflow.stage import Work


@dataclass(frozen=True)
class Followed:
    """The journal and the dashboards of one fine-tuning."""

    write: Callable[[dict[str, float]], None]
    work: Work

    def after_epoch(self, end: Epoch) -> None:
        """Note an epoch, and report its score to a sweep that may stop it."""
        self.write(
            {
                "step": end.step,
                "epoch": end.number,
                "loss": end.loss,
                "learning_rate": end.learning_rate,
                f"dev_{self.work.config.task.metric}": end.score,
            }
        )
        self.work.report(end.number, end.score)

    def after_head(self, head: int, choice: str, score: float) -> None:
        """Note the score of one head of a layer table."""
        self.write({"step": head, choice: score})

    def scored(self, step: int, scores: dict[str, float]) -> None:
        """Note the scores on the test set."""
        self.write({"step": step, **{f"test_{name}": value for name, value in scores.items()}})


@contextmanager
def followed(work: Work) -> Iterator[Followed]:
    """Open the journal and the dashboards of a fine-tuning, which starts from the beginning."""
    training = Training.in_folder(work.config.name, work.out)
    [path] = training.journals
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    journal = Journal(path, work.check_lease)
    tracking = live(work, training.output.stage)
    if not tracking.loggers:
        yield Followed(journal.append, work)
        return
    from pipeline.tracking.tracker import Tracker  # imports Lightning, which takes seconds

    tracker = Tracker(tracking, training, 0, lambda text: console.print(text, markup=False))

    def write(line: dict[str, float]) -> None:
        journal.append(line)
        tracker.log(line)

    try:
        yield Followed(write, work)
    finally:
        tracker.close()


def live(work: Work, stage: str = "finetune") -> TrackingConfig:
    """Return the dashboards that are told while it trains, and the run's name on them."""
    config, tracking = work.config, work.config.tracking
    is_offline = tracking.wandb_mode == "offline"
    loggers = [name for name in tracking.active if not (name == "wandb" and is_offline)]
    last = f"seed={config.finetune.seed}" if stage == "finetune" else stage
    label = f"{config.task.name}, {encoder_label(config)}, {last}"
    return replace(tracking, loggers=loggers, label=tracking.label or label)
