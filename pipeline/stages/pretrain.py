"""Stage `pretrain`: trains an encoder on training rows, on any number of ranks, resumable.

Reads the tokenizer and the examples of every phase. Writes
    metrics.jsonl       by step: losses, accuracies, learning rate, gradient norm; a resumed run
                        writes the same lines as an uninterrupted one
    timing.jsonl        by step: speed, waiting time, memory, remaining time
    launches.jsonl      per launch: time, first step, ranks, strategy
    checkpoints/<step>/ weights, moments and state; see pipeline.training.checkpoint
                        (a damaged one is kept as checkpoints/.<step>.damaged)
    config.json         the architecture
Try it: sesame pretrain experiment=demo
"""

import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep.config import WORD_KINDS
from data_prep.dotted import source_checksum
from data_prep.errors import SesameError, UsageError
from data_prep.files import write_atomically
from pipeline.cluster.slurm import steps
from pipeline.config.schema import Config
from pipeline.data.cursor import BatchSchedule
from pipeline.models.config import ModelConfig
from pipeline.models.registry import family_of
from pipeline.stages.examples import example_sets
from pipeline.stages.watching import reporting
from pipeline.store.journal import read_lines
from pipeline.store.outputs import REQUEST, Output, Store
from pipeline.training.config import InitConfig
from pipeline.training.schedule import check_budget
from pipeline.training.source import check_source
from pipeline.workflow.stage import Instance, Planner, Request, Stage, Work

if TYPE_CHECKING:
    from pipeline.training.exits import Diverged, Dropped
    from pipeline.training.job import Job

STRATUM_LOSS = "heldout_loss/"  # in metrics.jsonl, then "source/<name>" or "language/<code>"


