"""`sesame board`: one page of the whole store, which renews itself while the command runs.

Try it: sesame board, and open store/board.html in a browser.
"""

import time
from datetime import datetime
from pathlib import Path

from data_prep.files import write_atomically
from pipeline.board.overview import run_rows, trainings
from pipeline.board.page import SubmissionRows, SweepRows, board
from pipeline.cluster import slurm
from pipeline.cluster.frozen import submissions
from pipeline.cluster.status import look
from pipeline.commands.arguments import Arguments
from pipeline.commands.store import open_store
from pipeline.commands.submitted_sweep import SWEEPS, update_points
from pipeline.commands.sweep_points import OBJECTIVES, Point, read_points
from pipeline.stages import STAGES
from pipeline.store.outputs import Store

PAGE = "board.html"
RENEW_SECONDS = 10
MOST = 12  # newest sweeps and submissions on the page


def show_board(arguments: Arguments) -> None:
    """Write the page and print where it is; write it again every few seconds, or once."""
    arguments.refuse_words()
    store = open_store(arguments)
    once = "--once" in arguments.options
    print(write_board(store, 0 if once else RENEW_SECONDS), flush=True)
    while not once:
        time.sleep(RENEW_SECONDS)
        write_board(store, RENEW_SECONDS)


def write_board(store: Store, refresh: int) -> Path:
    """Write the page of a store; return its path."""
    page = board(
        str(store.root.resolve()),
        run_rows(store, STAGES),
        list(trainings(store, STAGES)),
        _sweeps(store),
        _submissions(store),
        datetime.now(),
        refresh,
    )
    store.root.mkdir(parents=True, exist_ok=True)
    write_atomically(store.root / PAGE, page.html)
    return store.root / PAGE


def _sweeps(store: Store) -> list[SweepRows]:
    """Return the newest sweeps with points, newest first."""
    folders = sorted(path for path in (store.root / SWEEPS).glob("*") if path.is_dir())
    found = []
    for folder in reversed(folders[-MOST:]):
        update_points(folder, store)
        points = read_points(folder)
        stages = [point.output.partition("/")[0] for point in points if point.output]
        name = OBJECTIVES[stages[0]][0] if stages and stages[0] in OBJECTIVES else ""
        rows = [(point.number, ", ".join(point.settings), _value(point)) for point in points]
        if rows:
            found.append(SweepRows(folder.name, name, rows))
    return found


def _value(point: Point) -> str:
    if point.value is not None:
        return f"{point.value:.4f}"
    return "failed" if point.error else point.stopped or point.output


def _submissions(store: Store) -> list[SubmissionRows]:
    """Return the newest submissions, newest first; without SLURM, as our own records have them."""
    newest = list(submissions(store))[-MOST:]
    queue = slurm.queue() if newest and slurm.answers() else {}
    return [SubmissionRows(each.id, look(each, store, STAGES, queue)) for each in reversed(newest)]
