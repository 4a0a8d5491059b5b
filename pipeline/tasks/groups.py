"""What examples belong to, such as a patient (task.group_field): no group is in two parts.

Readers that have groups: tables (a column), SQuAD (a field of question, paragraph or article; an
article without task.group_field), CoNLL (a comment `# field = value`, or `document` for what
-DOCSTART- parts), links of a wiki (the page, always).
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from data_prep.errors import SesameError
from data_prep.reading.named_fields import list_names
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile


class GroupFinder:
    """Finds the group of each record of one file; a field that no record has is refused."""

    def __init__(self, file: TaskFile, task: TaskConfig) -> None:
        self.field = task.group_field if file.has_labels else None
        self._path = file.path
        self._is_there = False
        self._names: dict[str, None] = {}

    def find(self, *records: Mapping[str, Any]) -> str | None:
        """The first record's value that is not empty; None where there is none, or none asked."""
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
        """Call after the last record."""
        if self.field is not None and not self._is_there:
            raise SesameError(
                f"{self._path}: task.group_field={self.field}: no record has this field; "
                f"found: {list_names(self._names)}; set task.group_field"
            )


def count_groups(task: TaskConfig, parts: Mapping[str, Sequence[Example]]) -> dict[str, int]:
    """Groups of each part, and examples without one; nothing where groups are not asked for."""
    if task.group_field is None:
        return {}
    counts = {name: len(_groups(examples)) for name, examples in parts.items()}
    # By identity: the development examples may be the test examples too.
    without = {id(each) for part in parts.values() for each in part if not each.is_grouped}
    return counts | {"examples_without": len(without)}


def refuse_shared_groups(task: TaskConfig, parts: Mapping[str, Sequence[Example]]) -> None:
    """Stop where two parts have a group in common: files that were given may be split wrongly."""
    if task.group_field is None:
        return
    found = {name: _groups(examples) for name, examples in parts.items()}
    for one, other in combinations(found, 2):
        shared = len(found[one] & found[other])
        if shared:
            raise SesameError(
                f"task.group_field={task.group_field}: {shared} groups are both in the {one} and "
                f"in the {other} examples; unset task.dev and task.test to have them cut by group, "
                "or unset task.group_field"
            )


def _groups(examples: Sequence[Example]) -> set[str]:
    return {example.group for example in examples if example.is_grouped}
