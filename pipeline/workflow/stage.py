"""The contract between a stage and the rest of the pipeline.

A stage is one object of a subclass of `Stage`, registered in `pipeline.stages`. The graph asks it
for its inputs and for the settings that enter its fingerprint. `execute` calls `run` with a `Work`.
No other code depends on which stage it is.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from rich.table import Table

from data_prep.errors import SesameError
from data_prep.fields import result_keys
from data_prep.passes import UNITS, ArraySlice, Passes
from data_prep.ray_tasks import RayTasks
from data_prep.reading.source_files import FilePath
from data_prep.reading.sources import Survey
from data_prep.work_units import Executor, LocalPool
from pipeline.config.schema import Config
from pipeline.store.content import Checksums
from pipeline.store.outputs import Output, Store

# The order of execution, of tables and of the report; `pipeline.stages.STAGES` has each of them.
STAGE_ORDER = (
    "shard", "tokenizer", "vectors", "examples", "pretrain", "export", "finetune", "model",
    "layers", "report",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A request for the output of another stage, made with `config`."""

    stage: str
    config: Config
    label: str = ""  # distinguishes several requests to one stage


@dataclass(frozen=True)
class UserFiles:
    """The user's files that a stage reads, as found when the graph was built."""

    named: Sequence[tuple[str, FilePath]] = ()  # (name in the fingerprint, path)
    survey: Survey | None = None  # of a corpus: the files to read, and the others beside them


ReportValue = Callable[[int, float], None]  # (step or number, objective); may raise StoppedEarly


def no_report(step: int, value: float) -> None:
    """Ignore how a stage goes."""


class StoppedEarly(SesameError):
    """A point of a sweep was stopped because it is worse than others. Its output is unfinished."""

    def __init__(self, step: int, value: float, others: float) -> None:
        super().__init__(f"stopped at {step:,}: {value:.4f}, others had {others:.4f} in the median")
        self.step, self.value, self.others = step, value, others


@dataclass(frozen=True)
class Work:
    """The argument of `Stage.run`. It must read only `inputs` and the user's files, and write only
    below `out`."""

    config: Config
    inputs: dict[str, Path]  # folders by role
    out: Path
    fingerprint: str
    share: ArraySlice | None = None  # if set, make only these work units and not the output
    files: UserFiles = field(default_factory=UserFiles)
    files_read: Mapping[str, Any] = field(default_factory=dict)  # as fingerprinted: size, checksum
    check_lease: Callable[[], None] = lambda: None  # raises if another launch has taken over
    report: ReportValue = no_report  # to be called with the objective while it trains

    def passes(self, workers: int, divided: tuple[str, ...]) -> Passes:
        """Return who makes the work units: `config.executor`.

        A pool has `workers` processes (0: one per core). `divided`: see `Stage.divided_passes`.
        """
        executor: Executor = LocalPool.of(workers)
        if self.config.executor == "ray":
            executor = RayTasks(self.config.ray_address)
        return Passes.below(self.out, executor, self.share, divided)


@dataclass(frozen=True)
class Input:
    """An input of a stage: another output, or a folder of the user."""

    reference: str  # <stage>/<fingerprint>, or folder/<fingerprint>
    path: Path
    may_go_on: bool = (
        False  # True: usable before it is finished, because the part read is immutable
    )

    @property
    def output(self) -> Output | None:
        """The output of the store; None for a folder of the user."""
        stage, _, name = self.reference.partition("/")
        return None if stage == "folder" else Output(stage, name, self.path)


@dataclass(frozen=True)
class Instance:
    """One use of a stage in an experiment: its name, its config and its own overrides."""

    name: str  # the key in `instances`; the stage's name if it has no named instances
    config: Config
    point: list[str]  # all overrides of this instance
    swept: list[str]  # the overrides that a sweep varies


class Planner(Protocol):
    """The part of `Graph` that a stage may use when it adds itself."""

    store: Store
    checksums: Checksums
    nodes: "dict[str, Node]"
    pretrainings: dict[str, dict[str, Config]]  # configs by instance name, then reference

    def add(self, stage: str, config: Config, label: str = "") -> "Node":
        """Add an instance and, before it, every instance whose output it needs."""

    def place(self, stage: str, config: Config, label: str, inputs: dict[str, Input]) -> "Node":
        """Add an instance with known inputs; return the existing node if there is an equal one."""

    def request(self, request: Request) -> "Node | Input":
        """Return the node that makes a requested output, or the input that already holds it."""


