"""Names that editors linked become tags: everywhere on their page, and only where all is clear."""

import bz2
from pathlib import Path

from data_prep.reading.wiki import Page
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile
from pipeline.tasks.wiki_links import marked_sentences, read_wiki_links, tag_page

PAGE = """<page><title>{title}</title><ns>{namespace}</ns><id>{id}</id>{redirect}
<revision><text xml:space="preserve">{text}</text></revision></page>
"""


def page(number: int, title: str, text: str, namespace: int = 0, redirect: str = "") -> str:
    return PAGE.format(id=number, title=title, text=text, namespace=namespace, redirect=redirect)


def read(folder: Path, *pages: str, kind: str = "tag") -> list[Example]:
    path = folder / "enwiki.xml.bz2"
    path.write_bytes(bz2.compress(f"<mediawiki>\n{''.join(pages)}</mediawiki>\n".encode()))
    return list(read_wiki_links(TaskFile(path), TaskConfig(kind=kind, reader="wiki_links")))


def test_links_become_names_on_the_whole_page(tmp_path: Path) -> None:
    text = (
        "The army was led by [[Nestor Makhno]] in the [[Free Territory (Ukraine)|Free Territory]]. "
        "In the end Nestor Makhno had to leave the [[city]] of [[Paris]]s too."
    )
    examples = read(tmp_path, page(12, "Black army", text))
    assert [list(zip(e.texts, e.gold, strict=True)) for e in examples] == [
        [
            ("The", "O"), ("army", "O"), ("was", "O"), ("led", "O"), ("by", "O"),
            ("Nestor", "B-NAME"), ("Makhno", "I-NAME"), ("in", "O"), ("the", "O"),
            ("Free", "B-NAME"), ("Territory", "I-NAME"), (".", "O"),
        ],
        [
            ("In", "O"), ("the", "O"), ("end", "O"), ("Nestor", "B-NAME"), ("Makhno", "I-NAME"),
            ("had", "O"), ("to", "O"), ("leave", "O"), ("the", "O"), ("city", "O"), ("of", "O"),
            ("Pariss", "B-NAME"), ("too", "O"), (".", "O"),
        ],
    ]  # fmt: skip
    assert {example.group for example in examples} == {"12"}


def test_sentences_with_an_unexplained_capital_are_left_out(tmp_path: Path) -> None:
    text = (
        "He met [[Ann Lee]] there. There he and Bo met Ann Lee. Rand knew Ann Lee. "
        "Nobody else came. So he left Ann Lee’s house."
    )
    examples = read(tmp_path, page(1, "Some story", f"{text} And she said so, and he went."))
    assert [" ".join(example.texts) for example in examples] == [
        "He met Ann Lee there .",
        "So he left Ann Lee ’s house .",
    ]


def test_the_title_is_a_name_unless_it_has_a_small_form(tmp_path: Path) -> None:
    albania = page(1, "Albania", "The coast of Albania is the best. They like [[Greece]].")
    alchemy = page(
        2, "Alchemy", "Alchemy is old. As some say, alchemy came from [[Egypt]] as gold."
    )
    examples = read(tmp_path, albania, alchemy)
    names = [
        [word for word, tag in zip(e.texts, e.gold, strict=True) if tag != "O"] for e in examples
    ]
    assert names == [["Albania"], ["Egypt"]]


def test_only_articles_are_read(tmp_path: Path) -> None:
    text = "It was seen by [[Ann Lee]] there. it"
    pages = (
        page(1, "Talk:A", text, namespace=1),
        page(2, "B", text, redirect='<redirect title="A" />'),
        page(3, "C (disambiguation)", text),
        page(4, "D", text),
    )
    assert {example.group for example in read(tmp_path, *pages)} == {"4"}


def test_files_and_templates_leave_no_words(tmp_path: Path) -> None:
    text = (
        "[[File:X.jpg|thumb|A [[Bad Link]] here]]{{Infobox|name=[[Worse Link]]}}"
        "They saw the [[Red Sea]] first, and they left."
    )
    (example,) = read(tmp_path, page(1, "Journey", text))
    assert " ".join(example.texts) == "They saw the Red Sea first , and they left ."


def test_the_longest_name_wins() -> None:
    (sentence,) = marked_sentences("they met \ue000Ann\ue001 and \ue000Ann Lee\ue001 then")
    assert sentence.links == [(2, 3), (4, 6)]
    ((_, tags),) = tag_page([sentence], Page(1, "x", 0, False, ""))
    assert tags == ("O", "O", "B-NAME", "O", "B-NAME", "I-NAME", "O")


def test_sentences_are_told_apart_by_how_many_names_they_have(tmp_path: Path) -> None:
    text = "They saw [[Ann Lee]] and [[Bob Ray]] there. They saw [[Ann Lee]] as they came."
    examples = read(tmp_path, page(1, "Journey", text), kind="classify")
    assert [(e.texts, e.gold) for e in examples] == [
        (("They saw Ann Lee and Bob Ray there .",), "several"),
        (("They saw Ann Lee as they came .",), "one"),
    ]
