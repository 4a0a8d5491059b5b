"""Conditions on the fields of records (`corpus.where`): a value, or a range of numbers or dates.

    news            equal to this text
    >=3, <3, >0.5   a number, an ISO date or the year of a date beyond a bound
    3..5            from one bound to the other, both included; 2019-01..2020-06 ends on 2020-06-30
A text with two dots and no number or date on either side is a plain value.
"""

import operator
import re
from collections.abc import Callable
from typing import Any

from data_prep.errors import UsageError

COMPARED = re.compile(r"\s*(>=|<=|>|<)\s*(\S+)\s*")
BETWEEN = re.compile(r"\s*([^\s.](?:[^\s.]|\.(?!\.))*)\s*\.\.\s*(\S+)\s*")
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
DATE = re.compile(r"\d{4}-\d{2}(?:-\d{2}(?:[T ][\d:.]+)?)?")
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}

Condition = Callable[[str], bool]


def condition_of(key: str, value: str) -> Condition:
    """Return the test of a field's value, as text. Raises UsageError for a range without bounds."""
    if compared := COMPARED.fullmatch(value):
        return _bound(key, value, compared[1], compared[2])
    between = BETWEEN.fullmatch(value)
    if between and any(map(_is_bound, between.groups())):
        low = _bound(key, value, ">=", between[1])
        high = _bound(key, value, "<=", between[2])
        return lambda found: low(found) and high(found)
    return lambda found: found == value


def _bound(key: str, value: str, sign: str, bound: str) -> Condition:
    compare = COMPARE[sign]
    if NUMBER.fullmatch(bound):
        limit = float(bound)
        # A value that is neither a number nor a date is outside every range.
        return lambda found: _is_bound(found) and compare(_number(found), limit)
    if DATE.fullmatch(bound):
        # Dates of this form are ordered as texts; a month as a bound stands for all its days.
        return lambda found: bool(DATE.fullmatch(found)) and compare(found[: len(bound)], bound)
    raise UsageError(
        f"{key}={value}: a range has numbers or ISO dates as bounds, such as '>=3', '3..5' or "
        "'2019-01..2020-06'"
    )


def _is_bound(text: str) -> bool:
    return bool(NUMBER.fullmatch(text) or DATE.fullmatch(text))


def _number(text: str) -> float:
    """Return a number; of a date, its year."""
    return float(text if NUMBER.fullmatch(text) else text[:4])
