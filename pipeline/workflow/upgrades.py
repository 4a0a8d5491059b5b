"""Unfinished outputs that an earlier version of Sesame began and this version cannot continue.

Such an output has the settings of a new one and differs only in format versions, its own or those
of its inputs. The plan names it and what would be lost; a training is not started anew in silence.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from data_prep.errors import UsageError
from pipeline.store.outputs import Output, Store
from pipeline.workflow.stage import Node


@dataclass(frozen=True)
class Superseded:
    """An unfinished output that cannot go on."""

    output: Output
    progress: str
    reasons: list[str]  # format versions that have changed

    def __str__(self) -> str:
        return f"{self.output.fingerprint[:8]} ({self.progress}; {', '.join(self.reasons)})"


def find_superseded(node: Node, nodes: Collection[Node], store: Store) -> Superseded | None:
    """Return the unfinished output of a new node's settings; `nodes` has the node's inputs."""
    by_reference = {each.output.reference: each for each in nodes}
    for output in store.outputs(node.stage):
        if output.has_manifest or output.fingerprint == node.output.fingerprint:
            continue
        reasons = _changed_formats(output.request(), node, by_reference, store)
        if reasons:
            distinct = list(dict.fromkeys(reasons))
            return Superseded(output, node.maker.how_far(output.path), distinct)
    return None


def refuse_to_start_anew(nodes: Collection[Node], again: Collection[Node]) -> None:
    """Raise `UsageError` if a training would start anew though an earlier version began it."""
    for node in nodes:
        if not node.maker.resumes or node in again or node.output.is_done or node.output.is_begun:
            continue
        lost = find_superseded(node, nodes, Store(node.store))
        if lost is not None:
            raise UsageError(
                f"{node.stage}: an earlier version of Sesame began {lost} with these settings, and "
                "this version cannot continue it; finish it with that version, or start anew with "
                "--force (sesame run or pretrain)"
            )


def _changed_formats(
    old: dict[str, Any], node: Node, nodes: Mapping[str, Node], store: Store
) -> list[str] | None:
    """Return the format versions in which an earlier request differs, of it and of its inputs.

    None if it differs in anything else, such as a setting, or if an input is gone.
    """
    new = node.request
    settings = (new["config"], node.maker.earlier_keys(node.config))
    if old["config"] not in settings or old["files_read"] != new["files_read"]:
        return None
    if old["upstream"].keys() != new["upstream"].keys():
        return None
    reasons = [] if old["format"] == new["format"] else [_moved(node.stage, old, new)]
    for before, now in _changed_inputs(old, new):
        output = store.from_reference(before)
        if now not in nodes or not (output.is_done or output.is_begun):
            return None
        inner = _changed_formats(output.request(), nodes[now], nodes, store)
        if inner is None:
            return None
        reasons += inner
    return reasons


def _changed_inputs(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for role, now in new["upstream"].items():
        if old["upstream"][role] != now:
            yield old["upstream"][role], now


def _moved(stage: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    return f"format of {stage} {old['format']} → {new['format']}"
