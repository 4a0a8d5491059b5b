"""`sesame verify`: compare the files of the store with their manifests, byte for byte.

Reads every file of the outputs; writes nothing. Try it: sesame verify demo
"""

from rich.markup import escape

from data_prep.errors import SesameError, UsageError
from data_prep.progress import console, progress
from pipeline.commands.arguments import Arguments
from pipeline.commands.store import open_store
from pipeline.store.content import Checksums
from pipeline.store.outputs import Output, Store
from pipeline.store.runs import Runs
from pipeline.store.verify import Fault, find_faults
from pipeline.workflow.stage import STAGE_ORDER


def verify(arguments: Arguments) -> None:
    """Check a run, one output or the whole store. Raises `SesameError` if anything is damaged."""
    store = open_store(arguments)
    outputs = chosen_outputs(arguments, store)
    damaged = find_damaged(outputs, store)
    for output, faults in damaged.items():
        console.print(f"[red]damaged[/] {escape(str(output.path))}")
        for fault in faults:
            console.print(f"  {fault}", markup=False, soft_wrap=True)
        made = sorted(store.dependants(output), key=lambda each: STAGE_ORDER.index(each.stage))
        later = ", ".join(each.reference for each in made)
        console.print(f"  made from it: {later or 'nothing'}", markup=False, soft_wrap=True)
        console.print(f"  remedy: sesame repair {output.reference}", markup=False, soft_wrap=True)
    finished = sum(output.is_done for output in outputs)
    if damaged:
        raise SesameError(
            f"{len(damaged)} of {finished} finished outputs are not what their manifests say; "
            "sesame repair sets them aside and makes them again"
        )
    print(f"{finished} finished outputs are what their manifests say")


def chosen_outputs(arguments: Arguments, store: Store) -> list[Output]:
    """Return the outputs of the run or output that the command names; without a name, all.

    An output is named by `<stage>/<fingerprint>`, or by the beginning of its fingerprint.
    """
    every = [output for stage in STAGE_ORDER for output in store.outputs(stage)]
    if not arguments.words:
        return every
    if len(arguments.words) > 1:
        raise UsageError(f"{arguments.words[1]}: name one run or output, or none for all")
    [name] = arguments.words
    runs = Runs(store)
    if name in runs.names():
        entries = {(entry.stage, entry.fingerprint) for entry in runs.entries(name)}
        return [output for output in every if (output.stage, output.fingerprint) in entries]
    found = [o for o in every if o.reference == name or o.fingerprint.startswith(name)]
    if not found:
        runs.check(name, name)
    return found


def find_damaged(outputs: list[Output], store: Store) -> dict[Output, list[Fault]]:
    """Read every file of the outputs; return the faults of those that are damaged."""
    damaged = {}
    with progress("verify", len(outputs)) as bar:
        for output in outputs:
            # A new object per output: nothing that was remembered is trusted.
            faults = list(find_faults(output, Checksums.empty(store.root), full=True))
            if faults:
                damaged[output] = faults
            bar.advance()
    return damaged
