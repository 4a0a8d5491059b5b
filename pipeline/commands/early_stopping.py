"""Stop bad points of a sweep early: `--stop-early`.

While a point trains, it writes its objective to `<sweep>/<number>/progress.jsonl` after every
evaluation: a pretraining with the step, a fine-tuning with the evaluation's number. It is stopped
if its best value so far is worse than the median of the best values that the other points had by
then, and at least `OTHERS` of them got that far. The files are all that points share, so points may
run on several nodes.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pipeline.commands.sweep_points import OBJECTIVES
from pipeline.workflow.stage import StoppedEarly

PROGRESS = "progress.jsonl"
OTHERS = 3  # points that a point is compared with, at least


@dataclass(frozen=True)
class EarlyStopping:
    """The rule for one point; it is called with (step, objective)."""

    sweep: Path
    number: int
    stage: str

    def __call__(self, step: int, value: float) -> None:
        """Note a value. Raises `StoppedEarly` if the point is worse than the others' median."""
        better = OBJECTIVES[self.stage][1]
        path = self.sweep / str(self.number) / PROGRESS
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a") as stream:
            stream.write(json.dumps([step, value]) + "\n")
        own = better(_values(path, step))
        found = [
            _values(other, step) for other in self.sweep.glob(f"*/{PROGRESS}") if other != path
        ]
        others = [better(values) for values in found if values]
        if len(others) < OTHERS:
            return
        middle = median(others)
        if own != middle and better(own, middle) == middle:
            raise StoppedEarly(step, value, middle)


def _values(path: Path, until: int) -> list[float]:
    """Return a point's values up to a step; nothing if it has not got there.

    A last line without its end, which another process is writing, is left out.
    """
    lines = path.read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    if not rows or max(step for step, _ in rows) < until:
        return []
    return [value for step, value in rows if step <= until]
