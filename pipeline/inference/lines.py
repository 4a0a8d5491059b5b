"""Items of a file, one at a time, as the readers of a prediction's input give them."""

from dataclasses import dataclass

from pipeline.inference.models import Item


@dataclass(frozen=True)
class Line:
    """One item of a file, or the fault of a line that has none."""

    number: int  # counted from 1
    item: Item | None
    id: str | None = None
    fault: str = ""


class UnfitFileError(Exception):
    """A file that cannot hold the model's items; the message says why, without its name."""
