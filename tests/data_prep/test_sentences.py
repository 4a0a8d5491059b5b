"""Sentences end where a reader would say so, and nothing is lost between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.sentences import split_sentences, split_text, unwrap


@pytest.mark.parametrize(
    "marked",
    [
        "It rained.|Then it stopped!|Why?|Nobody knew.",
        "Dr. Smith met Mr. J. K. Jones at St. Mary's.|They talked.",
        "It costs $3.50 or 1.5 million.|Version 2.0 is out.",
        'She said "Stop!" and left.|"Why?" he asked.|"Because."',
        "“Oh.”|“Ah!”|‘So.’|And so on.",
        "(He did not know.)|She did.",
        "Well... maybe.|Wait...|What?!|No!!",
        "It ended . . .|The next began.",
        "See Fig. 3 and pp. 4-5, i.e. the charts, e.g. this one.|No.|I refuse.",
        "No. 5 is alive.|It left at 5 p.m. on Friday.",
        "He came from the U.S.|The army of the U.S. Army stayed.",
        "Acme Inc. Chairman Bob met Foo Ltd.|The rest is history.",
        "1. First point.|2. Second point.",
        "In 1999.|Then 2000.",
        "你好。|你是谁？|“我是。”|他说！|好",
        "Он ушёл.|«Да.»|Потом пришёл!",
        "Han kom.|Åke gick.|– Ja.|”Nej.”",
        "यह एक है।|दूसरा वाक्य।",
        "no capital. after this. it goes on",
        "one sentence only",
    ],
)
def test_sentences_end_where_marked(marked: str) -> None:
    expected = marked.split("|")
    joiner = "" if "你" in marked else " "
    assert split_sentences(joiner.join(expected)) == expected


@given(st.text(alphabet="aB .!?…\"')(1。！U.S", max_size=60))
def test_nothing_is_lost_and_nothing_is_empty(text: str) -> None:
    line = " ".join(text.split())
    sentences = split_sentences(line)
    assert "".join(sentences).replace(" ", "") == line.replace(" ", "")
    assert all(sentences) or line == ""


def test_paragraphs_and_modes() -> None:
    text = "One. Two.\nThree\n\nFour. Five."
    assert split_text(text, "rules") == [["One.", "Two.", "Three"], ["Four.", "Five."]]
    assert split_text(text, "lines") == [["One. Two.", "Three"], ["Four. Five."]]
    assert split_text(text, "none") == [["One. Two. Three"], ["Four. Five."]]


def test_wrapped_lines_are_joined_and_others_kept() -> None:
    wrapped = (
        "HISTORY\n"
        "The town was founded by settlers who came over the\n"
        "mountains in the spring of that year. They built a\n"
        "church.\n\n"
        "Milk\nEggs"
    )
    assert split_text(wrapped, "rules") == [
        [
            "HISTORY",
            "The town was founded by settlers who came over the mountains in the spring of "
            "that year.",
            "They built a church.",
        ],
        ["Milk", "Eggs"],
    ]
    long_lines = f"{'word ' * 40}\nNext paragraph"
    assert unwrap(long_lines) == long_lines
