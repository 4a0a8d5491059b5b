"""The files of `corpus.decontaminate`: those of tasks by name, and files of the user."""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from data_prep.errors import UsageError
from data_prep.reading.benchmarks import FORMS, BenchmarkFile
from pipeline.config.compose import compose_config, group_options
from pipeline.tasks.config import TaskConfig

READER_FORMS = {
    "table": "table",
    "wic": "table",
    "conll": "conll",
    "squad": "json",
    "commonsense_qa": "json",
    "spans": "json",
}


def benchmark_files(entries: Sequence[str]) -> list[tuple[str, BenchmarkFile]]:
    """Return the files that `corpus.decontaminate` names, each with a name for the fingerprint.

    The name has the file's form and its task, and no path. Raises UsageError for a task without
    development and test files, and for a missing file.
    """
    named, seen = [], Counter[str]()
    for entry in entries:
        for label, file in _files_of(entry):
            name = f"corpus.decontaminate/{file.form}/{label}"
            seen[name] += 1
            repeated = f"#{seen[name]}" if seen[name] > 1 else ""
            named.append((f"{name}{repeated}", file))
    return named


def _files_of(entry: str) -> Iterator[tuple[str, BenchmarkFile]]:
    task, separator, folder = entry.partition(":")
    if task in FORMS or task not in group_options("task"):
        file = BenchmarkFile.parse(entry)
        yield file.path.name, file
        return
    config = _task(task)
    if separator:
        config = replace(config, data_dir=str(Path(folder).expanduser()))
    elif config.data_dir is None:
        raise UsageError(
            f"corpus.decontaminate={entry}: the task names no folder; write {entry}:<folder>, or "
            f"set data_dir in a ./conf/task/{entry}.yaml of yours"
        )
    members = config.member_tasks().values() if config.members else [config]
    found = [each for member in members for each in _scored_files(entry, member, config.members)]
    if not found:
        raise UsageError(f"corpus.decontaminate={entry}: no task of the suite has files there")
    yield from found


@functools.cache
def _task(name: str) -> TaskConfig:
    return compose_config([f"task={name}"]).task


def _scored_files(
    entry: str, task: TaskConfig, may_lack: object
) -> Iterator[tuple[str, BenchmarkFile]]:
    """Yield the files that a task is scored on or predicts; a suite's task may have no folder."""
    folder = Path(task.data_dir or "")
    if may_lack and not folder.is_dir():
        return
    if not (task.dev or task.test):
        raise UsageError(
            f"corpus.decontaminate={entry}: {task.name} cuts its test set out of its training file;"
            " name that file to leave out all of it, or use corpus.exclude"
        )
    if task.reader not in READER_FORMS:
        raise UsageError(
            f"corpus.decontaminate={entry}: the texts of task.reader={task.reader} cannot be left "
            "out by the task's name; write them into a file, one per line, and name lines:<file>"
        )
    names = [name for name in (task.dev, task.test) if name is not None]
    more = [*task.further_tests.values(), *task.unlabelled.values()]
    names += [name for name in more if (folder / name).is_file()]
    for name in dict.fromkeys(names):
        path = folder / name
        if not path.is_file():
            raise UsageError(f"corpus.decontaminate={entry}: there is no file {name} in {folder}")
        form = "json" if path.suffix == ".jsonl" else READER_FORMS[task.reader]
        yield f"{task.name}/{name}", BenchmarkFile(form, path)
