"""The kinds of XML that are read, told apart by their root element; pages of a METS file.

A METS file lists the files of a scanned work; an ALTO or PAGE file has the text of one page.
"""

import re
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree import ElementTree

ROOT = re.compile(rb"<(?:[\w.-]+:)?(mediawiki|alto|PcGts|mets|page)[\s>]", re.IGNORECASE)
KINDS = {b"mediawiki": "wiki", b"alto": "alto", b"pcgts": "page", b"mets": "mets", b"page": "wiki"}
SNIFFED_BYTES = 1 << 16
DECLARATION = re.compile(rb"<!(?:DOCTYPE|ENTITY)")  # could define entities that expand without end


def kind_of_xml(beginning: bytes) -> str | None:
    """Return wiki, alto, page or mets from the first bytes of a file, or None for other XML."""
    found = ROOT.search(beginning)
    return KINDS[found[1].lower()] if found else None


def parse_xml(data: bytes) -> ElementTree.Element:
    """Parse XML whose names have lost their namespaces.

    Raises ValueError for malformed XML and for declarations of types and entities.
    """
    if DECLARATION.search(data):
        raise ValueError("declares entities")
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise ValueError("malformed") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def page_links(mets: ElementTree.Element) -> list[str]:
    """Return the paths of the XML files that a METS file names, in the order of its pages.

    Paths are relative to the METS file. The physical structure gives the order, if there is one.
    """
    links = {
        str(file.get("ID")): link
        for file in mets.iter("file")
        for link in _locations(file)
        if re.search(r"\.xml(\.\w+)?$", link, re.IGNORECASE)
    }
    maps = sorted(
        mets.iter("structMap"), key=lambda each: each.get("TYPE", "").upper() != "PHYSICAL"
    )
    order = [str(pointer.get("FILEID")) for each in maps[:1] for pointer in _pointers(each)]
    ordered = [links[name] for name in dict.fromkeys(order) if name in links]
    return list(dict.fromkeys(ordered or links.values()))


def _locations(file: ElementTree.Element) -> Iterator[str]:
    for place in file.iter("FLocat"):
        for name, value in place.attrib.items():
            if name.rpartition("}")[2] == "href":
                yield unquote(value.removeprefix("file://")).removeprefix("./")


def _pointers(structure: ElementTree.Element) -> Iterator[ElementTree.Element]:
    for element in structure.iter():
        if element.tag in ("fptr", "area") and element.get("FILEID"):
            yield element
