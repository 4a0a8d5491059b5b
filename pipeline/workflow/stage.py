"""The contract between a stage and the rest of the pipeline: `Stage`, and what it is given.

A stage is one object, handed to the graph by `pipeline.stages`. The graph asks it what it reads and
what shapes its output; execution gives it a `Work` to do. Nothing else asks which stage it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from rich.table import Table

from data_prep.fields import result_keys
from data_prep.work_units import ArraySlice
from pipeline.config.schema import Config
from pipeline.store.content import Checksums
from pipeline.store.outputs import Output, Store

# The order of work, of tables and of the report; `pipeline.stages.STAGES` has a stage for each.
STAGE_ORDER = (
    "shard", "tokenizer", "vectors", "examples", "pretrain", "export", "finetune", "layers",
    "report",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """Another stage's output that a stage needs: the stage and the config it is made with."""

    stage: str
    config: Config
    label: str = ""  # tells it apart where a stage needs several


@dataclass(frozen=True)
class Work:
    """One stage instance to be done: read `inputs`, write below `out`, nothing else."""

    config: Config
    inputs: dict[str, Path]
    out: Path
    fingerprint: str
    share: ArraySlice | None = None  # make only these work units, and no output yet
    files_read: Mapping[str, Any] = field(default_factory=dict)  # as the fingerprint has them
    check_lease: Callable[[], None] = lambda: None  # raises if another launch has taken over


@dataclass(frozen=True)
class Input:
    """Something a stage reads: another output, or a folder of the user's."""

    reference: str
    path: Path
    may_go_on: bool = False  # the part that is read never changes, though the output is unfinished


@dataclass(frozen=True)
class Instance:
    """One use of a stage in an experiment: its config and what tells it from other uses."""

    name: str  # as the experiment calls it; the stage's own name where it has one use
    config: Config
    point: list[str]  # all overrides of this use
    swept: list[str]  # those that a sweep varies


class Planner(Protocol):
    """What a stage may do with the graph while it takes its place there."""

    store: Store
    checksums: Checksums
    nodes: "dict[str, Node]"
    pretrainings: dict[str, dict[str, Config]]  # configs by instance name and reference

    def add(self, stage: str, config: Config, label: str = "") -> "Node":
        """Add an instance and everything it needs."""

    def place(self, stage: str, config: Config, label: str, inputs: dict[str, Input]) -> "Node":
        """Add an instance whose inputs are known; equal ones are one node."""

    def request(self, request: Request) -> "Node | Input":
        """What makes or holds a requested output."""


class Stage(ABC):
    """One step from raw text to the report.

    Subclasses state their name, the version of what they write (`format`: a change of bytes or
    meaning raises it) and the config sections whose result keys enter the fingerprint.
    """

    name: ClassVar[str]
    format: ClassVar[int]
    sections: ClassVar[tuple[str, ...]]
    obeyed: ClassVar[tuple[str, ...]] = ()  # further sections, which shape nothing; for the help
    takes_shares: ClassVar[bool] = False  # `run` can make a share of the work units alone
    runs_beside: ClassVar[bool] = False  # outputs may be made at the same time, a process each

    @abstractmethod
    def inputs(self, config: Config) -> dict[str, Request]:
        """The outputs it reads, by role. Refuses settings that cannot work."""

    @abstractmethod
    def run(self, work: Work) -> dict[str, Any]:
        """Make the output and return counts for the manifest."""

    def keys(self, config: Config) -> dict[str, Any]:
        """The settings that shape the output, by section; these enter the fingerprint."""
        return {section: result_keys(getattr(config, section)) for section in self.sections}

    def files(self, config: Config) -> list[tuple[str, Path]]:
        """The user's files it reads: the name that enters the fingerprint, and the place."""
        return []

    def how_far(self, out: Path) -> str:
        """How much of an unfinished output is there, for the plan."""
        units = out / ".pieces"
        made = sum(1 for path in units.rglob("*") if path.is_dir()) if units.is_dir() else 0
        return f"{made} pieces made" if made else "started"

    def closing(self, out: Path) -> Table | None:
        """What the terminal shows when an output was asked for by the stage's own command."""
        return None

    def resolve(self, graph: Planner, request: Request) -> "Node | Input":
        """What makes or holds the output that another stage asks for."""
        return graph.add(self.name, request.config, request.label)

    def add_instance(self, graph: Planner, instance: Instance) -> None:
        """Take the place in the graph that an experiment asks for."""
        graph.add(self.name, instance.config, ", ".join(instance.point))


@dataclass(frozen=True, eq=False)
class Node:
    """One stage instance: its config, what it reads, and where its output is or will be."""

    maker: Stage
    label: str
    config: Config
    inputs: dict[str, Input]
    request: dict[str, Any]
    output: Output

    @property
    def stage(self) -> str:
        """The stage's name."""
        return self.maker.name


def as_input(item: Node | Input) -> Input:
    """A node as what another stage reads."""
    return item if isinstance(item, Input) else Input(item.output.reference, item.output.path)
