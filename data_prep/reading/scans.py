"""Read the text of scanned pages: ALTO and PAGE XML, and METS files that list such pages.

A page's blocks become paragraphs, since the layout says which lines belong together. Where a line
ends with a hyphen the break stays, for `corpus.join_hyphens`. The confidence of a text is the mean
over its words, as the OCR software stated it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean
from xml.etree.ElementTree import Element

from data_prep.reading.lines import LONGEST_BYTES, read_blocks
from data_prep.reading.markup import parse_xml
from data_prep.reading.source_files import SourceFile
from data_prep.reading.tally import Tally
from data_prep.text.sentences import join_lines

SCANS = ("alto", "page", "mets")  # formats; see `SourceFile.format`
HYPHENS = ("-", "\xad", "¬", "⸗")


@dataclass
class Scan:
    """The text of one or several pages, and the confidences of their words, if stated."""

    paragraphs: list[str] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The paragraphs, with blank lines between them."""
        return "\n\n".join(self.paragraphs)

    @property
    def confidence(self) -> float | None:
        """The mean confidence of the words, from 0 to 1; None if the files state none."""
        return fmean(self.confidences) if self.confidences else None

    def add(self, other: "Scan") -> None:
        """Append the next page."""
        self.paragraphs += other.paragraphs
        self.confidences += other.confidences


def read_work(file: SourceFile, tally: Tally) -> Scan | None:
    """Read the pages that a METS file lists; a page that cannot be read is counted and left out.

    Returns None if no page can be read; the tally then has the reason.
    """
    work = Scan()
    if file.missing_pages:
        tally.repair_damaged("missing_page", file.name, 0)
    pages = [read_page(page, tally, "repaired") for page in file.pages]
    for page in pages:
        if page is not None:
            work.add(page)
    if any(page is not None for page in pages):
        return work
    tally.drop_damaged("no_pages", file.name, 0)
    return None


def read_page(file: SourceFile, tally: Tally, damage: str = "dropped") -> Scan | None:
    """Read one ALTO or PAGE file.

    Returns None if it cannot be read, and counts that in `tally`: as a dropped document, or with
    damage="repaired" as a page that is missing in its document.
    """
    note = tally.drop_damaged if damage == "dropped" else tally.repair_damaged
    data = b""
    for block in read_blocks(file, tally):
        data += block
        if len(data) > LONGEST_BYTES:
            note("page_too_long", file.name, 0)
            return None
    try:
        root = parse_xml(data)
        return _read_alto(root) if file.format == "alto" else _read_page_xml(root)
    except ValueError:
        note("malformed_page", file.name, 0)
        return None


def _read_alto(root: Element) -> Scan:
    scan = Scan()
    for block in root.iter("TextBlock"):
        lines = [_alto_line(line, scan.confidences) for line in block.iter("TextLine")]
        _add_paragraph(scan, lines)
    return scan


def _alto_line(line: Element, confidences: list[float]) -> str:
    """Return the text of a line; a word that continues on the next line is given whole here."""
    has_spaces = line.find("SP") is not None
    text = ""
    for element in line:
        if element.tag == "SP":
            text += " "
        if element.tag != "String":
            continue
        confidences.extend(_stated(element.get("WC")))
        whole = element.get("SUBS_CONTENT")  # of a word that is divided between two lines
        if whole and element.get("SUBS_TYPE") == "HypPart2":
            continue
        text += whole or element.get("CONTENT") or ""
        if not has_spaces:
            text += " "
    return text.strip()


def _read_page_xml(root: Element) -> Scan:
    scan = Scan()
    regions = {str(region.get("id")): region for region in root.iter("TextRegion")}
    for name in _reading_order(root, list(regions)):
        lines = [_page_line(line, scan.confidences) for line in regions[name].findall("TextLine")]
        _add_paragraph(scan, lines)
    return scan


def _reading_order(root: Element, names: list[str]) -> list[str]:
    """Return the regions in the stated order, then those that the order does not name."""
    indexed = sorted(root.iter("RegionRefIndexed"), key=lambda each: int(each.get("index", "0")))
    stated = [str(reference.get("regionRef")) for reference in indexed]
    return list(dict.fromkeys([name for name in stated if name in names] + names))


def _page_line(line: Element, confidences: list[float]) -> str:
    words = line.findall("Word")
    spoken = [equivalent for word in words for equivalent in _best(word)]
    own = list(_best(line))
    for equivalent in spoken or own:
        confidences.extend(_stated(equivalent.get("conf")))
    texts = [equivalent.findtext("Unicode") or "" for equivalent in own or spoken]
    return " ".join(texts).strip()


def _best(element: Element) -> Iterator[Element]:
    """Yield the first of the alternative readings, if there is one."""
    readings = element.findall("TextEquiv")
    if readings:
        yield min(readings, key=lambda reading: int(reading.get("index", "0")))


def _add_paragraph(scan: Scan, lines: list[str]) -> None:
    runs: list[list[str]] = [[]]
    for line in filter(None, lines):
        runs[-1].append(line)
        if line.endswith(HYPHENS):
            runs.append([])
    joined = [join_lines(run) for run in runs if run]
    if joined:
        scan.paragraphs.append("\n".join(joined))


def _stated(value: str | None) -> list[float]:
    """Return a stated confidence as a list of one; empty if there is none, or not from 0 to 1."""
    try:
        confidence = float(value) if value is not None else -1.0
    except ValueError:
        return []
    return [confidence] if 0.0 <= confidence <= 1.0 else []
