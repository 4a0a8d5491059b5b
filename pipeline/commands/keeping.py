"""`sesame list`, `du` and `clean`: list runs, show disk use, remove outputs no run needs."""

import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich import print as show
from rich.markup import escape
from rich.table import Table

from data_prep.errors import SesameError, UsageError
from pipeline.commands.arguments import Arguments
from pipeline.config.compose import compose_config
from pipeline.pages.wording import duration
from pipeline.report.collect import read_output
from pipeline.stages import STAGES
from pipeline.store.lease import describe, read_holder
from pipeline.store.outputs import CLEAN_CACHE, LEASE, REMOVED, Output, Store, remove_folder
from pipeline.store.runs import Entry, Runs
from pipeline.tasks.summary import summarise
from pipeline.workflow.stage import STAGE_ORDER


def _store(arguments: Arguments) -> Store:
    if arguments.words:
        raise UsageError(f"{arguments.words[0]}: not an override; overrides look like key=value")
    return Store(Path(compose_config(arguments.overrides).paths.store))


def list_runs(arguments: Arguments) -> None:
    """Print one line per run: its outputs, its progress and its scores."""
    store = _store(arguments)
    runs = Runs(store)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("run", "outputs", "state", "results"):
        table.add_column(heading, overflow="fold")
    for name in runs.names():
        current = runs.current(name)
        earlier = len(runs.entries(name)) - len(current)
        count = f"{len(current)} and {earlier} earlier" if earlier else str(len(current))
        results = escape(_results(store, current))
        table.add_row(escape(name), count, _state(store, current), results)
    nothing = escape(f"no runs in {store.root}; try: sesame run experiment=demo")
    show(table if runs.names() else nothing)


def _state(store: Store, entries: list[Entry]) -> str:
    """Return a run's state: the output being made, else the first unfinished output."""
    outputs = [store.output(entry.stage, entry.fingerprint) for entry in entries]
    unfinished = [output for output in outputs if not output.is_done]
    for output in unfinished:
        if read_holder(output.path / LEASE):
            return f"{output.stage} runs, {STAGES[output.stage].how_far(output.path)}"
    for output in unfinished:
        if output.is_begun:
            return f"{output.stage} stopped, {STAGES[output.stage].how_far(output.path)}"
    return f"{unfinished[0].stage} not begun" if unfinished else "done"


def _results(store: Store, entries: list[Entry]) -> str:
    outputs = [store.output(e.stage, e.fingerprint) for e in entries if e.stage == "finetune"]
    files = [output.path / "scores.json" for output in outputs if output.is_done]
    return "; ".join(
        f"{score.task} {score.encoder} {100 * score.mean:.1f} ± {100 * score.deviation:.1f}"
        for score in summarise(files)
    )


def disk_usage(arguments: Arguments) -> None:
    """Print bytes and files by stage, with the runs that use each output."""
    store = _store(arguments)
    runs = Runs(store)
    users: dict[str, list[str]] = defaultdict(list)
    for name in runs.names():
        for entry in runs.entries(name):
            user = name if entry.is_current else f"{name} (earlier)"
            users[f"{entry.stage}/{entry.fingerprint}"].append(user)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("output", "bytes", "files", "runs"):
        table.add_column(heading, justify="right" if heading in ("bytes", "files") else "left")
    for stage in STAGE_ORDER:
        outputs = list(store.outputs(stage))
        sizes = {output.reference: _weigh(output.path) for output in outputs}
        total, files = (sum(size[part] for size in sizes.values()) for part in (0, 1))
        table.add_row(f"[bold]{stage}[/]", f"{total:,}", f"{files:,}", "")
        for reference, (size, count) in sizes.items():
            needed = escape(", ".join(users[reference])) or "[dim]none[/]"
            table.add_row(f"  {reference}", f"{size:,}", f"{count:,}", needed)
    size, count = _weigh(store.root / CLEAN_CACHE)
    table.add_row("[bold]cleaned text[/]", f"{size:,}", f"{count:,}", "[dim]for grown corpora[/]")
    show(table)


def _weigh(folder: Path) -> tuple[int, int]:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


def clean(arguments: Arguments) -> None:
    """Remove outputs that no run needs, and cleaned text; without --yes only list them.

    Outputs that are being made, and their inputs, are always kept.
    """
    store = _store(arguments)
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
    cache = store.root / CLEAN_CACHE
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
    """Return the references of outputs and of everything they were made from."""
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
    size, count = _weigh(folder)
    return f"{size:,} bytes, {count} files"
