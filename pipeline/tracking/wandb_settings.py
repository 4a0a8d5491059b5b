"""Settings for wandb that name project and run but record nothing about the machine."""

import os
import subprocess
from pathlib import Path
from typing import Any

from pipeline.tracking.config import TrackingConfig

# Our settings, and wandb's environment variables that take precedence over them.
VARIABLES = {
    "project": "WANDB_PROJECT",
    "entity": "WANDB_ENTITY",
    "group": "WANDB_RUN_GROUP",
    "tags": "WANDB_TAGS",
    "name": "WANDB_NAME",
    "job_type": "WANDB_JOB_TYPE",
}


def import_wandb() -> Any:
    """Import wandb, with console output and error reports to its vendor switched off first."""
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

    import wandb

    return wandb


def private_settings(
    stage: str, connect_seconds: float, flush_seconds: float, system: bool = False
) -> Any:
    """Return settings that record no console output, code, git state, machine, packages or command
    line, and that limit the time to connect and to finish. `system`: record the machine's load."""
    return import_wandb().Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=not system,
        x_save_requirements=False,
        silent=True,
        program=f"sesame {stage}",
        host="",
        init_timeout=connect_seconds,
        finish_timeout=flush_seconds,
        finish_timeout_raises=True,
    )


def belonging(config: TrackingConfig, name: str, stage: str) -> dict[str, Any]:
    """Return project, entity, group, job type, tags and name, without those set by wandb's
    variables."""
    ours = {
        "project": config.project,
        "entity": config.entity,
        "group": config.group or name,
        "tags": config.tags,
        "name": config.label or name,
        "job_type": stage,
    }
    return {key: value for key, value in ours.items() if VARIABLES[key] not in os.environ}


def code_version() -> dict[str, Any]:
    """Return the git commit of Sesame's code and whether it was changed; empty outside git."""
    folder = str(Path(__file__).parent)
    git = ["git", "-C", folder]
    try:
        commit = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        status = subprocess.run(
            [*git, "status", "--porcelain"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": commit.stdout.strip(), "changed": bool(status.stdout.strip())}
