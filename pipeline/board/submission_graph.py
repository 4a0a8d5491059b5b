"""Draw a submission's jobs and their dependencies as SVG.

One line per job, in the order of submission, and an arc on the left from each job to those that
wait for it. So the drawing is as narrow as a phone, however many jobs there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pipeline.cluster.status import JobRow
from pipeline.pages.charts import FONT, INK, MUTED, RULE, SERIES, finish_svg

WIDTH, LINE = 360, 26
DOT_X, NAME_X, STATE_X = 52, 64, 222
FARTHEST = DOT_X - 8  # how far an arc may reach to the left
TEXT = 12  # pixels
NAME_LETTERS, STATE_LETTERS = 24, 22
# The colour of a job's dot by state.
COLOURS = {
    "running": SERIES[0], "done": SERIES[2], "failed": SERIES[5], "ended": SERIES[5],
    "cancelled": SERIES[1], "waiting": MUTED,
}  # fmt: skip


@dataclass(frozen=True)
class Box:
    """Jobs of one name: one job, or the tasks of an array, with their states."""

    name: str
    ids: Sequence[str]
    after: Sequence[str]  # ids of the jobs it waits for
    states: Sequence[str]

    @property
    def state(self) -> str:
        """The state that needs attention most."""
        order = ("failed", "ended", "cancelled", "running", "waiting", "done")
        return next(state for state in order if state in self.states)

    @property
    def note(self) -> str:
        """The second line: the state, and how many tasks are done."""
        if len(self.ids) == 1:
            return self.state
        return f"{self.state}, {self.states.count('done')} of {len(self.ids)} done"


def boxes(rows: Sequence[JobRow]) -> list[Box]:
    """Return the jobs of a submission; tasks of one array share a box."""
    groups: dict[str, list[JobRow]] = {}
    for row in rows:
        groups.setdefault(row.job.name, []).append(row)
    return [
        Box(
            name,
            [row.job.id for row in group],
            list(dict.fromkeys(each for row in group for each in row.job.after)),
            [row.state for row in group],
        )
        for name, group in groups.items()
    ]


def draw_graph(name: str, title: str, rows: Sequence[JobRow]) -> str:
    """Return the SVG of a submission."""
    found = boxes(rows)
    height = LINE * len(found)
    arcs = [
        _arc(before, number) for number, box in enumerate(found) for before in _before(box, found)
    ]
    drawn = [_line(box, LINE * number + LINE // 2) for number, box in enumerate(found)]
    body = "".join([*arcs, *drawn])
    svg = (
        f'<svg class="marks" viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg">'
        f"{body}</svg>"
    )
    return finish_svg(svg, name, title)


def _before(box: Box, found: Sequence[Box]) -> list[int]:
    """Return the lines of the jobs that a box waits for; those of other submissions have none."""
    return [number for number, other in enumerate(found) if set(other.ids) & set(box.after)]


def _arc(start: int, end: int) -> str:
    y, to_y = (LINE * number + LINE // 2 for number in (start, end))
    reach = DOT_X - min(FARTHEST, 10 + 5 * (end - start))
    path = f"M{DOT_X},{y}C{reach},{y} {reach},{to_y} {DOT_X},{to_y}"
    return f'<g class="mark-line"><path d="{path}" fill="none" stroke="{RULE}"/></g>'


def _line(box: Box, y: int) -> str:
    dot = f"M{DOT_X - 5},{y}a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z"
    style = f'y="{y + 4}" font-family="{FONT}" font-size="{TEXT}"'
    return (
        f'<g class="mark-symbol"><path d="{dot}" fill="{COLOURS[box.state]}"/></g>'
        f'<text x="{NAME_X}" {style} fill="{INK}">{escape(_cut(box.name, NAME_LETTERS))}</text>'
        f'<text x="{STATE_X}" {style} fill="{MUTED}">{escape(_cut(box.note, STATE_LETTERS))}</text>'
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
