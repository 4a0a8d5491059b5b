"""Make a finished output again: beside the old one, which is replaced when the new one is done.

`<stage>/.<fingerprint>.again` is the new output while it is made. A kill at any moment leaves the
old output or the new one in place, or both under hidden names; `complete_swap` then finishes what
was begun. Outputs that were made from a replaced one are marked by a file `.outdated`.
"""

import os
import shutil
from pathlib import Path

from data_prep.files import sync_directory, write_atomically
from pipeline.store.outputs import Output, Store, move_run_facts

AGAIN, REPLACED = ".again", ".replaced"  # suffixes of hidden folders beside an output
OUTDATED = ".outdated"  # file in an output: references of its remade inputs, one per line


def beside(output: Output) -> Output:
    """Return the place where an output is made again."""
    return Output(output.stage, output.fingerprint, _hidden(output, AGAIN))


def has_same_files(old: Output, new: Output) -> bool:
    """Return True if two finished outputs have files of the same content."""
    return old.is_done and bool(old.manifest()["files"] == new.manifest()["files"])


def swap_in(output: Output) -> None:
    """Replace an output by the finished one beside it, and remove the old one."""
    new, old = beside(output), _hidden(output, REPLACED)
    if new.is_done and output.path.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(output.path, old)
    complete_swap(output)


def complete_swap(output: Output) -> None:
    """Finish a swap that was killed between its steps; do nothing if there was none."""
    new, old = beside(output), _hidden(output, REPLACED)
    if not output.path.exists() and new.is_done:
        move_run_facts(new.path, output.path)
        os.rename(new.path, output.path)
        sync_directory(output.path.parent)
    if output.is_done and old.exists():
        shutil.rmtree(old)


def mark_outdated(store: Store, remade: Output) -> list[Output]:
    """Mark every output that was made from `remade`; return those outputs."""
    dependants = store.dependants(remade)
    for output in dependants:
        known = remade_inputs(output)
        if remade.reference not in known:
            write_atomically(output.path / OUTDATED, "\n".join([*known, remade.reference]) + "\n")
    return dependants


def remade_inputs(output: Output) -> list[str]:
    """Return the references of the inputs that were made again after this output."""
    path = output.path / OUTDATED
    return path.read_text().split() if path.exists() else []


def _hidden(output: Output, suffix: str) -> Path:
    return output.path.with_name(f".{output.path.name}{suffix}")
