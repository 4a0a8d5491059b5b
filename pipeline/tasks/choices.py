"""The texts of multiple choice: a context, and the choices that may follow it.

Files have one of three forms:
    columns   a column per choice: task.choices=[ending0,ending1,…]; last cells may be empty
    a list    one column with a list of choices (JSON lines): task.choices=[endings]
    nested    `question: {stem, choices: [{label, text}]}` and `answerKey`, as CommonsenseQA, ARC
              and OpenBookQA have it: task.reader=commonsense_qa
The label is the number of the right choice, from 0, or its name in task.labels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import cell_text, is_plain

FEWEST = 2  # choices of an example
MOST_DIGITS = 9  # of a choice's number
STEM, CHOICES, ANSWER = "question", "choices", "answerKey"  # columns of a flattened nested row


class ChoiceError(ValueError):
    """A row that has no context or no choices; the message gives the reason without its text."""


def choice_texts(row: Mapping[str, Any], task: TaskConfig) -> tuple[str, ...]:
    """Return the context and the choices of a row, each choice after task.text_b if it is set.

    Raises a ChoiceError if the context or a choice is empty, or if there are fewer than two.
    """
    cells: Any = row[task.choices[0]]
    if len(task.choices) > 1 or not isinstance(cells, list):
        cells = [row[column] for column in task.choices]
    begin = "" if task.text_b is None else row[task.text_b]
    if not all(map(is_plain, (row[task.text_a], begin, *cells))):
        raise ChoiceError("has a list or an object where a text belongs")
    choices = [cell_text(cell) for cell in cells]
    while choices and not choices[-1]:
        choices.pop()
    context = cell_text(row[task.text_a])
    if not context:
        raise ChoiceError(f"the text in column {task.text_a} is empty")
    if len(choices) < FEWEST or not all(choices):
        raise ChoiceError(f"has fewer than {FEWEST} choices, or an empty one before the last")
    return (context, *(f"{cell_text(begin)} {choice}".strip() for choice in choices))


def choice_number(label: str, names: Sequence[str]) -> int | None:
    """Return the number of the choice that a label names, from 0; None if it names none."""
    if names:
        return names.index(label) if label in names else None
    return int(label) if label.isdecimal() and len(label) <= MOST_DIGITS else None


def choice_name(number: int, names: Sequence[str]) -> str:
    """Return the label of a choice: the inverse of `choice_number`."""
    return names[number] if number < len(names) else str(number)


def flatten(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a nested row with the columns STEM, CHOICES (a list) and, if it is there, ANSWER.

    `names`: task.labels. Raises a ChoiceError if the row is not of the nested form.
    """
    question = row.get(STEM)
    choices = question.get(CHOICES) if isinstance(question, dict) else None
    if not isinstance(question, dict) or not isinstance(choices, list):
        raise ChoiceError(f"has no object {STEM} with a list {CHOICES}")
    if not all(isinstance(choice, dict) for choice in choices):
        raise ChoiceError("has a choice that is not an object with label and text")
    flat = {**row, STEM: question.get("stem"), CHOICES: [each.get("text") for each in choices]}
    labels = [str(each.get("label")) for each in choices]
    if ANSWER in row:
        answer = cell_text(row[ANSWER])
        flat[ANSWER] = choice_name(labels.index(answer), names) if answer in labels else answer
    return flat
