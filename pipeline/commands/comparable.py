"""Whether the figures of a sweep's points can be compared: judged by what they were measured on.

A held-out loss is per token of its tokenizer, on rows of its examples. A score belongs to its task,
metric and development set. What else differs between points is what the sweep compares.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.store.outputs import Output, canonical

# Keys of a task that change training, prediction or the test set, but not the development set.
BESIDE_DEV = (
    "train", "train_examples", "train_fraction", "test_examples", "also", "unlabelled", "averaged",
    "stride", "max_question", "max_answer",
)  # fmt: skip


def why_not_comparable(variants: Mapping[str, Sequence[Output]]) -> str | None:
    """Why no variant of a sweep is the best, in one line; None where one may be.

    `variants` has the outputs of each, one per seed. Seeds may have their own held-out rows as
    long as every variant is measured on the same ones.
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
    """What an output's figure is measured on, by name."""
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
    dev = [task["dev"]] if task["dev"] else [task["train"], task["test"]]  # cut from train
    files = {name: request["files_read"].get(name) for name in dev if name}
    others = {key: value for key, value in task.items() if key not in BESIDE_DEV}
    return {
        "task": others.pop("name"),
        "task.metric": others.pop("metric"),
        "development set": {"files": files, "settings": others},
    }
