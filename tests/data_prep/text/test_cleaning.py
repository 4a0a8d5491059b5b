"""Clean text has a fixed form whatever it was made from; clean text stays as it is."""

import unicodedata
from collections import Counter

import ftfy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.config import CorpusConfig
from data_prep.text.cleaning import clean_document, clean_text, drop_boilerplate, join_hyphens


def clean(text: str) -> str:
    return clean_text(text, Counter())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("\ufeffa\x00b\x07c\xadd", "abcd"),
        ("a \t b\xa0\u3000c  \n   d", "a b c\nd"),
        ("a\n\n \n\t\n\nb\n", "a\n\nb"),
        ("Good.<br /><br />Bad.<BR>End.", "Good.\n\nBad.\n\nEnd."),
        ("Tom &amp; Jerry &quot;x&quot;", 'Tom & Jerry "x"'),
        ("if a <b then &amp; c", "if a <b then & c"),
        ("<b>bold</b> &amp; more", "<b>bold</b> &amp; more"),
        ("a\xad\u0301", "á"),
        ("cafe\u0301", "café"),
        ("smÃ¶rgÃ¥s â€” schÃ¶n", "smörgås — schön"),
        ("so bad\x85 and \x96 well", "so bad… and – well"),
        ("bad \ud83d pair", "bad \ufffd pair"),
        ("page\fbreak\u2028line", "page\nbreak\nline"),
        ("“Curly” — ｆｕｌｌ， 中文！", "“Curly” — ｆｕｌｌ， 中文！"),
    ],
)
def test_known_repairs(raw: str, expected: str) -> None:
    assert clean(raw) == expected


@given(st.text(max_size=200))
def test_clean_text_has_its_form(raw: str) -> None:
    text = clean(raw)
    assert unicodedata.is_normalized("NFC", text)
    assert "\n\n\n" not in text and "  " not in text and "\r" not in text
    assert not any(
        unicodedata.category(character) in ("Cc", "Cs") for character in text if character != "\n"
    )
    assert all(line == line.strip() for line in text.split("\n"))
    text.encode()


@given(
    st.text(
        alphabet=st.characters(exclude_characters="&<", exclude_categories=("Cs",)), max_size=100
    )
)
def test_cleaning_is_done_once(raw: str) -> None:
    once = clean(raw)
    if ftfy.fix_encoding(once) == once:  # a repair may bring two suspicious lines' halves together
        assert clean(once) == once


@given(
    st.text(alphabet="aé ñüßåöÅ–—“”’…жяЖ中文に", min_size=3, max_size=40),
    st.sampled_from(["latin-1", "windows-1252", "windows-1251", "macroman"]),
)
def test_the_quick_test_misses_nothing_that_ftfy_repairs(text: str, encoding: str) -> None:
    broken = text.encode().decode(encoding, errors="ignore")
    if not broken.isprintable():
        return
    expected = unicodedata.normalize("NFC", ftfy.fix_encoding(broken))
    assert clean(broken) == " ".join(expected.split())


def test_repairs_are_counted_by_document() -> None:
    repaired: Counter[str] = Counter()
    clean_text("a\x00b\x00", repaired)
    clean_text("smÃ¶r\nsmÃ¶r", repaired)
    clean_text("plain", repaired)
    clean_text("one\r\ntwo\r\n", repaired)
    assert repaired == {"control_characters": 1, "encoding": 1, "line_breaks": 1}


@pytest.mark.parametrize(
    ("raw", "joined"),
    [
        ("an exam-\nple of it", "an example\nof it"),
        ("an exam-\nple, of it", "an example,\nof it"),
        ("the exam-\nple\n\nNext", "the example\n\nNext"),
        ("at the end of exam-\nples", "at the end of examples"),
        ("so well-\nknown, a well-known man", "so well-known,\na well-known man"),
        ("Anglo-\nSaxon kings", "Anglo-\nSaxon kings"),
        ("1914-\n1918 and -\nso", "1914-\n1918 and -\nso"),
        ("smör-\ngås här", "smörgås\nhär"),
        ("exam-\n\nple", "exam-\n\nple"),
    ],
)
def test_broken_words_are_joined_and_hyphenated_ones_kept(raw: str, joined: str) -> None:
    repaired: Counter[str] = Counter()
    assert join_hyphens(raw, repaired) == joined
    assert repaired["joined_hyphens"] == (raw != joined)
    assert clean_document(raw, CorpusConfig(), Counter()) == raw, "only on request"


def test_lines_that_a_document_repeats_are_kept_once() -> None:
    head = "The Daily Newspaper, Stockholm"
    pages = [f"{head}\nThis is page {number} of it.\nYes." for number in range(6)]
    repaired: Counter[str] = Counter()
    text = drop_boilerplate("\n\n".join(pages), 5, repaired)
    assert text.count(head) == 1 and text.startswith(head)
    assert text.count("Yes.") == 6 and text.count("This is page") == 6
    assert "\n\n\n" not in text
    assert repaired == {"boilerplate_lines": 1}
    assert drop_boilerplate("\n\n".join(pages[:4]), 5, repaired).count(head) == 4


@given(st.lists(st.sampled_from(["", "a", "x" * 30, "y" * 30]), max_size=20), st.integers(1, 4))
def test_dropping_boilerplate_loses_copies_alone(lines: list[str], often: int) -> None:
    before = clean("\n".join(lines))
    after = drop_boilerplate(before, often, Counter())
    assert set(before.split("\n")) - {""} == set(after.split("\n")) - {""}
    assert clean(after) == after


def test_a_long_text_is_joined_in_linear_time() -> None:
    """A search of the whole text for every hyphen, or inside every word, would take minutes."""
    count = 60_000
    broken = "\n".join(f"wo{'x' * (n % 7)}-\nrd{'y' * (n % 5)}" for n in range(count))
    joined = join_hyphens(f"wo-rd {broken}", Counter())
    assert joined.count("-") == 1 + sum(n % 35 == 0 for n in range(count))
    letters = "a" * 200_000
    assert join_hyphens(letters, Counter()) == letters
