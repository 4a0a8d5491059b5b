"""The plan that a command prints before work: one line per stage instance, with its state.

For a new output it names the most similar existing output and the differences.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from pipeline.store.content import Checksums
from pipeline.store.outputs import Output, Store
from pipeline.store.remaking import remade_inputs
from pipeline.store.verify import find_faults
from pipeline.workflow.stage import Node
from pipeline.workflow.upgrades import find_superseded

DIFFERENCES_SHOWN = 3


@dataclass(frozen=True)
class PlanRow:
    """The state of one node, and a note that explains it."""

    node: Node
    state: str  # done, goes on, new, again, outdated, damaged
    note: str  # progress of an unfinished output; the fault of a damaged one; for a new one, the
    # nearest existing output


def plan(nodes: list[Node], store: Store, again: Collection[Node] = ()) -> list[PlanRow]:
    """Return one row per node; those in `again` are made even if they are finished.

    Finished outputs are compared with their manifests.
    """
    known = Checksums(store.root)
    rows = [_row(node, nodes, store, known, node in again) for node in nodes]
    return [_with_loss(row, nodes, store) if row.state == "new" else row for row in rows]


def _with_loss(row: PlanRow, nodes: Collection[Node], store: Store) -> PlanRow:
    """Return a row that names what an earlier version began and this one cannot continue."""
    lost = find_superseded(row.node, nodes, store)
    note = f"an earlier version began {lost}, which cannot go on" if lost else row.note
    return PlanRow(row.node, row.state, note)


def _row(node: Node, nodes: list[Node], store: Store, known: Checksums, is_again: bool) -> PlanRow:
    for fault in find_faults(node.output, known, node.config.verifies_all):
        return PlanRow(node, "damaged", str(fault))
    if is_again and (node.output.is_done or node.output.is_begun):
        return PlanRow(node, "again", "beside the old one, which it replaces when it is done")
    if node.output.is_done and (remade := remade_inputs(node.output)):
        return PlanRow(node, "outdated", f"made before {', '.join(remade)}; --force makes it again")
    if node.output.is_done:
        return PlanRow(node, "done", "")
    if node.output.is_begun:
        return PlanRow(node, "goes on", node.maker.how_far(node.output.path))
    notes = node.maker.foretell(node, nodes), _nearest(node, store)
    return PlanRow(node, "new", "; ".join(filter(None, notes)))


def _nearest(node: Node, store: Store) -> str:
    """Describe the most similar output in the store and its differences; empty if there is none."""
    best: tuple[int, Output, list[str]] | None = None
    for output in store.outputs(node.stage):
        if output.has_manifest and not output.is_done:
            continue  # damaged: what it was made from is not known
        differences = list(compare(output.request(), node.request))
        if best is None or len(differences) < best[0]:
            best = (len(differences), output, differences)
    if best is None:
        return ""
    count, output, differences = best
    shown = "; ".join(differences[:DIFFERENCES_SHOWN])
    more = f"; {count - DIFFERENCES_SHOWN} more" if count > DIFFERENCES_SHOWN else ""
    return f"unlike {output.fingerprint[:8]}: {shown}{more}"


def compare(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Yield the differences between two requests by config key, file and input."""
    before, after = _flat(old["config"]), _flat(new["config"])
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield f"{key} {_short(before.get(key))} → {_short(after.get(key))}"
    yield from _compare_items(old["files_read"], new["files_read"], "")
    yield from _compare_items(old["upstream"], new["upstream"], "upstream ")
    if old["format"] != new["format"]:
        yield f"format version {old['format']} → {new['format']}"


def _compare_items(old: dict[str, Any], new: dict[str, Any], kind: str) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{kind}{name} is gone"
        elif name not in old:
            yield f"{kind}{name} added"
        elif old[name] != new[name]:
            yield f"{kind}{name} changed"


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def as_table(lines: list[PlanRow]) -> Table:
    """Format the plan for a terminal."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("stage", "output", "state", ""):
        table.add_column(heading)
    colours = {
        "done": "green", "goes on": "yellow", "new": "cyan", "again": "cyan",
        "outdated": "yellow", "damaged": "red",
    }  # fmt: skip
    for line in lines:
        state = f"[{colours[line.state]}]{line.state}[/]"
        table.add_row(titled(line.node), line.node.output.fingerprint[:8], state, escape(line.note))
    return table


def titled(node: Node) -> str:
    """Return a node's stage and label in rich's markup."""
    return f"{node.stage} [dim]{escape(node.label)}[/]" if node.label else node.stage
