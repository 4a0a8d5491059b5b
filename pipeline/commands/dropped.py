"""`sesame inspect dropped`: count what cleaning dropped, by reason and source; show a sample.

Reads `.dropped.json` beside the shards (data_prep.corpus.dropped) and the manifest; writes to the
terminal only.
Try it: sesame inspect dropped reason=min_letters corpus.paths=texts
"""

from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from data_prep.corpus.dropped import OUTPUT_FILE, Dropped
from data_prep.errors import SesameError, UsageError
from pipeline.commands.arguments import take_own
from pipeline.config.compose import compose_config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.graph import Graph

SHOWN = 5


def inspect_dropped(overrides: list[str]) -> None:
    """Show counts per reason and source; with `reason=`, `count` documents that it took."""
    own, overrides = take_own(overrides, {"reason": "", "count": str(SHOWN)})
    if not own["count"].isdigit():
        raise UsageError(f"count={own['count']}: must be a number")
    config = compose_config(overrides)
    output = Graph(Store(Path(config.paths.store)), STAGES).add("shard", config).output
    words = " ".join(overrides)
    if not output.is_done:
        raise SesameError(f"inspect: no shards yet; run: sesame shard {words}".rstrip())
    file = output.path / OUTPUT_FILE
    if not file.is_file():
        raise SesameError(
            "inspect: these shards were made by a version that kept no sample of dropped "
            f"documents; run: sesame shard --force {words}".rstrip()
        )
    dropped = Dropped.from_json(file.read_text())
    console = Console(highlight=False)
    if own["reason"]:
        _show_documents(console, dropped, own["reason"], int(own["count"]))
    else:
        console.print(_table(dropped, output.manifest()["counts"]["documents"]))


def _table(dropped: Dropped, documents: dict[str, Any]) -> Table:
    """Return the counts by reason and source."""
    everywhere = Counter(documents["dropped"])
    table = Table(title=f"{sum(everywhere.values()):,} of {documents['read']:,} documents dropped")
    table.add_column("reason")
    sources = sorted(dropped.counts)
    for name in (*sources, "all", "sample"):
        table.add_column(name, justify="right")
    for reason, count in everywhere.most_common():
        own = [f"{dropped.counts[source][reason]:,}" for source in sources]
        table.add_row(reason, *own, f"{count:,}", str(len(dropped.sample.get(reason, {}))))
    return table


def _show_documents(console: Console, dropped: Dropped, reason: str, count: int) -> None:
    if not dropped.sample.get(reason):
        names = ", ".join(sorted(name for name, some in dropped.sample.items() if some)) or "none"
        raise UsageError(f"reason={reason}: there is no sample of it; reasons with one: {names}")
    for _, document in sorted(dropped.sample[reason].items())[:count]:
        cut = f", first {len(document.text):,}" if len(document.text) < document.characters else ""
        place = f"{document.file}, {document.id}: {document.characters:,} characters{cut}"
        console.print(f"[bold cyan]{'─' * 4}[/] ", end="")
        console.print(place, markup=False, soft_wrap=True, style="bold cyan")
        console.print(document.text, markup=False, soft_wrap=True)
