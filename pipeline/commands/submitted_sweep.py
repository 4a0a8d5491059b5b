"""Sweeps that were submitted with `sesame submit -m`, and `sesame sweep`, which prints any sweep.

A submission records its points in `<store>/sweeps/<submission>/sweep.json`. `sesame sweep` writes
`point.json` for each finished point and prints the table of a local sweep.
Try it: sesame sweep
"""

import json
from dataclasses import replace
from pathlib import Path

from data_prep.errors import UsageError
from data_prep.files import write_atomically
from data_prep.progress import console
from pipeline.cluster.frozen import Submission
from pipeline.commands.arguments import Arguments
from pipeline.commands.store import open_store
from pipeline.commands.sweep_points import (
    OBJECTIVES,
    SUMMARY,
    Point,
    finished_point,
    read_points,
    summarise_sweep,
    write_point,
)
from pipeline.store.outputs import Store
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Node

SWEEPS = "sweeps"
SWEEP = "sweep.json"


def label_nodes(graphs: list[Graph], settings: list[list[str]]) -> list[Node]:
    """Return the nodes of all points, each once, labelled with the settings that it depends on.

    A node depends on the settings that all points with this node share, and other points do not.
    """
    nodes = {name: node for graph in graphs for name, node in graph.nodes.items()}
    labelled = []
    for reference, node in nodes.items():
        points = zip(settings, graphs, strict=True)
        own = [each for each, graph in points if reference in graph.nodes]
        words = [
            word
            for word in own[0]
            if all(word in each for each in own) and not all(word in each for each in settings)
        ]
        known = [part for part in node.label.split(", ") if part and part not in words]
        # Swept settings stand first, because names of jobs are cut.
        labelled.append(replace(node, label=", ".join([*words, *known])))
    return labelled


def record_sweep(
    submission: Submission,
    store: Store,
    graphs: list[Graph],
    settings: list[list[str]],
    chosen: list[Node],
) -> None:
    """Write the settings and the output of every point; `chosen` are the submitted nodes."""
    known = {node.output.reference for node in chosen}
    points = []
    for number, graph in enumerate(graphs):
        measured = _measured([node for name, node in graph.nodes.items() if name in known])
        points.append(
            {
                "number": number,
                "settings": settings[number],
                "output": measured.output.reference,
                "stage": measured.stage,
            }
        )
    folder = store.root / SWEEPS / submission.id
    folder.mkdir(parents=True)
    write_atomically(folder / SWEEP, json.dumps({"points": points}, indent=1) + "\n")


def _measured(nodes: list[Node]) -> Node:
    """Return the last node of a stage with an objective of which a point has one; else the last."""
    for stage in OBJECTIVES:
        found = [node for node in nodes if node.stage == stage]
        if len(found) == 1:
            return found[0]
    return nodes[-1]


def show_sweep(arguments: Arguments) -> None:
    """Print the table of a sweep, local or submitted; the newest if none is named."""
    if len(arguments.words) > 1:
        raise UsageError(f"{arguments.words[1]}: name one sweep, or none for the newest")
    store = open_store(arguments)
    print_sweep(find_sweep(store, arguments.words[0] if arguments.words else ""), store)


def find_sweep(store: Store, wanted: str) -> Path:
    """Return the folder of the newest sweep whose id begins with `wanted`."""
    folders = [path for path in (store.root / SWEEPS).glob(f"{wanted}*") if path.is_dir()]
    if not folders:
        which = f"that begins with {wanted}" if wanted else "at all"
        raise UsageError(f"{store.root / SWEEPS}: there is no sweep {which}")
    return max(folders, key=lambda path: path.name)


def print_sweep(folder: Path, store: Store) -> None:
    """Print the table of a sweep, and how many of its points are not finished."""
    unfinished = update_points(folder, store)
    points = read_points(folder)
    if points:
        console.print(summarise_sweep(folder, _stage(folder, points), store))
    if unfinished or not points:
        total = f" of {unfinished + len(points)}" if unfinished else ""
        console.print(f"{folder.name}: {unfinished or 'all'}{total} points are not finished")


def update_points(folder: Path, store: Store) -> int:
    """Write `point.json` for every finished point of a submitted sweep.

    Returns the number of unfinished ones.
    """
    unfinished = 0
    if not (folder / SWEEP).exists():
        return 0
    for point in json.loads((folder / SWEEP).read_text())["points"]:
        output = store.from_reference(point["output"])
        if output.is_done:
            made = finished_point(point["number"], point["settings"], output)
            write_point(folder / str(point["number"]), made)
        else:
            unfinished += 1
    return unfinished


def _stage(folder: Path, points: list[Point]) -> str:
    """Return the stage that a sweep's points ran."""
    if (folder / SUMMARY).exists():
        return str(json.loads((folder / SUMMARY).read_text())["stage"])
    made = [point.output.partition("/")[0] for point in points if point.output]
    return made[0] if made else ""
