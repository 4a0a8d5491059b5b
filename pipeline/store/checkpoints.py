"""Where the checkpoints of a pretraining lie; `training.checkpoint` says what they hold."""

from pathlib import Path

CHECKPOINTS = "checkpoints"  # the folder in the run's directory
CHECKSUMS = "checksums.json"  # of a checkpoint: size and sha256 of its files


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoints by step, without those that were set aside."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.isdigit())
