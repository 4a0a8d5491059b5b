"""Groups of examples, such as a patient (task.group_field): no group is in two splits.

Each reader finds the group in its own place:
    table       a column
    squad       a field of the question, paragraph or article; the article without task.group_field
    conll       a comment `# field = value`; `document` for the parts between -DOCSTART- lines
    conllu      a comment
    spans       a key of the line's object
Others always have groups of their own: `config.GROUPING`. Without task.group_field, texts that are
equal form a group.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from data_prep.errors import SesameError
from data_prep.reading.named_fields import list_names
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile


class GroupFinder:
    """Finds the group of each record of one file. Call `refuse_absent` after the last record."""

    def __init__(self, file: TaskFile, task: TaskConfig) -> None:
        self.field = task.group_field if file.has_labels else None
        self._path = file.path
        self._is_there = False
        self._names: dict[str, None] = {}

    def find(self, *records: Mapping[str, Any]) -> str | None:
        """Return the first non-empty value of the group field in `records`.

        None if there is none, or if no groups are used.
        """
        if self.field is None:
            return None
        for record in records:
            if self.field in record:
                self._is_there = True
                value = record[self.field]
                if value is not None and str(value).strip():
                    return str(value).strip()
            elif not self._is_there:
                self._names |= dict.fromkeys(record)
        return None

    def refuse_absent(self) -> None:
        """Raise a SesameError if no record of the file had the group field."""
        if self.field is not None and not self._is_there:
            raise SesameError(
                f"{self._path}: task.group_field={self.field}: no record has this field; "
                f"found: {list_names(self._names)}; set task.group_field"
            )


def count_groups(task: TaskConfig, parts: Mapping[str, Sequence[Example]]) -> dict[str, int]:
    """Return the number of groups per split, and `examples_without`: examples without a group.

    Empty without task.group_field.
    """
    if task.group_field is None:
        return {}
    counts = {name: len(_groups(examples)) for name, examples in parts.items()}
    # Count by identity, since the development examples may also be the test examples.
    without = {id(each) for part in parts.values() for each in part if not each.is_grouped}
    return counts | {"examples_without": len(without)}


def refuse_shared_groups(task: TaskConfig, parts: Mapping[str, Sequence[Example]]) -> None:
    """Raise a SesameError if two splits share a group: the user's files may be split wrongly."""
    if task.group_field is None:
        return
    found = {name: _groups(examples) for name, examples in parts.items()}
    for one, other in combinations(found, 2):
        shared = len(found[one] & found[other])
        if shared:
            raise SesameError(
                f"task.group_field={task.group_field}: {shared} groups are both in the {one} and "
                f"in the {other} examples; unset task.dev and task.test to split by group, or "
                "unset task.group_field"
            )


def _groups(examples: Sequence[Example]) -> set[str]:
    return {example.group for example in examples if example.is_grouped}