class Pretrain(Stage):
    """The stage that pretrains an encoder."""

    name = "pretrain"
    format = 1
    keeps_inputs = True
    sections = ("model", "optim", "trainer", "pretrain")
    obeyed = ("init", "tracking")
    resumes = True

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return tokenizer, examples of every phase, and the model or vectors to start from.

        Raises `UsageError` for settings that do not fit the model, the budget or the ranks.
        """
        trainer = config.trainer
        check_family(config)
        check_budget(trainer, len(config.phases))
        config.optim.check_strategy(trainer.strategy)
        if config.examples.final_mask_rate is not None and trainer.max_hours is not None:
            raise UsageError(
                f"examples.final_mask_rate={config.examples.final_mask_rate}: rows are masked "
                "ahead of training, so it needs a budget in steps or tokens, not "
                f"trainer.max_hours={trainer.max_hours:g}"
            )
        BatchSchedule(trainer.global_batch_size, trainer.ramp_steps).check(trainer.world_size)
        examples = {f"examples.{number}": each for number, each in enumerate(example_sets(config))}
        requests = {"tokenizer": Request("tokenizer", config), **examples}
        if config.init.source is not None:  # a run is exported first: one format for all sources
            check_source(config.init.source, config.model, Store(Path(config.paths.store)))
            own = replace(config, encoder=config.init.source, init=InitConfig())
            requests["init"] = Request("export", own)
        if config.init.vectors:
            width = family_of(config.model).vector_width(config.model)
            assert width is not None, "see check_family"
            lowercase = config.tokenizer.lowercase
            fitting = replace(config.vectors, width=width, lowercase=lowercase)
            requests["vectors"] = Request("vectors", replace(config, vectors=fitting))
        return requests

    def check_machine(self, config: Config) -> None:
        """Raise `UsageError` for a ZeRO strategy without DeepSpeed, which exists for Linux only."""
        strategy = config.trainer.strategy
        if strategy.startswith("zero") and importlib.util.find_spec("deepspeed") is None:
            raise UsageError(
                f"trainer.strategy={strategy}: DeepSpeed is not installed, and it exists for Linux "
                "only; use trainer.strategy=single trainer.devices=1, which gives the same model"
            )
        from pipeline.training.nodes import placement

        placement(config.trainer)  # raises if variables of several nodes are wrong

    def assist(self, config: Config, output: Output) -> bool:
        """Run this node's ranks if another node makes the output (several nodes without SLURM)."""
        from pipeline.training.nodes import assist, placement

        place = placement(config.trainer)
        if place is None or place.rank == 0:
            return False
        assist(output.path, config.trainer, place, lambda: output.is_done)
        return True

    def keys(self, config: Config) -> dict[str, Any]:
        """Return the settings of model and training, and of masks if the loader draws them."""
        own = super().keys(config)
        masks = config.examples.training_masks() if family_of(config.model).masks_tokens else {}
        if config.optim.path is not None:
            own["optim"]["source"] = source_checksum("optim.path", config.optim.path)
        return own | ({"examples": masks} if masks else {})

    def add_instance(self, graph: Planner, instance: Instance) -> None:
        """Add a pretraining, and register its name for `encoder=<name>`."""
        named = [] if instance.name == self.name else [instance.name]
        node = graph.add(self.name, instance.config, ", ".join([*named, *instance.swept]))
        known = graph.pretrainings.setdefault(instance.name, {})
        known[node.output.reference] = instance.config

    def run(self, work: Work) -> dict[str, Any]:
        """Start or resume training and return when the budget is spent.

        After a divergence it goes back once and trains without the rows of the dropped steps.
        """
        from data_prep.progress import console
        from pipeline.store.checkpoints import CHECKPOINTS, checkpoints
        from pipeline.training.checkpoint import damage, newest_good, read_state, remove_old
        from pipeline.training.exits import REPORTS, Diverged
        from pipeline.training.launch import launch

        def say(text: str) -> None:
            console.print(f"pretrain: {text}", markup=False)

        folder = work.out / CHECKPOINTS
        work.check_lease()  # the code below may rename or remove checkpoints
        checkpoint = newest_good(folder, say)
        if checkpoint is not None:
            say(f"goes on from step {int(checkpoint.name):,}")
        job = make_job(work, checkpoint)
        described = {"model": asdict(job.model), "vocab_size": job.vocab_size}
        write_atomically(work.out / "config.json", json.dumps(described, indent=1) + "\n")
        with reporting(work.out / "metrics.jsonl", work.report):
            try:
                launch(work.out, job, steps())
            except Diverged as error:
                work.check_lease()
                _train_without(error, work, say)
        last = checkpoints(folder)[-1]  # exists: training fails if it cannot be saved
        if (fault := damage(last)) is not None:
            raise SesameError(
                f"{last}: the last checkpoint is damaged right after it was written ({fault}); "
                "check the disk, then run the same command again"
            )
        state = read_state(last)
        # A launch that was killed after its last checkpoint could not remove the ones before.
        trainer = work.config.trainer
        remove_old(folder, trainer.keep_checkpoints, trainer.keep_every)
        shutil.rmtree(work.out / REPORTS)
        counts = {"steps": state.step, "updates": state.updates, "tokens": state.tokens}
        return counts | losses_by_stratum(work.out / "metrics.jsonl")

    def how_far(self, out: Path) -> str:
        """Return the step of the last checkpoint as text, for the plan."""
        from pipeline.store.checkpoints import CHECKPOINTS, checkpoints
        from pipeline.training.checkpoint import damaged_checkpoints

        saved = checkpoints(out / CHECKPOINTS)
        if not saved:
            lost = damaged_checkpoints(out / CHECKPOINTS)
            return "every checkpoint damaged" if lost else "started"
        budget = json.loads((out / REQUEST).read_text())["config"]["trainer"]["max_steps"]
        total = f" of {budget:,}" if budget else ""
        return f"step {int(saved[-1].name):,}{total}"


def losses_by_stratum(metrics: Path) -> dict[str, Any]:
    """Return the last held-out losses by source and by language; empty if none were recorded."""
    found: dict[str, dict[str, float]] = {}
    last: dict[str, Any] = {}
    for line in read_lines(metrics):
        last = line if "heldout_loss" in line else last
    for key, value in last.items():
        if key.startswith(STRATUM_LOSS):
            by, name = key.removeprefix(STRATUM_LOSS).split("/", 1)
            found.setdefault(f"by_{by}", {})[name] = value
    return {"heldout_loss": found} if found else {}


