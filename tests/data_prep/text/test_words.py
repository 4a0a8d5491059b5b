"""Words are cut as BERT cuts them, and their characters lead back to the text."""

import pytest
from tokenizers import pre_tokenizers

from data_prep.text.words import ADDRESSES, TextWords, split_like_bert

TEXTS = [
    "The U.S. (1776–), led by J. Adams's men; cost: €5.50/£4 — 100% «sure»!",
    "  tabs\tand\nlines\u00a0here  ",
    "中文 and 日本語テキスト, mixed中文words",
    "naïve café n\u0303 e\u0301 _under_score_ a^b `x` ~$+<=>|",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_words_are_those_of_berts_own_cut(text: str) -> None:
    words, characters = split_like_bert(text)
    assert [text[a:b] for a, b in characters] == list(words)
    # Chinese characters are set apart by BERT's normaliser, before its words are cut.
    spaced = "".join(f" {c} " if "\u4e00" <= c <= "\u9fff" else c for c in text)
    reference = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(spaced)
    assert list(words) == [word for word, _ in reference]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(@anna_ek), #lund!", ["(", "@anna_ek", ")", ",", "#lund", "!"]),
        ("see https://x.se/?q=1. www.x.se/)", ["see", "https://x.se/?q=1", ".", "www.x.se/", ")"]),
        ("anna.ek@x-y.se, a@b", ["anna.ek@x-y.se", ",", "a", "@", "b"]),
        ("# 1 #北京# a#b", ["#", "1", "#", "北", "京", "#", "a", "#", "b"]),
        ("Anna's York-based", ["Anna", "'", "s", "York", "-", "based"]),
    ],
)
def test_addresses_and_names_of_users_may_be_whole(text: str, words: list[str]) -> None:
    whole = TextWords.of(text, ADDRESSES)
    assert list(whole) == words
    assert [text[a:b] for a, b in whole.own_characters] == words
    assert whole != TextWords.of(text)  # as keys of stored states


@pytest.mark.parametrize("text", TEXTS)
def test_words_of_a_text_know_their_text(text: str) -> None:
    words, characters = split_like_bert(text)
    whole = TextWords.of(text)
    assert tuple(whole) == words and len(whole) == len(words)
    for first in range(len(words)):
        part = whole[first : first + 3][:2]
        assert tuple(part) == words[first : first + 2] and part.text == text
        assert part.own_characters.tolist() == characters[first : first + 2].tolist()
        assert part[0] == whole[first] == words[first]
        assert part == TextWords.of(text)[first : first + 2] != whole[first:first]
    joined = TextWords.joined(words)
    assert joined.text == " ".join(words) and tuple(joined) == words
    assert [joined.text[a:b] for a, b in joined.own_characters] == list(words)
