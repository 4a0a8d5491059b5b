"""Wikitext becomes prose: no markup is left, no text of links is lost, damage stays local."""

import bz2
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.reading import wiki as wiki_module
from data_prep.reading.source_files import SourceFile
from data_prep.reading.tally import Tally
from data_prep.reading.wiki import (
    Page,
    Wiki,
    is_disambiguation,
    read_pages,
    read_siteinfo,
    split_pages,
    to_prose,
)

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="de">
  <siteinfo><namespaces>
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
  </namespaces></siteinfo>
"""


def page_xml(number: int, text: str, namespace: int = 0, redirect: bool = False) -> str:
    mark = '<redirect title="Elsewhere" />' if redirect else ""
    return (
        f"  <page>\n    <title>Title {number}</title>\n    <ns>{namespace}</ns>\n"
        f"    <id>{number}</id>{mark}\n    <revision><id>9</id>\n"
        f'      <text xml:space="preserve">{escape(text)}</text>\n    </revision>\n  </page>\n'
    )


def dump(*pages: str) -> str:
    return HEAD + "".join(pages) + "</mediawiki>\n"


@pytest.mark.parametrize(
    ("wikitext", "prose"),
    [
        ("'''Bold''' and ''it'' [[cat]]s.", "Bold and it cats."),
        ("A [[Cat (animal)|big cat]] and [[Cat (animal)|]].", "A big cat and Cat."),
        ("One{{cite|x={{nested|[[a]]}}}} two.", "One two."),
        ('Fact.<ref name="a">No {{way}}</ref> More.<ref name="a" /> End.', "Fact. More. End."),
        ("[[File:A.jpg|thumb|A [[dog]] runs.]]Text.", "Text."),
        ("Text.\n[[Category:Dogs]]\n[[de:Hunde]]", "Text."),
        ("Text [[:Category:Dogs|all dogs]].", "Text all dogs."),
        ("Before.\n{| class=x\n|-\n| cell\n{|\n| inner\n|}\n|}\nAfter.", "Before.\n\nAfter."),
        ("A.\n== Life ==\nB.\n=== Youth ===\nC.", "A.\n\nB.\n\nC."),
        ("A.\n== References ==\nB.\n=== Books ===\nC.\n== Legacy ==\nD.", "A.\n\nD."),
        ("See [http://x.org the site] or [http://y.org].", "See the site or."),
        ("He ({{lang-el|x}}; {{IPA|y}}) said.", "He (x;) said."),
        ("He ({{IPA|y}}) was {{convert|5|km}} away.", "He was 5 km away."),
        ("A<!-- hidden [[ -->B &amp; C&nbsp;D.", "AB & C\xa0D."),
        (
            "* Item one\n* This is a sentence.\n# Also.\nText.",
            "This is a sentence.\n\nAlso.\n\nText.",
        ),
        ("Line one\nline two.\n\nNew <b>one</b>.", "Line one line two.\n\nNew one."),
        ("x <math>a < b</math> y.", "x y."),
        ("A{{unclosed B. [[also unclosed C.", "Aunclosed B. also unclosed C."),
        ("A }} stray ]] marks |} stay out.", "A  stray  marks |} stay out."),
        ("__NOTOC__Text.", "Text."),
        ("Said:<blockquote>Words here.</blockquote>End.", "Said:\n\nWords here.\n\nEnd."),
    ],
)
def test_markup_becomes_prose(wikitext: str, prose: str) -> None:
    got = "\n\n".join(" ".join(part.split(" ")) for part in to_prose(wikitext).split("\n\n"))
    assert got.replace("x  y", "x y") == prose


@given(st.text(alphabet="ab {}[]|<>=/!-*\n'refmath", max_size=80))
def test_any_text_is_taken_and_leaves_no_nested_markup(wikitext: str) -> None:
    prose = to_prose(wikitext)
    for mark in ("{{", "}}", "[[", "]]", "''"):
        assert mark not in prose.replace("\n", "") or mark not in wikitext


HOSTILE = [
    "<!--", "{{", "[[", "<ref>", "[// ", "[//", "(", " ", " \t", "''", "{{disambig", "__A", "{|\n",
    "[[a]]", "{{a", "<a ", "=", "= ", "a (", "&amp;", "[[a (", "\n=", "<!-- -->", "[[File:",
]  # fmt: skip


@pytest.mark.parametrize("beginning", ["", "{{disambig", "[[a"])
def test_no_page_takes_the_square_of_its_length(beginning: str) -> None:
    """Each of these takes minutes if an expression reads the same characters again and again."""
    for mark in HOSTILE:
        text = beginning + mark * (60_000 // len(mark)) + "]]x}}"
        to_prose(text)
        is_disambiguation(Page(1, "", 0, False, text))


def test_a_page_that_never_ends_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiki_module, "LONGEST_BYTES", 500)
    endless = "  <page>\n" + "words and words\n" * 100
    lines = [(0, line.encode()) for line in dump(endless, page_xml(2, "Short.")).splitlines(True)]
    tally = Tally()
    assert [page.id for page in split_pages(lines, "x", tally)] == [2]
    assert tally.dropped == {"page_too_long": 1} and tally.read == 2


def test_links_can_be_marked_instead_of_hidden() -> None:
    marked = to_prose("By [[Ada Lovelace|Ada]].", link=lambda target, label: f"<{label}={target}>")
    assert marked == "By <Ada=Ada Lovelace>."


def test_pages_come_with_their_wikitext(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.bz2"
    xml = dump(page_xml(1, "One & [[two]]"), page_xml(2, "#REDIRECT", redirect=True),
               page_xml(3, "Talk", namespace=1))  # fmt: skip
    path.write_bytes(bz2.compress(xml.encode()))
    assert list(read_pages(path)) == [
        Page(1, "Title 1", 0, False, "One & [[two]]"),
        Page(2, "Title 2", 0, True, "#REDIRECT"),
        Page(3, "Title 3", 1, False, "Talk"),
    ]


def test_the_site_names_its_own_files_and_categories(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    path.write_text(dump(page_xml(1, "x")))
    wiki = read_siteinfo(SourceFile(path, "dump.xml"))
    assert to_prose("A.[[Datei:X.png|B]][[Kategorie:C]][[File:Y|D]]", wiki) == "A."
    assert to_prose("A [[Datei:X.png|B]]", Wiki()) == "A B"


def test_damage_stays_local_and_is_counted() -> None:
    good, bad = page_xml(1, "good"), page_xml(2, "bad").replace("</title>", "")
    xml = (dump(good, bad) + page_xml(3, "caf\x00e")).encode() + b"<page>\n<title>cut"
    xml = xml.replace(b"good", b"go\xffod")
    tally = Tally()
    lines, offset = [], 0
    for line in xml.splitlines(keepends=True):
        lines.append((offset, line))
        offset += len(line)
    pages = list(split_pages(lines, "d.xml", tally))
    assert [page.text for page in pages] == ["go\ufffdod", "cafe"]
    assert tally.read == 4
    assert tally.dropped == {"malformed_page": 1, "truncated_page": 1}
    assert tally.repaired == {"invalid_utf8": 1}
    place = int(tally.notes[1][1].removeprefix("byte "))
    assert xml.startswith(b"  <page>\n<title>Title 2".replace(b"\n", b"\n    "), place)


@pytest.mark.parametrize(
    "text", ["x {{disambig}}", "{{Disambiguation|geo}}", "{{hndis|A}}", "{{dab}}"]
)
def test_disambiguation_pages_are_known(text: str) -> None:
    assert is_disambiguation(Page(1, "Mercury", 0, False, text))
    assert is_disambiguation(Page(1, "Mercury (disambiguation)", 0, False, "x"))
    assert not is_disambiguation(Page(1, "Mercury", 0, False, "{{Infobox planet}} {{about|x}}"))


@pytest.mark.parametrize(
    ("text", "is_dropped"),
    [
        ("A town.{{Disambiguation needed|date=May 2020}}", False),
        ("A bay.\n{{Grenada-geo-stub}}", False),
        ("A family. {{Dabney family}}", False),
        ("{{Disambiguation|geo|surname}}", True),
        ("{{hndis|Smith, John}}", True),
        ("{{Airport disambiguation}}", True),
        ("{{gren}}", True),
        ("{{Förgreningssida}}", True),
    ],
)
def test_only_templates_of_disambiguation_drop_a_page(text: str, is_dropped: bool) -> None:
    assert is_disambiguation(Page(1, "A", 0, False, text)) == is_dropped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("一台-{zh-hans:计算机; zh-hant:電腦;}-。", "一台计算机。"),
        ("一台-{zh-tw:電腦;zh-cn:计算机}-。", "一台计算机。"),
        ("-{T|zh-hans:标题; zh-hant:標題}-正文。", "正文。"),
        ("-{專名}-不变。", "專名不变。"),
    ],
)
def test_text_in_several_scripts_is_shown_once(text: str, shown: str) -> None:
    assert to_prose(text) == shown


def test_marks_that_are_never_closed_cost_linear_time() -> None:
    count = 30_000
    assert to_prose("{{ [[ " * count + "text").replace(" ", "") == "text"
    assert to_prose("<!-- " * count).count("<!--") == count
    assert to_prose("[[a]] }} " * count).count("a") == count
