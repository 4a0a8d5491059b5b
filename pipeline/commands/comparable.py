"""Decide whether the values of a sweep's points can be compared.

Held-out losses are comparable only with the same tokenizer and the same held-out rows. Scores are
comparable only with the same task, metric and development set. All other differences between points
are what the sweep compares.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.store.outputs import Output, canonical

# Keys of a task that change training, prediction or the test set, but not the development set.
BESIDE_DEV = (
    "train", "train_examples", "train_fraction", "test_examples", "further_tests", "unlabelled",
    "averaged", "stride", "max_question", "max_answer",
)  # fmt: skip


def why_not_comparable(variants: Mapping[str, Sequence[Output]]) -> str | None:
    """Return in one line why no variant can be called the best; None if they are comparable.

    `variants`: the outputs of each variant, one per seed. Seeds may have different held-out rows
    if every variant is measured on the same set of them.
    """
    measured: dict[str, list[frozenset[str]]] = {}
    for outputs in variants.values():
        bases = [_basis(output.request()) for output in outputs]
        for name in bases[0]:
            found = frozenset(canonical(basis[name]) for basis in bases)
            measured.setdefault(name, []).append(found)
    differing = [name for name, found in measured.items() if len(set(found)) > 1]
    if not differing:
        return None
    return f"no best: the points differ in {', '.join(differing)}, so their figures do not compare"


def _basis(request: dict[str, Any]) -> dict[str, Any]:
    """Return the data and settings that an output's value is measured on, by name."""
    if request["stage"] == "pretrain":
        return _heldout_basis(request)
    if request["stage"] == "finetune":
        return _dev_basis(request)
    return {}


def _heldout_basis(request: dict[str, Any]) -> dict[str, Any]:
    upstream = request["upstream"]
    phases = [role for role in upstream if role.startswith("examples.")]
    last = max(phases, key=lambda role: int(role.partition(".")[2]))  # evaluated at the end
    return {
        "tokenizer": upstream["tokenizer"],
        "held-out examples": upstream[last],
        "trainer.eval_rows": request["config"]["trainer"]["eval_rows"],
    }


def _dev_basis(request: dict[str, Any]) -> dict[str, Any]:
    task = request["config"]["task"]
    dev = [task["dev"]] if task["dev"] else [task["train"], task["test"]]  # split off train
    files = {name: request["files_read"].get(name) for name in dev if name}
    others = {key: value for key, value in task.items() if key not in BESIDE_DEV}
    return {
        "task": others.pop("name"),
        "task.metric": others.pop("metric"),
        "development set": {"files": files, "settings": others},
    }
