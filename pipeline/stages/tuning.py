"""One fine-tuning, as the stages `finetune` and `model` do it; its model may be kept."""

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.errors import SesameError, UsageError
from pipeline.config.schema import FLOORS, Config, is_random
from pipeline.stages.encoder_inputs import open_encoder
from pipeline.stages.tracked import TRAINING
from pipeline.store.checkpoints import CHECKPOINTS, checkpoints
from pipeline.tasks.config import FinetuneConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.splits import Splits, read_splits
from pipeline.workflow.stage import Work

if TYPE_CHECKING:
    from pipeline.encoders import Encoder
    from pipeline.tasks.finetuned import Finetuned
    from pipeline.tasks.finetuning import Outcome

KEPT = ".model"  # in the output of a fine-tuning, until the stage `model` takes it over
PROVED = 8  # development examples on which a saved model is compared with the trained one


def keeps_model(config: Config) -> bool:
    """Return True if the model of a fine-tuning is to be kept.

    `keep` decides. If it is not set, all are kept but those of untrained encoders. Baselines and
    suites have none.
    """
    if FLOORS.keys() & set(config.encoders) or config.task.members:
        return False
    return not any(map(is_random, config.encoders)) if config.keep is None else config.keep


def train(work: Work, splits: Splits | None = None) -> "Outcome":
    """Fine-tune once; leave the model in a hidden folder if it is to be kept."""
    from pipeline.stages.rank_loop import RankLoop
    from pipeline.stages.tracked import followed, training_journal
    from pipeline.tasks.finetuning import finetune
    from pipeline.tasks.plain_loop import PlainLoop, TrainingFiles

    task, config = work.config.task, work.config.finetune
    splits = splits or read_splits(task, config.seed)
    encoder = open_encoder(work.config, work.inputs, config.seed)

    def keep(finetuned: "Finetuned") -> None:
        if keeps_model(work.config):
            leave_model(work.out, finetuned, splits.dev[:PROVED])

    files = TrainingFiles(work.out / TRAINING, training_journal(work))
    on_ranks = goes_on_ranks(config, files.folder)
    with _computing(encoder, config, work.out / ".states") as own:
        if on_ranks:
            outcome = finetune(own, splits, task, config, RankLoop(work, files), keep)
            with followed(work, is_trained=True) as run:
                run.scored(outcome.steps, outcome.scores)
        else:
            with followed(work) as run:
                loop = PlainLoop(task, config, run, files)
                outcome = finetune(own, splits, task, config, loop, keep)
                run.scored(outcome.steps, outcome.scores)
    return outcome


def uses_ranks(config: FinetuneConfig) -> bool:
    """Return True if ranks train, and not a loop in this process; see finetune.engine.

    Raises a UsageError for a device that is not there, and for several on an Apple GPU.
    """
    from pipeline.tasks.device import choose_device

    device = choose_device(config.accelerator).type
    if config.devices > 1 and device == "mps":
        raise UsageError(
            f"finetune.devices={config.devices}: an Apple GPU (mps) is one device; leave it out, "
            "or set finetune.accelerator=cpu"
        )
    if config.engine != "auto" or config.mode == "frozen":
        return config.engine == "ranks"
    return bool(config.needs_ranks) or device != "cpu"


def goes_on_ranks(config: FinetuneConfig, folder: Path) -> bool:
    """Return True if ranks train, as far as the checkpoints below `folder` allow it.

    The loops keep different moments, so a training goes on where it was begun. Raises a SesameError
    if the settings demand the other one.
    """
    from pipeline.training.job import FILE

    begun_on_ranks = (folder / FILE).exists()
    on_ranks = uses_ranks(config) or (begun_on_ranks and config.engine == "auto")
    if on_ranks != begun_on_ranks and checkpoints(folder / CHECKPOINTS):
        if begun_on_ranks:
            begun, remedy = "on ranks", "leave finetune.engine=plain out"
        else:
            keys = config.needs_ranks
            if config.engine == "ranks":
                keys = ["finetune.engine=ranks", *keys]
            begun = "in one process"
            remedy = f"leave {', '.join(keys)} out" if keys else "set finetune.accelerator=cpu"
        raise SesameError(
            f"{folder}: this fine-tuning was begun {begun}; {remedy} to go on, or remove the "
            "folder to start over"
        )
    return on_ranks


def steps_done(out: Path) -> str:
    """Describe the progress of an unfinished fine-tuning."""
    saved = checkpoints(out / TRAINING / CHECKPOINTS)
    return f"step {int(saved[-1].name):,}" if saved else "started"


def _computing(
    encoder: "Encoder", config: FinetuneConfig, folder: Path
) -> AbstractContextManager["Encoder"]:
    """Return the encoder; a frozen one is wrapped to compute each hidden state once for all epochs.

    The wrapper stores states below `folder` and removes them at the end of the `with` block.
    """
    from pipeline.encoders.stored import stored_states
    from pipeline.tasks.device import choose_device
    from pipeline.tasks.heads import needed_states

    if config.mode == "full" or encoder.states == 1:  # static vectors are only looked up
        return nullcontext(encoder)
    needed = needed_states(config.layers, encoder.states)
    return stored_states(encoder, folder, choose_device(config.accelerator), needed)


def leave_model(out: Path, finetuned: "Finetuned", examples: Sequence[Example]) -> None:
    """Write the model of a fine-tuning to its hidden folder, and prove it on some examples."""
    from pipeline.tasks.finetuned import prove_model, save_model

    partial = out / f"{KEPT}.tmp"
    for folder in (partial, out / KEPT):
        shutil.rmtree(folder, ignore_errors=True)
    partial.mkdir()
    save_model(finetuned, partial)
    prove_model(finetuned, partial, examples)
    os.replace(partial, out / KEPT)
