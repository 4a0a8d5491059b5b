"""Words of scripts without spaces: found by ICU, and nothing else is touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.text.scripts import SPACELESS_CHARACTER
from data_prep.text.segmentation import count_words, separate_words, word_bounds


@pytest.mark.parametrize(
    ("text", "separated"),
    [
        ("我们今天去北京大学参观。", "我们 今天 去 北京 大学 参观 。"),
        ("私は東京で日本語を勉強する", "私 は 東京 で 日本語 を 勉強 する"),
        ("วันนี้อากาศดีมาก", "วัน นี้ อากาศ ดี มาก"),
        ("ສະບາຍດີປະເທດລາວ", "ສະບາຍດີ ປະເທດ ລາວ"),
        ("ភាសាខ្មែរជាភាសា", "ភាសាខ្មែរ ជា ភាសា"),
        ("ဒီနေ့ရာသီဥတုကောင်းတယ်", "ဒီ နေ့ ရာသီဥတု ကောင်း တယ်"),
        ("价格3.14元 well-known词", "价格 3.14 元 well-known 词"),
        ("𠀀𠀁人々", "𠀀 𠀁 人々"),  # two code units each in ICU's own offsets
        ("Don't panic  naïve हिन्दी", "Don't panic  naïve हिन्दी"),
        ("", ""),
    ],
)
def test_words_are_separated_where_the_script_does_not(text: str, separated: str) -> None:
    assert separate_words(text) == separated
    assert sum(map(count_words, text.split())) == len(separated.split())


@given(
    st.text(st.one_of(st.sampled_from("我们今天วันนี้ဒီនេះ 。，.a1-'"), st.characters(codec="utf-8")))
)
def test_only_spaces_beside_such_characters_are_added(text: str) -> None:
    separated = separate_words(text)
    assert separated.replace(" ", "") == text.replace(" ", "")
    if not SPACELESS_CHARACTER.search(text):
        assert separated == text
    for run in text.split():
        assert word_bounds(run) == sorted(set(word_bounds(run)))
        assert all(SPACELESS_CHARACTER.search(run[at - 1 : at + 1]) for at in word_bounds(run))
