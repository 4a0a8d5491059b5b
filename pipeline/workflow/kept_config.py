"""The composed config of an output, kept in `<store>/configs/<stage>/<fingerprint>.yaml`.

It stands outside the output's folder, because execution keys differ from machine to machine and an
export is published as it is. Keys that may hold a value of the environment, such as paths, are
masked.
"""

from dataclasses import asdict
from typing import Any

import yaml  # type: ignore[import-untyped]

from data_prep.fields import walk
from data_prep.files import write_atomically
from pipeline.config.recipes import MASK
from pipeline.config.schema import Config
from pipeline.store.outputs import kept_config_path
from pipeline.workflow.stage import Node


def keep_config(node: Node) -> None:
    """Write the config that a stage was started with."""
    path = kept_config_path(node.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"# {node.output.reference}: the composed config; paths and references are masked\n"
    write_atomically(path, head + yaml.safe_dump(without_secrets(node.config), sort_keys=False))


def without_secrets(config: Config) -> dict[str, Any]:
    """Return a config as plain values, with MASK for keys that may hold the environment."""
    content = asdict(config)
    for key, rule, value in walk(config):
        if rule.holds_environment and value:
            *sections, name = key.split(".")
            holder = content
            for section in sections:
                holder = holder[section]
            holder[name] = MASK
    for task in content["task"]["members"].values():
        task["data_dir"] = MASK
    return content
