"""Read multiple choice from nested JSON lines, as CommonsenseQA, ARC and OpenBookQA have them."""

from collections.abc import Iterator

from data_prep.errors import SesameError
from pipeline.tasks.choices import ChoiceError, flatten
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile
from pipeline.tasks.rows import renamed
from pipeline.tasks.table import Row, json_rows, read_rows


def read_commonsense_qa(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield the examples of one file; every error names file and line."""
    if file.path.suffix != ".jsonl":
        raise SesameError(f"{file.path}: must end in .jsonl, with one JSON object per line")
    return read_rows(file, task, _flat_rows(file, task))


def _flat_rows(file: TaskFile, task: TaskConfig) -> Iterator[Row]:
    for line, row in json_rows(file.path):
        try:
            flat = flatten(row, task.labels)
        except ChoiceError as error:
            file.refuse_or_drop(task, line, str(error))
            continue
        yield line, renamed(flat, task)
