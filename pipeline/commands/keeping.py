"""`sesame list`, `du` and `clean`: what is in the store, what it weighs, what nobody needs."""

import shutil
from collections import defaultdict
from pathlib import Path

from rich import print as show
from rich.markup import escape
from rich.table import Table

from data_prep.errors import UsageError
from pipeline.cli import Arguments
from pipeline.compose import compose_config
from pipeline.graph import STAGES
from pipeline.lease import read_holder
from pipeline.plan import how_far
from pipeline.runs import Entry, Runs
from pipeline.store import CLEAN_CACHE, LEASE, Store
from pipeline.summary import summarise


def _store(arguments: Arguments) -> Store:
    if arguments.words:
        raise UsageError(f"{arguments.words[0]}: not an override; overrides look like key=value")
    return Store(Path(compose_config(arguments.overrides).paths.store))


def list_runs(arguments: Arguments) -> None:
    """A line a run: how far it is and what it scored."""
    store = _store(arguments)
    runs = Runs(store)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("run", "outputs", "state", "results"):
        table.add_column(heading, overflow="fold")
    for name in runs.names():
        entries = runs.entries(name)
        results = escape(_results(store, entries))
        table.add_row(escape(name), str(len(entries)), _state(store, entries), results)
    nothing = escape(f"no runs in {store.root}; try: sesame run experiment=demo")
    show(table if runs.names() else nothing)


def _state(store: Store, entries: list[Entry]) -> str:
    for entry in entries:
        output = store.output(entry.stage, entry.fingerprint)
        if output.is_done:
            continue
        holder = read_holder(output.path / LEASE)
        doing = "runs" if holder else "stopped"
        return f"{entry.stage} {doing}, {how_far(entry.stage, output.path)}"
    return "done"


def _results(store: Store, entries: list[Entry]) -> str:
    outputs = [store.output(e.stage, e.fingerprint) for e in entries if e.stage == "finetune"]
    files = [output.path / "scores.json" for output in outputs if output.is_done]
    return "; ".join(
        f"{score.task} {score.encoder} {100 * score.mean:.1f} ± {100 * score.deviation:.1f}"
        for score in summarise(files)
    )


def disk_usage(arguments: Arguments) -> None:
    """Bytes and files by stage and by run."""
    store = _store(arguments)
    runs = Runs(store)
    users: dict[str, list[str]] = defaultdict(list)
    for name in runs.names():
        for entry in runs.entries(name):
            users[f"{entry.stage}/{entry.fingerprint}"].append(name)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("output", "bytes", "files", "runs"):
        table.add_column(heading, justify="right" if heading in ("bytes", "files") else "left")
    for stage in STAGES:
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
    """Remove the outputs no run needs, and cleaned text; only says which without --yes."""
    store = _store(arguments)
    runs = Runs(store)
    really = "--yes" in arguments.options
    forget = arguments.options.get("--forget")
    if forget is not None:
        runs.check(forget, f"--forget {forget}")
    kept = _needed(store, runs, [name for name in runs.names() if name != forget])
    unneeded = [
        output
        for stage in STAGES
        for output in store.outputs(stage)
        if output.reference not in kept and read_holder(output.path / LEASE) is None
    ]
    folders = [output.path for output in unneeded]
    if (store.root / CLEAN_CACHE).is_dir():
        folders.append(store.root / CLEAN_CACHE)
    for folder in folders:
        size, count = _weigh(folder)
        verb = "removed" if really else "would remove"
        print(f"{verb} {folder} ({size:,} bytes, {count} files)")
        if really:
            shutil.rmtree(folder)
    if forget is not None and really:
        runs.forget(forget)
    if not unneeded:
        print("every output belongs to a run")
    if folders and not really:
        print("nothing was removed; sesame clean --yes does it")


def _needed(store: Store, runs: Runs, names: list[str]) -> set[str]:
    """Every output a run has, and those they were made from."""
    needed: set[str] = set()
    for name in names:
        for entry in runs.entries(name):
            output = store.output(entry.stage, entry.fingerprint)
            needed |= {each.reference for each in (output, *store.ancestors(output))}
    return needed
