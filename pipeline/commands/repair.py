"""`sesame repair`: set damaged outputs aside and make them again.

Nothing is deleted: a damaged output is renamed to `<stage>/.<fingerprint>.damaged`. A pretraining
keeps its folder; only its damaged files are renamed, and it continues from its newest checkpoint
that is whole. Try it: sesame repair demo
"""

import shlex

from data_prep.errors import SesameError
from data_prep.progress import console
from pipeline.commands.arguments import Arguments, call, parse
from pipeline.commands.store import open_store
from pipeline.commands.verify import chosen_outputs, find_damaged
from pipeline.stages import STAGES
from pipeline.store.lease import describe, read_holder
from pipeline.store.outputs import LEASE, MANIFEST, Output, Store
from pipeline.store.runs import Runs
from pipeline.store.verify import Fault, reopen, set_aside


def repair(arguments: Arguments) -> None:
    """Set the damaged outputs of a run, of the store, or one output aside, and make them again.

    They are made by the commands that made them first, which runs record. Raises `SesameError` if
    the command of an output is not known.
    """
    store = open_store(arguments)
    damaged = find_damaged(chosen_outputs(arguments, store), store)
    if not damaged:
        print("nothing is damaged")
        return
    commands = {output: _command(output, store) for output in damaged}
    for output, faults in damaged.items():
        _refuse_busy(output)
        console.print(f"{output.path}: {faults[0]}", markup=False, soft_wrap=True)
        console.print(f"  set aside: {_put_away(output, faults)}", markup=False, soft_wrap=True)
    for command in dict.fromkeys(command for command in commands.values() if command):
        console.print(f"running {command}", markup=False, soft_wrap=True)
        again = parse(shlex.split(command)[1:])
        again.overrides.append(f"paths.store={store.root}")
        call(again)
    unknown = [output.reference for output, command in commands.items() if not command]
    if unknown:
        raise SesameError(
            f"{', '.join(unknown)}: set aside, but no run recorded the command that made it; give "
            "that command again"
        )


def _command(output: Output, store: Store) -> str:
    """Return the command that makes an output, from the one its run recorded; empty if none did.

    A pretraining may be recorded by a command that only read it and never pretrains, such as
    `sesame export`; with the same settings, `sesame pretrain` makes it.
    """
    runs = Runs(store)
    found = (
        entry.command
        for name in runs.names()
        for entry in runs.entries(name)
        if (entry.stage, entry.fingerprint) == (output.stage, output.fingerprint) and entry.command
    )
    recorded = next(found, "")
    words = shlex.split(recorded)
    if output.stage == "pretrain" and words[1:2] not in ([], ["run"], ["pretrain"]):
        return shlex.join([words[0], "pretrain", *words[2:]])
    return recorded


def _refuse_busy(output: Output) -> None:
    holder = read_holder(output.path / LEASE)
    if holder is not None:
        raise SesameError(
            f"{output.path}: {describe(holder)} works on it; wait for its end, or if it has ended "
            f"remove {output.path / LEASE}"
        )


def _put_away(output: Output, faults: list[Fault]) -> str:
    """Set an output aside, or only its damaged files if its stage can continue without them."""
    is_described = output.is_done and all(fault.file != MANIFEST for fault in faults)
    if STAGES[output.stage].resumes and is_described:
        reopen(output, faults)
        return ", ".join(fault.file for fault in faults)
    return str(set_aside(output.path))
