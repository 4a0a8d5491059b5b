"""Frozen submissions in `<store>/submissions/<id>/`, so that later edits change no queued job.

submission.json   the jobs: their ids, the output of each, and the jobs it waits for
nodes/<job>.json  each job's stage instance: config, inputs, request; nodes/<job>/<task>.json for
                  the tasks of an array
<job>.sbatch      each job's script, which may be submitted again by hand
code/             a copy of the packages
logs/             the output of the jobs
successors/<job>  the id of the job that took over from it (on sites that do not requeue)
cancelled/<job>   an empty file for each job that `sesame cancel` ended
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from data_prep.errors import SesameError, UsageError
from data_prep.files import write_atomically
from pipeline.cluster.scripts import TEMPLATES
from pipeline.config.compose import CONF, literal, typed
from pipeline.config.schema import Config
from pipeline.models.config import ModelConfig
from pipeline.store.content import Checksums
from pipeline.store.outputs import Store
from pipeline.workflow.graph import Stages
from pipeline.workflow.stage import Input, Node

FOLDER = "submissions"
SUCCESSORS = "successors"
CANCELLED = "cancelled"


@dataclass(frozen=True)
class SubmittedJob:
    """A submitted job: an array over work units, or the job or task that makes an output."""

    name: str  # file name of its script, node and log
    id: str  # <job>, or <job>_<task> for a task of an array that makes outputs
    stage: str
    label: str
    reference: str  # the output it works on
    after: list[str]  # ids of the jobs it waits for
    shares: int = 0  # number of shares of the work units; 0 if it is not an array
    of_pass: str = ""  # the pass whose work units the shares are

    @property
    def task(self) -> str:
        """Its number in an array that makes outputs; empty for other jobs."""
        return self.id.partition("_")[2]

    @property
    def title(self) -> str:
        """Its name in tables, with the task's number."""
        return f"{self.name}[{self.task}]" if self.task else self.name

    @property
    def log_pattern(self) -> str:
        """Glob pattern of its logs in `logs/`, of all tasks and starts."""
        task = f"_{self.task}" if self.task else ""
        return f"{self.name}-[0-9]*{task}.log"


@dataclass(frozen=True)
class Submission:
    """A submission's folder."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def script(self, job: str) -> Path:
        return self.path / f"{job}.sbatch"

    def node(self, job: str, task: int | None = None) -> Path:
        name = f"{job}.json" if task is None else f"{job}/{task}.json"
        return self.path / "nodes" / name

    def create(self) -> None:
        """Create the folder; raises FileExistsError if another process just did."""
        self.path.mkdir(parents=True)
        self.logs.mkdir()
        (self.path / "nodes").mkdir()

    def freeze_code(self) -> None:
        """Copy the packages, the config files and the job templates."""
        sources = Path(__file__).parents[2]
        for name in ("pipeline", "data_prep"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(sources / name, self.code / name, ignore=ignored)
        for folder, name in ((CONF, "conf"), (TEMPLATES, "slurm")):
            if not (self.code / "pipeline" / name).is_dir():
                shutil.copytree(folder, self.code / name)

    def write_jobs(self, jobs: list[SubmittedJob]) -> None:
        content = {"jobs": [asdict(job) for job in jobs]}
        write_atomically(self.path / "submission.json", json.dumps(content, indent=1) + "\n")

    def jobs(self) -> list[SubmittedJob]:
        """Return the jobs with their current ids: a successor's id replaces the original's."""
        content = json.loads((self.path / "submission.json").read_text())
        jobs = [SubmittedJob(**job) for job in content["jobs"]]
        successors = self.successors()
        return [SubmittedJob(**asdict(job) | {"id": _latest(job.id, successors)}) for job in jobs]

    def successors(self) -> dict[str, str]:
        """Return the successor's id by the id of the job it took over from."""
        return {
            path.name: path.read_text()
            for path in sorted((self.path / SUCCESSORS).glob("*"))
            if not path.name.startswith(".")  # a file that is still being written
        }

    def add_successor(self, old: str, new: str) -> None:
        """Record that job `new` took over from job `old`.

        One file per hand-over, so that jobs that hand over at the same time lose nothing.
        """
        folder = self.path / SUCCESSORS
        folder.mkdir(exist_ok=True)
        write_atomically(folder / old, new)

    def note_cancelled(self, jobs: list[str]) -> None:
        """Record that jobs were cancelled: SLURM forgets those that never ran without a trace."""
        folder = self.path / CANCELLED
        folder.mkdir(exist_ok=True)
        for job in jobs:
            (folder / job).touch()

    def cancelled(self) -> set[str]:
        """Return the ids of the jobs that `sesame cancel` ended."""
        return {path.name for path in (self.path / CANCELLED).glob("*")}


