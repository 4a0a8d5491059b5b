"""Suites of tasks, such as GLUE: one average score, and all predictions in one zip file.

Each member of a suite is fine-tuned in its own output. Members without data are skipped and listed
in the suite's scores.
"""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from data_prep.errors import UsageError
from data_prep.files import atomic_write
from pipeline.tasks.config import AVERAGE, TaskConfig
from pipeline.tasks.splits import is_there
from pipeline.tasks.summary import chosen_on_scored

ANSWERS = "answers"  # folder in a fine-tuning's output: one file per entry of task.unlabelled
SUBMISSION = "submission.zip"


def members_with_data(task: TaskConfig) -> dict[str, TaskConfig]:
    """Return the members whose training data exists; raise a UsageError if there is none."""
    if task.data_dir is None:
        folders = ", ".join(str(member.data_dir) for member in task.members.values())
        raise UsageError(f"task.data_dir is not set: name the folder that holds {folders}")
    found = {
        name: member
        for name, member in task.member_tasks().items()
        if is_there(member, str(member.train))
    }
    if not found:
        wanted = [f"{member.data_dir}/{member.train}" for member in task.members.values()]
        raise UsageError(f"task.data_dir={task.data_dir}: has none of {', '.join(wanted)}")
    return found


def score_suite(task: TaskConfig, folders: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Return the suite's scores, averaged as GLUE does; write its members' answers as a zip file.

    `folders`: the finished output of each member, by name.
    """
    made = {name: json.loads((path / "scores.json").read_text()) for name, path in folders.items()}
    scores = {name: member_score(task.members[name], one["scores"]) for name, one in made.items()}
    average = fmean(scores.values())
    answers = sorted(
        (file for path in folders.values() for file in (path / ANSWERS).glob("*")),
        key=lambda file: file.name,
    )
    if answers:
        _zip(answers, out / SUBMISSION)
    wanted = {name for member in task.members.values() for name in member.unlabelled}
    splits = {one["split"] for one in made.values()}
    totals = ("train_examples", "dev_examples", "test_examples", "steps", "cut_inputs")
    return {
        "task": task.name,
        "kind": "suite",
        "metric": AVERAGE,
        "score": average,
        "scores": {AVERAGE: average, **scores},
        "dev_score": fmean(one["dev_score"] for one in made.values()),
        "split": splits.pop() if len(splits) == 1 else "",
        "chosen_on_scored": any(map(chosen_on_scored, made.values())),
        **{key: sum(one[key] for one in made.values()) for key in totals},
        "left_out": [name for name in task.members if name not in made],
        "answers_missing": sorted(wanted - {file.stem for file in answers}),
    }


def member_score(task: TaskConfig, scores: Mapping[str, float]) -> float:
    """Return a member's score in the average: the mean of the task.averaged scores it has."""
    official = [scores[name] for name in task.averaged if name in scores]
    return fmean(official or [scores[task.metric]])


def _zip(files: list[Path], path: Path) -> None:
    """Write a zip file whose bytes depend only on its members: no times, no owners."""
    with atomic_write(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for file in files:
            member = zipfile.ZipInfo(file.name)  # dated 1980, the earliest there is
            archive.writestr(member, file.read_bytes(), zipfile.ZIP_DEFLATED)
