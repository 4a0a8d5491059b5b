"""What the page is made of: sections of facts, tables, figures and commands, as plain data."""

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
    """A heading, and whether its cells are numbers."""

    name: str
    is_number: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of text; `bars`, where given, draws a share of the width in a last cell of each row."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    bars: Sequence[float] = ()
    folded: bool = False  # shown only when opened

    @property
    def is_wide(self) -> bool:
        """Whether half a screen is too little for it."""
        return len(self.columns) + bool(self.bars) > 4

    @property
    def is_tall(self) -> bool:
        """Whether two others fit beside it."""
        return len(self.rows) > 6


@dataclass(frozen=True)
class Figure:
    """A drawing that is also a file of its own, `<name>.svg`."""

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
    """Names what follows, where a section is about several things."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Note:
    """A sentence or two."""

    kind: ClassVar[str] = "note"
    text: str


@dataclass(frozen=True)
class Commands:
    """Lines to type, each with what it does."""

    kind: ClassVar[str] = "commands"
    commands: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Piece:
    """A word piece of a decoded example, and what masking made of it."""

    text: str
    role: str = ""  # or one of special, masked, kept, replaced
    note: str = ""
    space: str = ""  # what stands before it


@dataclass(frozen=True)
class Decoded:
    """One example as text; only made where `share.text` allows."""

    title: str
    pieces: Sequence[Piece]


@dataclass(frozen=True)
class Examples:
    """Decoded examples, one under another."""

    kind: ClassVar[str] = "examples"
    examples: Sequence[Decoded]
    masked: bool = True  # whether there is something to say about masks


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
