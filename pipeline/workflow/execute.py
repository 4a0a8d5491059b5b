"""Executes nodes: takes the output's lease, runs the stage, and writes the manifest last."""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from data_prep.errors import SesameError, UsageError
from data_prep.files import write_atomically
from data_prep.passes import UNITS, ArraySlice, SliceDone
from data_prep.progress import console
from data_prep.work_units import usable_cores
from pipeline.store.content import Checksums
from pipeline.store.lease import describe, lease, read_holder
from pipeline.store.outputs import LEASE, Output, Store, run_facts
from pipeline.store.remaking import beside as place_beside
from pipeline.store.remaking import complete_swap, has_same_files, mark_outdated, swap_in
from pipeline.store.verify import refuse_damage
from pipeline.training.exits import Interrupted
from pipeline.workflow.beside import make_beside
from pipeline.workflow.devices import visible_devices
from pipeline.workflow.kept_config import keep_config
from pipeline.workflow.plan import titled
from pipeline.workflow.stage import Node, Work
from pipeline.workflow.upgrades import refuse_to_start_anew

WEIGHTS = (".safetensors", ".bin", ".hdf5", ".npy")  # suffixes of an encoder's large files
PROCESS_BYTES = 1_500_000_000  # per process: torch, a task's data, a small model's activations


def execute(node: Node) -> None:
    """Make one output under its lease; return at once if it is finished.

    Waits while another process makes it. Raises `SesameError` if an input is not finished, or if
    an input or the output itself is not what its manifest says.
    """
    complete_swap(node.output)
    refuse_damage(node.output, Checksums(node.store), node.config.verifies_all)
    if node.output.is_done or node.maker.assist(node.config, node.output):
        return

    def say(text: str) -> None:
        _say(node, text)

    with lease(node.output.path / LEASE, lambda: node.output.is_done, say) as held:
        if held is None or node.output.is_done:
            return
        started, clock = datetime.now(UTC), time.monotonic()
        counts = _work(node, None, held.check)
        facts = run_facts(node.config.name, started, time.monotonic() - clock)
        node.output.finish(node.request, counts, facts, held.check)
        node.maker.tidy(node.output.path, _folders(node))


def remake(node: Node) -> None:
    """Make an output again beside the old one, and replace the old one when it is done.

    What was made from the old one is marked as outdated, unless the new files are the same. A
    launch that was killed is continued. Raises `SesameError` if the old output is being made.
    """
    holder = read_holder(node.output.path / LEASE)
    if holder is not None:
        raise SesameError(
            f"{node.output.path}: {describe(holder)} works on it; wait for its end, then use "
            "--force again"
        )
    complete_swap(node.output)
    if not (node.output.is_done or node.output.is_begun):
        execute(node)
        return
    again = replace(node, output=place_beside(node.output))
    execute(again)
    if not again.output.is_done:
        return  # another launch made it too, and has swapped it in
    if has_same_files(node.output, again.output):
        _say(node, "made again, with the same content; what was made from it stays")
    else:
        outdated = mark_outdated(Store(node.store), node.output)
        names = ", ".join(f"{each.stage} {each.fingerprint[:8]}" for each in outdated)
        _say(node, f"made again; made from the old one: {names or 'nothing'}")
    swap_in(node.output)


def _say(node: Node, text: str) -> None:
    console.print(
        f"{node.stage} {node.output.fingerprint[:8]}: {text}", markup=False, soft_wrap=True
    )


def make_share(node: Node, share: ArraySlice) -> None:
    """Make one share of an output's work units; array jobs call it in parallel.

    A later `execute` makes the output from all units. A finished share leaves a marker file, so
    that a rerun makes only missing shares. Raises `UsageError` for a pass that is not divided.
    """
    passes = node.maker.divided_passes(node.config, node.files)
    if share.of_pass not in ("", *passes) or not passes:
        raise UsageError(
            f"--share …:{share.of_pass}: {node.stage} divides the passes {', '.join(passes)}"
            if passes
            else f"--share: {node.stage} has no work units"
        )
    share = replace(share, of_pass=share.of_pass or passes[0])
    if not node.output.is_done and share not in shares_made(
        node.output, share.count, share.of_pass
    ):
        _work(node, share, lambda: None)  # without a lease: shares are made at the same time
        write_atomically(_share_path(node.output, share), "")


def shares_made(output: Output, count: int, of_pass: str) -> set[ArraySlice]:
    """Return the finished shares of a pass of an unfinished output, divided into `count`."""
    every = (ArraySlice(number, count, of_pass) for number in range(count))
    return {share for share in every if _share_path(output, share).exists()}


def _share_path(output: Output, share: ArraySlice) -> Path:
    return output.path / UNITS / f".share-{share.of_pass}-{share.number}-of-{share.count}"


def _unfinished(node: Node) -> str | None:
    """Return the role of an unfinished input, or None if all are usable."""
    for role, item in node.inputs.items():
        is_enough = item.may_go_on or item.output is None
        if not is_enough and not (item.output is not None and item.output.has_manifest):
            return role
    return None


def _check_inputs(node: Node) -> None:
    """Raise `SesameError` if an input is not finished, or not what its manifest says."""
    role = _unfinished(node)
    if role is not None:
        instead = ", or name a step that is kept: <run>@<step>" if role == "pretrain" else ""
        raise SesameError(
            f"{node.stage}: its input {role} ({node.inputs[role].path}) is not finished; "
            f"run what makes it to its end{instead}"
        )
    known = Checksums(node.store)
    for item in node.inputs.values():
        if item.output is not None:
            refuse_damage(item.output, known, node.config.verifies_all)
    known.save()


