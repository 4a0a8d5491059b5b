"""Format numbers and names for readers."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.models.registry import FAMILIES

PART = " · "  # between the parts of a name, and between values that differ
UNITS = ("", "k", "M", "G", "T")
THIN = "\u202f"  # a narrow space that does not break


def count(value: float) -> str:
    """Format a whole number with thousands separators: 1,234,567."""
    return f"{value:,.0f}"


def short(value: float) -> str:
    """Format a number with three digits and a unit prefix (k, M, G, T) for large values."""
    if abs(value) < 9_999.5:
        return count(value) if abs(value) >= 100 or float(value).is_integer() else f"{value:.3g}"
    power = min(int(math.log10(abs(float(f"{value:.3g}")))) // 3, len(UNITS) - 1)
    return f"{value / 1000**power:.3g}{THIN}{UNITS[power]}"


def share(part: float, whole: float = 1.0) -> str:
    """Format a part of a whole as a percentage; a dash if the whole is 0."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    digits = ".2g" if 0 < percent < 1 else ".2f" if 99 < percent < 100 else ".1f"
    return f"{percent:{digits}}{THIN}%"


def percent(score: float) -> str:
    """Format a score between 0 and 1 as a percentage with one decimal."""
    return f"{100 * score:.1f}"


def duration(seconds: float) -> str:
    """Format seconds in the two largest units."""
    if seconds < 59.95:
        return f"{seconds:.1f}{THIN}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{THIN}min {rest}{THIN}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{THIN}h {minutes}{THIN}min"


def plain(key: str) -> str:
    """Turn a name from the code into words."""
    return key.replace("_", " ").replace(".", PART)


def amount(value: Any) -> str:
    """Format a value of any type: integers with separators, other numbers to four digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def distinct(values: Iterable[Any]) -> str:
    """Join values, each once, in their order."""
    return PART.join(dict.fromkeys(str(value) for value in values))


def named(*parts: str) -> str:
    """Join the non-empty parts of a name, each once."""
    return distinct(filter(None, parts))


def enumerated(names: Sequence[str]) -> str:
    """Join names for a sentence: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def model_name(model: dict[str, Any]) -> str:
    """Return a model's name by its kind and size."""
    width = model.get("hidden", model.get("projection"))
    return f"{FAMILIES[model['kind']].title} of {model['layers']} layers, {width} wide"


def byte_size(size: float) -> str:
    """Return a size with its unit: 14.5 GB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:,.2f} {unit}"
    return f"{size / 1e3:,.2f} kB"
