"""Submit a rehearsal: a small job in every place that the experiment's jobs would go to, then one
job with pretraining's resources that tries the real steps.

A place is a partition with account, quality of service, reservation and constraint. Its job reports
to `places/<name>.json` below the rehearsal's folder. The last job starts when all others have
ended, well or not, and puts them on its page. Everything lies in `<store>/rehearsals/<id>/`.
"""

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from data_prep.files import write_atomically
from pipeline.cluster import slurm
from pipeline.cluster.frozen import Submission
from pipeline.cluster.planning import options_of, shape_of
from pipeline.cluster.scripts import container_wrapper, environment, fill_template
from pipeline.cluster.site import Site
from pipeline.workflow.stage import Node

FOLDER = "rehearsals"  # below the store
PLACES = "places"
LIST = "places.json"  # the places that jobs were sent to, with their titles
KEYS = ("partition", "account", "qos", "reservation", "constraint")
PLACE_TIME = "0:10:00"  # time limit of a place's job


@dataclass(frozen=True)
class Place:
    """A place that jobs of some stages are sent to."""

    name: str  # file name of its script, log and report
    settings: dict[str, str]  # of `KEYS`
    stages: list[str]

    @property
    def title(self) -> str:
        """Its settings and stages, for the page."""
        shown = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        return f"{shown or 'the default partition'} ({', '.join(self.stages)})"


def places_of(nodes: list[Node], site: Site) -> list[Place]:
    """Return the distinct places of the nodes' jobs, in the order of the plan."""
    stages: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for stage in dict.fromkeys(node.stage for node in nodes):
        given = site.of(stage).parameters()
        own = tuple((key, given[key]) for key in KEYS if key in given)
        stages.setdefault(own, []).append(stage)
    return [
        Place(f"place-{number:02d}", dict(settings), names)
        for number, (settings, names) in enumerate(stages.items(), 1)
    ]


def scripts_of(
    places: list[Place],
    pretrain: Node,
    words: list[str],
    rehearsal: Submission,
    site: Site,
    gpus: dict[str, int] | None,
) -> dict[str, str]:
    """Return the text of every script by name; the last one rehearses, with these words."""
    site = replace(site, continuation="stop")  # a rehearsal that is interrupted is not continued
    folder = rehearsal.path / PLACES
    scripts = {}
    for place in places:
        options = [f"--{key}={value}" for key, value in place.settings.items()]
        options.append(f"--time={PLACE_TIME}")
        arguments = ["rehearse", f"--place={folder / place.name}.json"]
        scripts[place.name] = _script(rehearsal, site, place.name, "stage", options, arguments)
    template, shape = shape_of(pretrain)
    options = [*shape, *options_of(pretrain, site, gpus)]
    arguments = ["rehearse", f"--places={folder}", *words]
    scripts["rehearse"] = _script(rehearsal, site, "rehearse", template, options, arguments)
    return scripts


def _script(
    rehearsal: Submission,
    site: Site,
    name: str,
    template: str,
    options: list[str],
    arguments: list[str],
) -> str:
    log = f"{str(rehearsal.logs).replace('%', '%%')}/{name}-%j.log"  # sbatch replaces %j
    common = [f"--job-name={name}", f"--chdir={Path.cwd()}", f"--output={log}", "--no-requeue"]
    setup = environment(site, rehearsal.code, rehearsal.script(name))
    wrapper = container_wrapper(site, rehearsal.code)
    return fill_template(template, [*common, *options], setup, arguments, wrapper)


def write_rehearsal(places: list[Place], scripts: dict[str, str], rehearsal: Submission) -> None:
    """Write code, scripts and the list of places."""
    rehearsal.create()
    rehearsal.freeze_code()
    (rehearsal.path / PLACES).mkdir()
    titles = {place.name: place.title for place in places}
    write_atomically(rehearsal.path / PLACES / LIST, json.dumps(titles, indent=1) + "\n")
    for name, text in scripts.items():
        rehearsal.script(name).write_text(text)


def submit_rehearsal(scripts: dict[str, str], rehearsal: Submission) -> dict[str, str]:
    """Queue all jobs, or none; return their ids by name. Raises Refused if SLURM refuses one."""
    for name in scripts:
        slurm.check_script(rehearsal.script(name))
    ids: dict[str, str] = {}
    try:
        for name in scripts:
            after = list(ids.values()) if name == "rehearse" else []
            ids[name] = slurm.submit_script(rehearsal.script(name), after, condition="afterany")
    except BaseException:
        slurm.cancel_jobs(list(ids.values()))
        raise
    return ids


def reported(folder: Path) -> dict[str, dict[str, str] | None]:
    """Return the report of each place by its title; None where no job has reported."""
    found = {}
    for name, title in json.loads((folder / LIST).read_text()).items():
        report = folder / f"{name}.json"
        found[title] = json.loads(report.read_text()) if report.exists() else None
    return found


def command_line(overrides: list[str]) -> str:
    """Return the command that makes what a rehearsal reads."""
    return shlex.join(["sesame", "run", "--until=examples", *overrides])
