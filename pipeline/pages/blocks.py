"""The building blocks of a page as plain data: sections of facts, tables, figures, commands."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Fact:
    """One number with its name."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """Numbers side by side."""

    kind: ClassVar[str] = "facts"
    facts: Sequence[Fact]


@dataclass(frozen=True)
class Column:
    """A column's heading; `is_number` aligns its cells as numbers."""

    name: str
    is_number: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of text.

    `bars`: one value from 0 to 1 per row, drawn as a bar in a last cell. `links`: an address per
    row, for its first cell; empty for none.
    """

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    bars: Sequence[float] = ()
    folded: bool = False  # shown only when opened
    links: Sequence[str] = ()
    sortable: bool = False  # a click on a heading sorts, on pages with the script for it

    @property
    def is_wide(self) -> bool:
        """True if the table needs more than half a screen's width."""
        return len(self.columns) + bool(self.bars) > 4

    @property
    def is_tall(self) -> bool:
        """True if two other tables fit beside it."""
        return len(self.rows) > 6


@dataclass(frozen=True)
class Figure:
    """A drawing, also written as `<name>.svg`."""

    name: str
    title: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Figures:
    """Drawings side by side."""

    kind: ClassVar[str] = "figures"
    figures: Sequence[Figure]


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Note:
    """A sentence or two."""

    kind: ClassVar[str] = "note"
    text: str


@dataclass(frozen=True)
class Commands:
    """Commands, each with its description."""

    kind: ClassVar[str] = "commands"
    commands: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Piece:
    """A token of a decoded example, with its role in masking."""

    text: str
    role: str = ""  # empty, or one of special, masked, kept, replaced
    note: str = ""
    space: str = ""  # the space before the token, if any


@dataclass(frozen=True)
class Decoded:
    """One example as text; only made if `share.text` allows it."""

    title: str
    pieces: Sequence[Piece]


@dataclass(frozen=True)
class Examples:
    """Decoded examples, one under another."""

    kind: ClassVar[str] = "examples"
    examples: Sequence[Decoded]
    masked: bool = True  # True to show the legend of masks


Block = Facts | Table | Figures | Heading | Note | Commands | Examples


@dataclass(frozen=True)
class Section:
    """A part of the page under one heading."""

    anchor: str
    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)

    @property
    def figures(self) -> list[Figure]:
        """The section's drawings, in order."""
        return [
            figure
            for block in self.blocks
            if isinstance(block, Figures)
            for figure in block.figures
        ]
