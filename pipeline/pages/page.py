"""Render self-contained pages: index.html with all figures inside, and each figure as a file.

Jinja escapes every string, except our own style sheet and the SVG of `charts`, which does its own
escaping. A page needs no network and runs no script.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from data_prep.files import write_atomically
from pipeline.pages.blocks import Facts, Figure, Section

HERE = Path(__file__).parent
CLOSING = "Written by Sesame. This page loads nothing from the network and runs no script."
SORTING = "Written by Sesame. This page loads nothing from the network. Its script sorts tables."


@dataclass(frozen=True)
class Page:
    """A rendered page and its sections."""

    html: str
    sections: list[Section]

    @property
    def figures(self) -> list[Figure]:
        """All drawings, in the order of the page."""
        return [figure for section in self.sections for figure in section.figures]

    def write(self, out: Path) -> None:
        """Write index.html and one SVG file per drawing to the folder `out`."""
        for figure in self.figures:
            write_atomically(out / f"{figure.name}.svg", figure.svg)
        write_atomically(out / "index.html", self.html)


def render(
    kind: str,
    title: str,
    lead: str,
    facts: Facts | None,
    sections: list[Section],
    *,
    refresh: int = 0,
    sorts: bool = False,
) -> Page:
    """Render a page from its title, a lead sentence, its main numbers and its sections.

    `refresh`: seconds after which a browser loads it again; 0 = never. `sorts`: include the script
    for sortable tables. No other script may run: the page allows only the one with this hash.
    """
    script = (HERE / "sort.js").read_text() if sorts else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html = _environment().get_template("page.html").render(
        kind=kind,
        title=title,
        subtitle=lead,
        headline=facts,
        sections=sections,
        css=Markup((HERE / "page.css").read_text()),
        closing=SORTING if sorts else CLOSING,
        refresh=refresh,
        script=Markup(script),
        script_hash=Markup(f"sha256-{digest}"),
    )  # fmt: skip
    return Page(html, sections)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    return environment


def breakable(text: str) -> Markup:
    """Allow line breaks after `.` and `_` in a name such as `trainer.max_steps`."""
    return Markup("<wbr>").join(re.split(r"(?<=[^\W\d][._])", text))
