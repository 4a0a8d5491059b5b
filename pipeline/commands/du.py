"""`sesame du`: the disk use of the store, by stage and run."""

from collections import defaultdict

from rich import print as show
from rich.markup import escape
from rich.table import Table

from pipeline.commands.arguments import Arguments
from pipeline.commands.store import open_store
from pipeline.store.outputs import CLEANED_TEXT, bytes_and_files
from pipeline.store.runs import Runs
from pipeline.workflow.stage import STAGE_ORDER


def disk_usage(arguments: Arguments) -> None:
    """Print bytes and files by stage, with the runs that use each output."""
    arguments.refuse_words()
    store = open_store(arguments)
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
        sizes = {output.reference: bytes_and_files(output.path) for output in outputs}
        total, files = (sum(size[part] for size in sizes.values()) for part in (0, 1))
        table.add_row(f"[bold]{stage}[/]", f"{total:,}", f"{files:,}", "")
        for reference, (size, count) in sizes.items():
            needed = escape(", ".join(users[reference])) or "[dim]none[/]"
            table.add_row(f"  {reference}", f"{size:,}", f"{count:,}", needed)
    size, count = bytes_and_files(store.root / CLEANED_TEXT)
    table.add_row("[bold]cleaned text[/]", f"{size:,}", f"{count:,}", "[dim]for grown corpora[/]")
    show(table)
