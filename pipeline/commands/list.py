"""`sesame list`: runs with their state and results."""

from rich import print as show
from rich.markup import escape
from rich.table import Table

from pipeline.board.overview import run_results, run_state
from pipeline.commands.arguments import Arguments
from pipeline.commands.store import open_store
from pipeline.stages import STAGES
from pipeline.store.models import model_names
from pipeline.store.runs import Runs


def list_runs(arguments: Arguments) -> None:
    """Print one line per run: its outputs, its progress and its scores."""
    arguments.refuse_words()
    store = open_store(arguments)
    runs = Runs(store)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("run", "outputs", "state", "results", "models"):
        table.add_column(heading, overflow="fold")
    for name in runs.names():
        current = runs.current(name)
        earlier = len(runs.entries(name)) - len(current)
        count = f"{len(current)} and {earlier} earlier" if earlier else str(len(current))
        outputs = [store.output(entry.stage, entry.fingerprint) for entry in current]
        results = escape(run_results(outputs))
        models = escape(", ".join(model_names(name, store)))
        table.add_row(escape(name), count, run_state(outputs, STAGES), results, models)
    nothing = escape(f"no runs in {store.root}; try: sesame run experiment=demo")
    show(table if runs.names() else nothing)
