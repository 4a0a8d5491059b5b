"""What a command line without `experiment=` or `name=` means.

Without an experiment, `base=bert` is added: BERT as published. Another model family needs its own
recipe. A run without a name is named after its model and the result keys that were set.
"""

import hashlib
import re
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from data_prep.errors import UsageError
from pipeline.models.registry import FAMILIES

BASE = "base"
LONGEST = 60  # characters of a name that is made up


def with_base(overrides: list[str]) -> list[str]:
    """Return the overrides, with `base=bert` before them if they choose no experiment.

    `experiment=null` is left out: Hydra refuses to unset what is not set.
    """
    parsed = OverridesParser.create().parse_overrides(overrides)
    groups = {each.key_or_group: each for each in parsed}
    chosen = groups.get("experiment")
    if chosen is not None and (chosen.is_sweep_override() or chosen.value() is not None):
        return overrides
    kept = [
        text
        for text, each in zip(overrides, parsed, strict=True)
        if each.key_or_group != "experiment"
    ]
    return kept if BASE in groups else [f"{BASE}=bert", *kept]


def refuse_other_family(base: str, model: str, kind: str, recipes: list[str]) -> None:
    """Raise `UsageError` for a model of another family than `base` is meant for.

    `model` is the option of the group, `kind` its family, `recipes` the known experiments.
    """
    if base in ("none", kind):
        return
    fitting = [name for name in recipes if name.startswith(f"{kind}_")]
    named = [name for name in fitting if name == model] or fitting
    raise UsageError(
        f"model={model}: {FAMILIES[kind].title} has its own data, optimizer and budget, and the "
        f"settings without a recipe are BERT's; add experiment={' or experiment='.join(named)}"
    )


def run_name(overrides: list[str], model: str, result_keys: set[str]) -> str:
    """Return the name of a run: its encoder or model, and the values that were set, in their order.

    Swept keys are left out, because all points belong to one run.
    """
    first, parts = model, []
    for each in OverridesParser.create().parse_overrides(overrides):
        value = str(each.input_line).partition("=")[2]
        if each.is_sweep_override():
            continue
        if each.key_or_group == "encoder":
            first = Path(value).name
        elif each.key_or_group in result_keys:
            parts.append(f"{each.key_or_group.rpartition('.')[2]}-{value}")
    name = re.sub(r"[^\w.]+", "-", "_".join([first, *parts])).strip("-")
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{name[: LONGEST - 7]}-{digest}"
