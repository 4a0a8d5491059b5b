"""`sesame clean`: remove outputs that no run needs."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from data_prep.errors import SesameError
from pipeline.commands.arguments import Arguments
from pipeline.commands.store import open_store
from pipeline.pages.wording import duration
from pipeline.report.collect import read_output
from pipeline.stages import STAGES
from pipeline.store.lease import describe, read_holder
from pipeline.store.outputs import (
    CLEANED_TEXT,
    LEASE,
    REMOVED,
    Output,
    Store,
    bytes_and_files,
    remove_folder,
)
from pipeline.store.runs import Runs
from pipeline.workflow.stage import STAGE_ORDER


def clean(arguments: Arguments) -> None:
    """Remove outputs that no run needs, and cleaned text; without --yes only list them.

    Outputs that are being made, and their inputs, are always kept.
    """
    arguments.refuse_words()
    store = open_store(arguments)
    runs = Runs(store)
    really = "--yes" in arguments.options
    forget = arguments.options.get("--forget")
    earlier = arguments.options.get("--forget-earlier")
    for option, name in (("--forget", forget), ("--forget-earlier", earlier)):
        if name is not None:
            runs.check(name, f"{option} {name}")
    kept = {
        entry
        for name in runs.names()
        if name != forget
        for entry in (runs.current(name) if name == earlier else runs.entries(name))
    }
    needed = _with_ancestors(store, (store.output(e.stage, e.fingerprint) for e in kept))
    in_use = [output for output in _every_output(store) if (output.path / LEASE).exists()]
    used = _with_ancestors(store, in_use)
    for output in in_use:
        if output.reference not in needed:
            print(f"kept {output.path} and what it reads: {_holder(output)}")
    unneeded = [o for o in _every_output(store) if o.reference not in needed | used]
    verb = "removed" if really else "would remove"
    for output in unneeded:
        print(f"{verb} {output.path} ({_weight(output.path)}): {_cost(output)}", flush=True)
        if really:
            output.remove()
    cache = store.root / CLEANED_TEXT
    if cache.is_dir():
        print(f"{verb} {cache} ({_weight(cache)}): cleaned text, kept for corpora that grow")
        if really:
            remove_folder(cache)
    for leftover in store.root.glob(f"*/.*{REMOVED}") if really else ():
        shutil.rmtree(leftover)
    if really and forget is not None:
        runs.forget(forget)
    if really and earlier is not None:
        runs.forget_earlier(earlier)
    if not unneeded:
        print("every output belongs to a run, or is being made")
    elif not really:
        print("nothing was removed; sesame clean --yes does it")


def _every_output(store: Store) -> Iterator[Output]:
    return (output for stage in STAGE_ORDER for output in store.outputs(stage))


def _with_ancestors(store: Store, outputs: Iterable[Output]) -> set[str]:
    """Return the references of outputs and of everything they were made from.

    Raises `SesameError` if a manifest is damaged: what its output was made from is not known.
    """
    outputs = list(outputs)
    for output in outputs:
        if output.has_manifest:
            output.manifest()
    return {each.reference for output in outputs for each in (output, *store.ancestors(output))}


def _holder(output: Output) -> str:
    """Describe who works on an output with a lease, and the remedy if nobody does."""
    holder = read_holder(output.path / LEASE)
    who = describe(holder) if holder else "somebody"
    return f"{who} works on it; if that has ended, remove {output.path / LEASE}"


def _cost(output: Output) -> str:
    """Describe the cost of making an output again."""
    if not output.is_done:
        return f"unfinished, {STAGES[output.stage].how_far(output.path)}"
    try:
        seconds = read_output(output.stage, output.path).seconds
    except SesameError:  # a damaged output is removed like any other
        return "how long it took is not known"
    return f"it took {duration(seconds)} to make"


def _weight(folder: Path) -> str:
    size, count = bytes_and_files(folder)
    return f"{size:,} bytes, {count} files"
