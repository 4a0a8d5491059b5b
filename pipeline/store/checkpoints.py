"""Finds the checkpoints of a pretraining on disk; `training.checkpoint` describes their content."""

from pathlib import Path

CHECKPOINTS = "checkpoints"  # subfolder of the run's folder
CHECKSUMS = "checksums.json"  # in a checkpoint: size and sha256 of its files


def checkpoints(folder: Path) -> list[Path]:
    """Return all checkpoints sorted by step, without those set aside as damaged."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.isdigit())
