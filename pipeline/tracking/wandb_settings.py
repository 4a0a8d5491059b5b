"""Settings for wandb that name project and run but record nothing about the machine."""

import os
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


def private_settings(config: TrackingConfig, connect_seconds: float, flush_seconds: float) -> Any:
    """Return settings that record no console output, code, machine, packages or command line, and
    that limit the time to connect and to finish.

    The git commit and the machine's load are recorded only where the config asks for them.
    """
    return import_wandb().Settings(
        console="off",
        disable_code=True,
        disable_git=not config.code,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=not config.system,
        x_save_requirements=False,
        silent=True,
        program="sesame pretrain",
        host="",
        init_timeout=connect_seconds,
        finish_timeout=flush_seconds,
        finish_timeout_raises=True,
    )


def belonging(config: TrackingConfig, name: str, group: str, stage: str) -> dict[str, Any]:
    """Return project, entity, group, tags, name and job type, without those set by wandb's
    variables. `name` and `group` hold where the config sets none."""
    ours = {
        "project": config.project,
        "entity": config.entity,
        "group": config.group or group,
        "tags": config.tags,
        "name": config.name or name,
        "job_type": stage,
    }
    return {key: value for key, value in ours.items() if VARIABLES[key] not in os.environ}