def check_family(config: Config) -> None:
    """Raise `UsageError` for settings that the model's family does not support."""
    family, kind = family_of(config.model), config.tokenizer.kind
    given = config.tokenizer.source or config.init.source  # checked later by its files: `make_job`
    if (kind in WORD_KINDS) != family.reads_words and not given:
        needs = (
            "reads whole words; use tokenizer=words"
            if family.reads_words
            else "has no [MASK] to predict behind; use tokenizer=wordpiece, unigram or bpe"
        )
        raise UsageError(f"tokenizer.kind={kind}: model.kind={family.name} {needs}")
    for key, setting in family.unsupported.items():
        section, name = key.split(".")
        value = getattr(getattr(config, section), name)
        if value is not None and value != setting.neutral:  # null: the family decides
            shown = "[...]" if isinstance(value, list) else value
            raise UsageError(f"{key}={shown}: model.kind={family.name} {setting.why}")


def _train_without(error: "Diverged", work: Work, say: Callable[[str], None]) -> None:
    """Resume from before the divergence and train without its rows, which may be the cause.

    Raises `SesameError` with a diagnosis if training diverges again.
    """
    from pipeline.store.checkpoints import CHECKPOINTS
    from pipeline.training.checkpoint import before_divergence
    from pipeline.training.exits import Diverged
    from pipeline.training.launch import launch

    good = before_divergence(work.out / CHECKPOINTS, say)
    step = int(good.name) if good else 0
    say(f"{error}; going back once, to step {step:,}, to train without these rows")
    try:
        launch(work.out, make_job(work, good, error.dropped), steps())
    except Diverged as again:
        first, optim = error.dropped, work.config.optim
        raise SesameError(
            f"{again}; it had diverged on rows {first.start:,} to {first.stop:,} of phase "
            f"{first.phase + 1} before, and gone back to step {step:,}; lower optim.lr (now "
            f"{optim.lr:g}), lengthen optim.warmup (now {optim.warmup:g}) or lower optim.clip "
            f"(now {optim.clip:g}), and run again"
        ) from again


def make_job(work: Work, checkpoint: Path | None, skip: "Dropped | None" = None) -> "Job":
    """Return the job for the ranks.

    `checkpoint` is the one to resume from; `skip` the rows to leave out after a divergence.
    """
    from data_prep.examples.rows import mask_rule
    from pipeline.training.job import Job

    config = work.config
    stages = config.phases
    return Job(
        name=config.name,
        model=config.model,
        optim=config.optim,
        trainer=config.trainer,
        tracking=config.tracking,
        masks=mask_rule(config.examples, "train"),
        phases=stages,
        examples=[str(work.inputs[f"examples.{n}"].resolve()) for n in range(len(stages))],
        tokenizer=str(work.inputs["tokenizer"].resolve()),
        vocab_size=_predicted(work.inputs["tokenizer"], config.model),
        source=str(work.inputs["init"].resolve()) if "init" in work.inputs else None,
        vectors=str(work.inputs["vectors"].resolve()) if "vectors" in work.inputs else None,
        checkpoint=checkpoint.name if checkpoint else None,
        skip=skip,
    )


def _predicted(tokenizer: Path, model: ModelConfig) -> int:
    """Return the number of tokens (BERT) or words (ELMo) that the model can predict.

    Raises `UsageError` if the tokenizer does not fit the model.
    """
    from data_prep.tokenizers import Tokenizer

    family, kind = family_of(model), Tokenizer.load(tokenizer).kind
    if (kind == "words") != family.reads_words:
        raise UsageError(
            f"model.kind={family.name}: cannot use this vocabulary of {kind}; {family.title} needs "
            f"one of {'words' if family.reads_words else 'subwords'}"
        )
    return family.predicted_size(tokenizer)
