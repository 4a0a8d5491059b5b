"""`sesame rehearse`: try a pretraining on its real devices, and judge it on one page."""

from datetime import UTC, datetime
from pathlib import Path

from data_prep.errors import SesameError, UsageError
from data_prep.progress import console
from pipeline.cluster.slurm import steps as slurm_steps
from pipeline.commands.arguments import Arguments
from pipeline.commands.estimate import number_option
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config
from pipeline.estimate.pretraining import estimate
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.training.nodes import placement
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Node, Work

STEPS = 24  # half of them before the checkpoint that is resumed
FEWEST = 8
FOLDER = "rehearsals"  # below the store: a page per rehearsal


def rehearse(arguments: Arguments) -> None:
    """Run a few dozen steps, print the checks and write the page; raise if a check failed."""
    from pipeline.rehearse.checks import Verdict, cost_of, judge
    from pipeline.rehearse.legs import run_legs
    from pipeline.rehearse.page import as_text, write
    from pipeline.stages.pretrain import make_job
    from pipeline.training.launch import launch

    arguments.refuse_words()
    count = number_option(arguments, "--steps", STEPS)
    price = number_option(arguments, "--price", None)
    if count is None or count < FEWEST or count != int(count):
        raise UsageError(f"--steps={count:g}: must be a whole number, {FEWEST} or more")
    config = compose_config(arguments.overrides)
    if placement(config.trainer) is not None:
        raise UsageError(
            "rehearse: several nodes need a SLURM job here; use sesame submit --rehearse"
        )
    node = planned(config)
    work = Work(
        config, {role: item.path for role, item in node.inputs.items()}, Path(), "rehearsal"
    )
    out = new_folder(Path(config.paths.store) / FOLDER, config.name)
    legs = run_legs(
        make_job(work, None),
        out.with_name(f".{out.name}"),
        int(count),
        lambda folder, job: launch(folder, job, slurm_steps()),
        lambda text: console.print(f"rehearse: {text}", markup=False),
    )
    guess = estimate(config, STAGES)
    checks, cost = judge(legs, config, guess), cost_of(legs, config, guess, price)
    write(checks, cost, config, out)
    print(as_text(checks, cost, config))
    print(out / "index.html")
    if failed := [check for check in checks if check.verdict == Verdict.FAILED]:
        raise SesameError(f"rehearse: {failed[0].question}: no; see {out / 'index.html'}")


def planned(config: Config) -> Node:
    """Return the pretraining in the plan; raise `UsageError` unless everything it reads is made."""
    graph = Graph(Store(Path(config.paths.store)), STAGES)
    node = graph.add("pretrain", config)
    STAGES["pretrain"].check_machine(config)
    missing = [
        each for each in graph.nodes.values() if each is not node and not each.output.is_done
    ]
    if missing:
        raise UsageError(
            f"rehearse: {missing[0].stage} is not made yet; run sesame run --until=examples with "
            "the same settings first"
        )
    return node


def new_folder(parent: Path, name: str) -> Path:
    """Return a folder that does not exist, named by the run and the time."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return parent / f"{name}-{stamp}"
