"""The input of a rank: the resolved config and the folders to read, as `.rank.json`.

The launcher writes the file into the run's folder at every launch; each rank reads it. Its `token`
distinguishes this launch from an earlier one whose ranks may still be running.
"""

import json
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from data_prep.examples.masking import MaskRule
from data_prep.files import write_atomically
from pipeline.models.config import ModelConfig
from pipeline.models.registry import model_config
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
    examples: list[str]  # one folder per phase; the folder's name is the fingerprint
    tokenizer: str  # folder
    vocab_size: int  # number of tokens (BERT) or words (ELMo) that can be predicted
    source: str | None  # folder with the weights to start from
    checkpoint: str | None  # name of the checkpoint to resume from
    vectors: str | None = None  # folder with word vectors to start the embeddings from
    skip: Dropped | None = None  # rows that made an earlier launch diverge
    stop_at: int | None = None  # a rehearsal: save and stop after this step, and probe the ranks
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def write(self, run_dir: Path) -> None:
        write_atomically(run_dir / FILE, json.dumps(asdict(self)))

    @classmethod
    def read(cls, run_dir: Path) -> "Job":
        content: dict[str, Any] = json.loads((run_dir / FILE).read_text())
        sections = {
            "optim": OptimConfig,
            "trainer": TrainerConfig,
            "tracking": TrackingConfig,
            "masks": MaskRule,
        }
        content["model"] = model_config(content["model"])
        for key, section in sections.items():
            content[key] = section(**content[key])
        if content["skip"] is not None:
            content["skip"] = Dropped(**content["skip"])
        content["phases"] = [PhaseConfig(**phase) for phase in content["phases"]]
        return cls(**content)

    def check_current(self, run_dir: Path) -> None:
        """Raise `SesameError` if a later launch has replaced this one. Call it before writing."""
        check_token(run_dir, self.token)


def check_token(run_dir: Path, token: str) -> None:
    """Raise `SesameError` if `.rank.json` in the folder belongs to a later launch."""
    if json.loads((run_dir / FILE).read_text())["token"] != token:
        raise SesameError(f"{run_dir}: another launch has taken over; this one stops")
