"""What a stage is to the rest of the pipeline.

A stage module has
    FORMAT          the version of what it writes; a change of bytes or meaning raises it
    SECTIONS        config sections whose result keys enter its fingerprint
    inputs(config)  the outputs it reads, by role
    files(config)   the user's files it reads, by root (those stages that do)
    run(work)       does the work and returns counts for the manifest
    ARRAY           True where `run` can make a share of the work alone (`work.share`)
    closing(out)    what the terminal shows at the end (those stages that say something)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.work_units import Share
from pipeline.config.schema import Config


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
    share: Share | None = None  # only these pieces, and no output yet
    files_read: Mapping[str, Any] = field(default_factory=dict)  # as the fingerprint has them
    check_lease: Callable[[], None] = lambda: None  # raises if another launch has taken over
