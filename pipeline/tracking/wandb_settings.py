"""How we speak to wandb: as a guest that says where a run belongs and nothing about its host."""

import os
from typing import Any

from pipeline.tracking.config import TrackingConfig

# Settings of ours that wandb's own variables replace.
VARIABLES = {
    "project": "WANDB_PROJECT",
    "entity": "WANDB_ENTITY",
    "group": "WANDB_RUN_GROUP",
    "tags": "WANDB_TAGS",
    "name": "WANDB_NAME",
}


def import_wandb() -> Any:
    """wandb, quiet before it reads its settings, and without reports to its makers."""
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

    import wandb

    return wandb


def private_settings(connect_seconds: float, flush_seconds: float) -> Any:
    """No capture of console, code, git, machine, packages or command line; bounded patience."""
    return import_wandb().Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
        silent=True,
        program="sesame pretrain",
        host="",
        init_timeout=connect_seconds,
        finish_timeout=flush_seconds,
        finish_timeout_raises=True,
    )


def belonging(config: TrackingConfig, name: str) -> dict[str, Any]:
    """Where a run belongs, as far as wandb's own variables do not say it."""
    ours = {
        "project": config.project,
        "entity": config.entity,
        "group": config.group,
        "tags": config.tags,
        "name": name,
    }
    return {key: value for key, value in ours.items() if VARIABLES[key] not in os.environ}