def _folders(node: Node) -> dict[str, Path]:
    return {role: item.path for role, item in node.inputs.items()}


def _work(node: Node, share: ArraySlice | None, check_lease: Callable[[], None]) -> dict[str, Any]:
    _check_inputs(node)
    node.output.begin(node.request)
    keep_config(node)
    out, fingerprint = node.output.path, node.output.fingerprint
    files_read = node.request["files_read"]
    work = Work(
        node.config, _folders(node), out, fingerprint, share, node.files, files_read, check_lease,
        node.report,
    )  # fmt: skip
    try:
        counts = node.maker.run(work)
    except SliceDone:
        counts = {}
    if files_read:
        Checksums(node.store).refuse_changes(node.files.named, files_read)
    return counts


def refuse_damaged(nodes: list[Node]) -> None:
    """Raise `SesameError` with the remedy if a finished output is not what its manifest says."""
    for node in nodes:
        refuse_damage(node.output, Checksums(node.store), node.config.verifies_all)


def execute_all(
    nodes: list[Node], at_once: int | None = None, again: Collection[Node] = ()
) -> None:
    """Make every unfinished output in order and print how long each took.

    Raises an error before any work if one of them is damaged or cannot be made on this machine.

    Outputs of stages with `runs_beside` (fine-tunings) are made `at_once` at a time, each in its
    own process with an equal share of the cores. None: as many as cores and memory allow. Nodes in
    `again` are made even if they are finished; see `remake`.
    """
    for node in nodes:
        node.output.move_run_facts_out()
    refuse_damaged(nodes)
    left = [node for node in nodes if node in again or not node.output.is_done]
    refuse_to_start_anew(nodes, again)
    for node in left:
        node.maker.check_machine(node.config)
    try:
        _make_all(left, at_once, again)
    except Interrupted as error:
        raise Interrupted(str(error), _progress(nodes), nodes[0].store) from error


def _progress(nodes: list[Node]) -> str:
    """Describe how far outputs are: those that are made, and the progress of those begun."""
    made = sum(node.output.is_done for node in nodes)
    places = [(node, place) for node in nodes for place in (node.output, place_beside(node.output))]
    begun = [
        f"{place.reference} {node.maker.how_far(place.path)}"
        for node, place in places
        if place.is_begun and not place.is_done
    ]
    return ", ".join([f"{made} of {len(nodes)} outputs made", *begun])


def _make_all(left: list[Node], at_once: int | None, again: Collection[Node]) -> None:
    while left:
        waiting = {node.output.reference for node in left}
        beside = [node for node in left if node.maker.runs_beside and _is_ready(node, waiting)]
        count = min(len(beside), at_once or _sensible_count(beside))
        if count > 1:
            make_beside(beside, count, again, _timed, _say_made)
        else:
            beside = left[:1]
            _say_made(left[0], _timed(left[0], left[0] in again))
        left = [n for n in left if n not in beside and (n in again or not n.output.is_done)]


def _is_ready(node: Node, waiting: Collection[str]) -> bool:
    """Return True if all inputs are finished, and none of them is still to be made again."""
    is_waiting = any(item.reference in waiting for item in node.inputs.values())
    return not is_waiting and _unfinished(node) is None


def _sensible_count(nodes: list[Node]) -> int:
    """Return the default number of parallel fine-tunings: one per GPU, or one per core.

    Several small models with one thread each use a CPU better than one model on all cores, whose
    threads wait for each other. On a CPU memory limits the number.
    """
    if len(nodes) < 2:
        return 1
    from pipeline.tasks.device import choose_device

    configs = [node.config.finetune for node in nodes]
    if devices := visible_devices(configs):
        return max(1, len(devices) // max(config.devices for config in configs))
    if any(choose_device(config.accelerator).type != "cpu" for config in configs):
        return 1
    largest = max(map(_expected_memory, nodes))
    available: int = psutil.virtual_memory().available
    return max(1, min(usable_cores(), available // largest))


def _expected_memory(node: Node) -> int:
    """Estimate the bytes of a fine-tuning: weights, gradients, two moments, and a constant."""
    weights = sum(
        path.stat().st_size
        for item in node.inputs.values()
        for path in item.path.rglob("*")
        if path.suffix in WEIGHTS
    )
    return PROCESS_BYTES + 4 * weights


def _timed(node: Node, is_again: bool = False) -> float:
    clock = time.monotonic()
    if is_again:
        remake(node)
    else:
        execute(node)
    return time.monotonic() - clock


def _say_made(node: Node, seconds: float) -> None:
    console.print(f"[green]✓[/] {titled(node)} in {seconds:.1f} s")


def refuse_to_pretrain(nodes: list[Node], command: str, overrides: list[str]) -> None:
    """Raise `UsageError` with the command to run if a node would have to pretrain.

    Only `sesame run` and `sesame pretrain` pretrain; every other command calls this first.
    """
    for node in nodes:
        if node.stage == "pretrain" and not node.output.is_done:
            words = " ".join(_quoted(word) for word in overrides)
            raise UsageError(
                f"{command}: its encoder is not pretrained yet ({node.output.path}); "
                f"run: sesame pretrain {words}".rstrip()
            )


def _quoted(word: str) -> str:
    return f"'{word}'" if any(mark in word for mark in ' []{}$*?&;<>|()"') else word