def _latest(job: str, successors: dict[str, str]) -> str:
    while job in successors:
        job = successors[job]
    return job


def new_submission(store: Store, name: str) -> Submission:
    """Return a submission with an unused name; does not create its folder."""
    folder = (store.root / FOLDER).resolve()
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    path = folder / f"{stamp}_{name}"
    number = 1
    while path.exists():
        number += 1
        path = folder / f"{stamp}_{name}_{number}"
    return Submission(path)


def submissions(store: Store) -> Iterator[Submission]:
    """Yield all submissions, oldest first."""
    folder = (store.root / FOLDER).resolve()
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if (path / "submission.json").exists():
                yield Submission(path)


def find_submission(store: Store, wanted: str | None) -> Submission:
    """Return the newest submission whose id is `wanted` or begins with it; any id for None."""
    every = list(submissions(store))
    found = [each for each in every if each.id == wanted] or [
        each for each in every if each.id.startswith(wanted or "")
    ]
    if not found:
        which = f"that begins with {wanted}" if wanted else "at all"
        raise UsageError(f"{store.root / FOLDER}: there is no submission {which}")
    return found[-1]


def freeze_node(node: Node, path: Path) -> None:
    """Write a complete stage instance to `path`, with absolute paths."""
    content = {
        "stage": node.stage,
        "label": node.label,
        "model": type(node.config.model).__name__,
        "config": asdict(node.config),
        "inputs": {
            role: [item.reference, str(item.path.resolve()), item.may_go_on]
            for role, item in node.inputs.items()
        },
        "request": node.request,
        "fingerprint": node.output.fingerprint,
        "store": str(node.output.path.parents[1].resolve()),
    }
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(content, indent=1))


def thaw_node(path: Path, stages: Stages) -> Node:
    """Read a stage instance that `freeze_node` wrote."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SesameError(f"{path}: cannot be read ({error}); submit again") from error
    models = {model.__name__: model for model in ModelConfig.__subclasses__()}
    schema = OmegaConf.structured(Config(model=models[content["model"]]()))
    raw = OmegaConf.merge(schema, literal(content["config"]))
    assert isinstance(raw, DictConfig)
    inputs = {
        role: Input(name, Path(place), *rest)  # submissions of earlier versions lack the rest
        for role, (name, place, *rest) in content["inputs"].items()
    }
    output = Store(Path(content["store"])).output(content["stage"], content["fingerprint"])
    maker = stages[content["stage"]]
    config = typed(raw)
    files = maker.files(config)
    return Node(maker, content["label"], config, inputs, content["request"], output, files)


def refuse_changed_files(node: Node) -> None:
    """Raise a SesameError if the user's files have changed since the submission."""
    now = Checksums(node.output.path.parents[1]).describe(node.files.named)
    before = node.request["files_read"]
    if now != before:
        names = sorted(n for n in now.keys() | before.keys() if now.get(n) != before.get(n))
        raise SesameError(
            f"{node.stage}: {names[0]} has changed since this job was submitted "
            f"({len(names)} files in all); submit again"
        )
