"""Describes outputs of the store as wandb artifacts: references with sizes and checksums.

No file content is read, copied or uploaded. wandb's own `download` verifies MD5 sums and refuses
these files, which have SHA-256; open them at the paths of the references.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.store.checkpoints import CHECKPOINTS, CHECKSUMS, checkpoints
from pipeline.store.outputs import Output, Store

KINDS = {"pretrain": "checkpoint", "finetune": "scores", "layers": "scores"}
RESULTS = ("export", "finetune", "layers")  # stages after pretraining


@dataclass(frozen=True)
class File:
    """A file of the store, by reference."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True)
class Artifact:
    """The files of one output or checkpoint."""

    kind: str
    fingerprint: str
    files: dict[str, File]
    facts: dict[str, Any] = field(default_factory=dict)  # counts and scores, never text
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A unique name; an output has the same name in every run."""
        return f"{self.kind}-{self.fingerprint}"


def artifacts(output: Output) -> list[Artifact]:
    """Return an output as one artifact; a pretraining as one per kept checkpoint, oldest first."""
    if output.stage == "pretrain":
        kept = checkpoints(output.path / CHECKPOINTS)
        return [_checkpoint(output.fingerprint, path) for path in kept]
    manifest = output.manifest()
    files = {
        name: File(output.path.resolve() / name, values["size"], values["sha256"])
        for name, values in manifest["files"].items()
    }
    kind = KINDS.get(output.stage, output.stage)
    return [Artifact(kind, output.fingerprint, files, {"counts": manifest["counts"]})]


def _checkpoint(fingerprint: str, path: Path) -> Artifact:
    files = {
        name: File(path.resolve() / name, values["bytes"], values["sha256"])
        for name, values in json.loads((path / CHECKSUMS).read_text()).items()
    }
    step = int(path.name)
    return Artifact(KINDS["pretrain"], fingerprint, files, {"step": step}, (f"step-{step}",))


def inputs_of(store: Store, output: Output) -> list[Artifact]:
    """Return all finished direct and indirect inputs of an output; for a pretraining, its last
    checkpoint."""
    return [
        artifact
        for before in store.ancestors(output)
        if before.is_done
        for artifact in artifacts(before)[-1:]
    ]


def results_of(store: Store, pretraining: Output) -> list[Output]:
    """Return the finished exports of a pretraining, and the scores made from them."""

    def rests_on_it(output: Output) -> bool:  # recursive: a suite reads fine-tunings
        before = [store.from_reference(name) for name in output.request()["upstream"].values()]
        return any(
            each.reference == pretraining.reference
            or (each.stage in RESULTS and each.is_done and rests_on_it(each))
            for each in before
        )

    later = (each for stage in RESULTS for each in store.outputs(stage))
    return [each for each in later if each.is_done and rests_on_it(each)]
