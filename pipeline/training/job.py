"""What a rank is told: the resolved config and the folders to read, as JSON in the run's directory.

Written by the launcher as `.rank.json` at every launch; read by each rank. Its token tells this
launch from an earlier, orphaned one.
"""

import json
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from data_prep.examples.masking import MaskRule
from data_prep.files import write_atomically
from pipeline.models.config import KINDS, ModelConfig
from pipeline.tracking.config import TrackingConfig
from pipeline.training.config import OptimConfig, PhaseConfig, TrainerConfig
from pipeline.training.exits import Dropped

FILE = ".rank.json"


@dataclass(frozen=True)
class Job:
    """One launch of one pretraining."""

    name: str
    model: ModelConfig
    optim: OptimConfig
    trainer: TrainerConfig
    tracking: TrackingConfig
    masks: MaskRule
    phases: list[PhaseConfig]
    examples: list[str]  # a folder a phase; its name is the fingerprint
    tokenizer: str
    vocab_size: int  # pieces or words that are predicted
    source: str | None  # weights to start from
    checkpoint: str | None  # to go on from
    vectors: str | None = None  # of words, for embeddings to start from
    skip: Dropped | None = None  # rows that made an earlier launch diverge
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def write(self, run_dir: Path) -> None:
        write_atomically(run_dir / FILE, json.dumps(asdict(self)))

    @classmethod
    def read(cls, run_dir: Path) -> "Job":
        content: dict[str, Any] = json.loads((run_dir / FILE).read_text())
        sections = {
            "model": KINDS[content["model"]["kind"]],
            "optim": OptimConfig,
            "trainer": TrainerConfig,
            "tracking": TrackingConfig,
            "masks": MaskRule,
        }
        for key, section in sections.items():
            content[key] = section(**content[key])
        if content["skip"] is not None:
            content["skip"] = Dropped(**content["skip"])
        content["phases"] = [PhaseConfig(**phase) for phase in content["phases"]]
        return cls(**content)

    def check_current(self, run_dir: Path) -> None:
        """Stop a launch that a later one has replaced, before it writes."""
        if Job.read(run_dir).token != self.token:
            raise SesameError(f"{run_dir}: another launch has taken over; this one stops")