class Stage(ABC):
    """One step on the way from raw text to the report.

    Subclasses set `name`, `format` and `sections`. `format` is the version of the files they write:
    raise it when bytes or their meaning change. The result keys of `sections` enter the
    fingerprint.
    """

    name: ClassVar[str]
    format: ClassVar[int]
    formats_before: ClassVar[tuple[int, ...]] = ()  # newest first; see `keeps_inputs`
    keeps_inputs: ClassVar[bool] = False  # True: goes on with inputs of `formats_before`
    sections: ClassVar[tuple[str, ...]]
    obeyed: ClassVar[tuple[str, ...]] = ()  # further sections it reads; only shown in the help
    resumes: ClassVar[bool] = False  # True: `run` continues a folder in which files are missing
    runs_beside: ClassVar[bool] = False  # True: several outputs may be made in parallel processes

    @abstractmethod
    def inputs(self, config: Config) -> dict[str, Request]:
        """Return the outputs it reads, by role. Raises `UsageError` for impossible settings."""

    def divided_passes(self, config: Config, files: UserFiles) -> tuple[str, ...]:
        """Return the names of the passes that several launches divide, in order.

        An array of a cluster takes each. `run` gives its work units to `Work.passes`. `files` are
        those that the stage reads.
        """
        return ()

    def check_machine(self, config: Config) -> None:  # noqa: B027 (most stages run anywhere)
        """Raise `UsageError` if this machine cannot run the stage. Called before any work."""

    def assist(self, config: Config, output: Output) -> bool:
        """Help another process that makes the output, until it is finished; True if this did.

        False, as in most stages, if this process makes the output itself.
        """
        return False

    @abstractmethod
    def run(self, work: Work) -> dict[str, Any]:
        """Write the output below `work.out`; return counts for the manifest.

        Must be restartable: after a kill it is called again with the same folder.
        """

    def tidy(self, out: Path, inputs: Mapping[str, Path]) -> None:  # noqa: B027 (most need none)
        """Remove what was needed only until the output is finished.

        Called after its manifest is written, with the folders of `Work`: a kill before that loses
        nothing. A kill at that moment may skip it.
        """

    def keys(self, config: Config) -> dict[str, Any]:
        """Return the settings that determine the output, by section; they enter the fingerprint."""
        return {section: result_keys(getattr(config, section)) for section in self.sections}

    def earlier_keys(self, config: Config) -> dict[str, Any]:
        """Return `keys` as earlier versions of Sesame hashed them.

        Outputs that they began or finished under such a fingerprint are found and used.
        """
        return self.keys(config)

    def files(self, config: Config) -> UserFiles:
        """Find the user's files it reads. The result depends on `sections` only: the graph calls
        this once for equal sections."""
        return UserFiles()

    def how_far(self, out: Path) -> str:
        """Describe the progress of an unfinished output, for the plan."""
        units = out / UNITS
        names = os.listdir(units) if units.is_dir() else []  # one listing, however many units
        made = sum(not name.startswith(".") for name in names)
        return f"{made} pieces made" if made else "started"

    def foretell(self, node: "Node", nodes: "Collection[Node]") -> str:
        """Describe a new output before it is made, for the plan; empty if there is nothing to say.

        `nodes`: all of the plan, which may not be made yet.
        """
        return ""

    def closing(self, out: Path) -> Table | None:
        """Return a table to print after the stage's own command, or None."""
        return None

    def resolve(self, graph: Planner, request: Request) -> "Node | Input":
        """Return the node that makes the requested output, or the input that already holds it."""
        return graph.add(self.name, request.config, request.label)

    def add_instance(self, graph: Planner, instance: Instance) -> None:
        """Add one instance of the experiment to the graph."""
        graph.add(self.name, instance.config, ", ".join(instance.point))


@dataclass(frozen=True, eq=False)
class Node:
    """One stage instance in the graph: its config, its inputs and the place of its output."""

    maker: Stage
    label: str
    config: Config
    inputs: dict[str, Input]  # by role
    request: dict[str, Any]  # the content that the fingerprint hashes
    output: Output
    files: UserFiles = field(default_factory=UserFiles)
    report: ReportValue = no_report

    @property
    def stage(self) -> str:
        """The stage's name."""
        return self.maker.name

    @property
    def store(self) -> Path:
        """The root of the store that has the output."""
        return self.output.path.parents[1]


def as_input(item: Node | Input) -> Input:
    """Return a node's output as an input of another stage."""
    return item if isinstance(item, Input) else Input(item.output.reference, item.output.path)
