"""Decides whether pages may show text: only if all text of the config is the demo's own."""

import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.config.schema import FLOORS, RANDOM, VECTORS, Config
from pipeline.tasks.config import TaskConfig

# Values of `encoder=` that refer to nothing outside the config; `pretrain` is the name of an
# experiment's only pretraining.
OWN_ENCODERS = (None, RANDOM, VECTORS, *FLOORS, "pretrain")


def reads_only(config: Config, files: set[Path]) -> bool:
    """Return True if every text that the config names is one of `files`.

    False for a config that refers to a run, model or vocabulary, because the text behind it is
    unknown; also False for a config that names no text.
    """
    if _has_references(config):
        return False
    corpus = [Path(str(path)) for path in config.corpus.paths]
    tasks = [path for task in _tasks(config.task) for path in _task_files(task)]
    folders = {path.parent for path in files}
    given = config.task.data_dir
    return (
        bool(corpus)
        and all(_absolute(path) in files for path in [*corpus, *tasks])
        and (given is None or _absolute(Path(given)) in folders)
    )


def _has_references(config: Config) -> bool:
    named = [config.init.source, config.tokenizer.source, config.vectors.source]
    pretrainings = [name for name, one in config.instances.items() if one.stage == "pretrain"]
    encoders = [e for e in config.encoders if e not in OWN_ENCODERS and e not in pretrainings]
    return bool(config.runs or config.corpus.sources or any(named) or encoders)


def _tasks(task: TaskConfig) -> Iterator[TaskConfig]:
    yield from task.member_tasks().values() if task.members else [task]


def _task_files(task: TaskConfig) -> Iterator[Path]:
    names = (
        task.train,
        task.dev,
        task.test,
        *task.further_tests.values(),
        *task.unlabelled.values(),
    )
    for name in names:
        if name is not None:
            yield Path(task.data_dir or "") / name


def _absolute(path: Path) -> Path:
    return Path(os.path.realpath(path))
