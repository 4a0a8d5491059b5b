"""`--cfg` and `--info`: print the configuration that a command would use, and do nothing else."""

import logging
import sys
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from data_prep.errors import UsageError
from pipeline.commands.arguments import Arguments
from pipeline.config.compose import CONF, compose_raw, prepared, register

INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def print_config(arguments: Arguments) -> None:
    """Print the job's configuration, Hydra's own, or both; the whole or one part."""
    what, part = arguments.options["--cfg"], arguments.options.get("--package")
    if what not in ("job", "hydra", "all"):
        raise UsageError(f"--cfg {what}: must be one of job, hydra, all")
    if what != "job":
        more = ["--resolve"] if "--resolve" in arguments.options else []
        more += ["--package", part] if part else []
        run_hydra(["--cfg", what, *more, *prepared(arguments.overrides)], lambda raw: None)
        return
    raw = compose_raw(arguments.overrides)
    shown: Any = OmegaConf.select(raw, part) if part else raw
    if shown is None:
        raise UsageError(f"--package {part}: there is no such part of the configuration")
    if OmegaConf.is_config(shown):
        print(OmegaConf.to_yaml(shown, resolve="--resolve" in arguments.options), end="")
    else:
        print(shown)


def print_info(arguments: Arguments) -> None:
    """Print what Hydra knows: search path, defaults tree, plugins, config."""
    what = arguments.options["--info"]
    if what not in INFO:
        raise UsageError(f"--info={what}: must be one of {', '.join(INFO)}")
    logging.raiseExceptions = False  # Hydra logs its answer; a reader such as `head` may be gone
    compose_raw(arguments.overrides)  # a mistake is explained as everywhere else
    run_hydra(["--info", what, *prepared(arguments.overrides)], lambda raw: None)


def run_hydra(argv: list[str], job: Callable[[DictConfig], float | None]) -> None:
    """Let Hydra handle a command line, with its sweepers and launchers; changes sys.argv."""
    import hydra

    register()
    sys.argv = ["sesame", *argv]
    hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(job)()
