"""Settings for the page: the result keys of outputs, without values that may contain text."""

import json
from collections.abc import Iterable
from typing import Any

from pipeline.pages.wording import amount, distinct
from pipeline.report.collect import FinishedOutput

LONGEST_VALUE = 80  # maximum characters shown of a setting


def settings_of(made: Iterable[FinishedOutput], share_text: bool) -> dict[str, str]:
    """Return the result keys with their values; if outputs differ, all their values."""
    values: dict[str, list[str]] = {}
    for one in made:
        for section, keys in one.config.items():
            for key, value in keys.items():
                values.setdefault(f"{section}.{key}", []).append(_value(value, share_text))
    return {key: distinct(shown) for key, shown in values.items()}


def _value(value: Any, share_text: bool) -> str:
    """Return a setting as text; lists may name documents or labels, so only with share.text."""
    if value is None:
        return "not set"
    if isinstance(value, bool | int | float | str):
        return amount(value) if isinstance(value, bool) else str(value)
    if not value:
        return "none"
    if not share_text and not all(isinstance(item, int | float | dict) for item in value):
        return f"{len(value)} given"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
