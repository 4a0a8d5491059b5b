"""`sesame rehearse`: try a pretraining on its real devices, and judge it on one page.

`sesame submit --rehearse` does so in SLURM jobs, after a small job in every place that the
experiment's jobs would go to.
"""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.errors import SesameError, UsageError
from data_prep.files import write_atomically
from data_prep.progress import console
from pipeline.cluster import rehearsal as jobs
from pipeline.cluster import slurm
from pipeline.cluster.frozen import Submission
from pipeline.cluster.site import Site
from pipeline.cluster.submit import check_store
from pipeline.commands.arguments import Arguments
from pipeline.commands.estimate import number_option
from pipeline.commands.stages import experiment
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config
from pipeline.estimate.pretraining import estimate
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.training.nodes import placement
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Node, Work

if TYPE_CHECKING:
    from pipeline.rehearse.legs import Legs

STEPS = 24  # half of them before the checkpoint that is resumed
FEWEST = 8


def rehearse(arguments: Arguments) -> None:
    """Run a few dozen steps, print the checks and write the page; raise if a check failed."""
    from pipeline.rehearse.checks import Verdict, cost_of, judge, judge_places
    from pipeline.rehearse.page import as_text, write

    arguments.refuse_words()
    if "--place" in arguments.options:
        report_place(Path(arguments.options["--place"]))
        return
    count, price = counted_steps(arguments), number_option(arguments, "--price", None)
    config = compose_config(arguments.overrides)
    out = new_folder(config, "page")
    legs = run(config, arguments.overrides, count, out)
    guess = estimate(config, STAGES)
    checks, cost = judge(legs, config, guess), cost_of(legs, config, guess, price)
    if "--places" in arguments.options:
        checks = [*judge_places(jobs.reported(Path(arguments.options["--places"]))), *checks]
    write(checks, cost, config, out)
    print(as_text(checks, cost, config))
    print(out / "index.html")
    if failed := [check for check in checks if check.verdict == Verdict.FAILED]:
        raise SesameError(f"rehearse: {failed[0].question}: no; see {out / 'index.html'}")


def counted_steps(arguments: Arguments) -> int:
    """Return the steps of a leg; raise `UsageError` if they are too few to resume and time."""
    count = number_option(arguments, "--steps", STEPS)
    assert count is not None, "it has a default"
    if count < FEWEST or count != int(count):
        raise UsageError(f"--steps={count:g}: must be a whole number, {FEWEST} or more")
    return int(count)


def run(config: Config, overrides: list[str], steps: int, out: Path) -> "Legs":
    """Run all legs in a hidden folder beside `out`, which is on the store's disk."""
    from pipeline.rehearse.legs import run_legs
    from pipeline.stages.pretrain import make_job
    from pipeline.training.launch import launch

    if placement(config.trainer) is not None:
        raise UsageError(
            "rehearse: several nodes need a SLURM job here; use sesame submit --rehearse"
        )
    node = planned(config, overrides)
    inputs = {role: item.path for role, item in node.inputs.items()}
    return run_legs(
        make_job(Work(config, inputs, out, "rehearsal"), None),
        out.with_name(f".{out.name}"),
        steps,
        lambda folder, job: launch(folder, job, slurm.steps()),
        lambda text: console.print(f"rehearse: {text}", markup=False),
    )


def planned(config: Config, overrides: list[str]) -> Node:
    """Return the pretraining in the plan; raise `UsageError` unless everything it reads is made."""
    graph = Graph(Store(Path(config.paths.store)), STAGES)
    node = graph.add("pretrain", config)
    STAGES["pretrain"].check_machine(config)
    others = (each for each in graph.nodes.values() if each is not node)
    if missing := [each for each in others if not each.output.is_done]:
        raise UsageError(
            f"rehearse: {missing[0].stage} is not made yet; first run "
            f"{jobs.command_line(overrides)}"
        )
    return node


def new_folder(config: Config, kind: str) -> Path:
    """Return a folder that does not exist, named by the run, the time and the kind of content."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return Path(config.paths.store) / jobs.FOLDER / f"{config.name}-{stamp}-{kind}"


def report_place(report: Path) -> None:
    """Write the versions of Python and packages here: a job ran, and it sees the store."""
    import torch

    from pipeline.training.probing import about_rank

    about = about_rank(torch.device("cpu"))
    found = {"python": about["python"]} | {
        name: version for name, version in about["packages"].items() if version
    }
    write_atomically(report, json.dumps(found) + "\n")
    print(f"this node sees the store; {', '.join(' '.join(each) for each in found.items())}")


def submit_rehearsal(arguments: Arguments, site: Site) -> None:
    """Submit a job per place and one that rehearses, or print their scripts (--dry-run)."""
    arguments.refuse_words()
    options = [f"--steps={counted_steps(arguments)}"]
    if (price := number_option(arguments, "--price", None)) is not None:
        options.append(f"--price={price:g}")
    dry = "--dry-run" in arguments.options
    if not dry:
        slurm.require()
    config = compose_config(arguments.overrides)
    pretrain = planned(config, arguments.overrides)
    known = not dry or slurm.answers()
    if known:
        check_store(Path(config.paths.store).resolve(), site, slurm.hosts())
    nodes = [*experiment(config, arguments.overrides).nodes.values(), pretrain]
    places = jobs.places_of(nodes, site)
    folder = Submission(new_folder(config, "jobs").resolve())
    gpus = slurm.most_gpus() if known else None
    words = [*options, *arguments.overrides]
    scripts = jobs.scripts_of(places, pretrain, words, folder, site, gpus)
    if dry:
        for name, text in scripts.items():
            print(f"# {name}\n{text}")
        return
    jobs.write_rehearsal(places, scripts, folder)
    try:
        ids = jobs.submit_rehearsal(scripts, folder)
    except BaseException:
        shutil.rmtree(folder.path)
        raise
    for name, made in ids.items():
        print(f"{made}  {name}")
    print(f"logs in {folder.logs}; the last job's log ends with the place of its page")
