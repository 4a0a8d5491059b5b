"""Each filter measures what it says, and is counted by its own name."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.config import CorpusConfig
from data_prep.errors import UsageError
from data_prep.text.filters import (
    RUN_WORDS,
    first_words,
    is_repetitive,
    letter_share,
    reason_to_drop,
    repeated_share,
)


@given(st.text(min_size=1))
def test_letter_share_counts_letters(text: str) -> None:
    text = text.encode(errors="ignore").decode()
    if text:
        assert letter_share(text) == sum(map(str.isalpha, text)) / len(text)


def test_each_filter_has_its_name() -> None:
    config = CorpusConfig()
    assert reason_to_drop("", config) == "empty"
    assert reason_to_drop("short", config) == "min_characters"
    assert reason_to_drop("1234567890 1234567890 1234567890", config) == "min_letters"
    assert reason_to_drop("A sentence of ordinary words.", config) is None
    assert reason_to_drop("buy it now, " * 50, config) == "max_repetition"
    config = CorpusConfig(max_characters=29)
    assert reason_to_drop("A sentence of ordinary words.", config) is None
    assert reason_to_drop("A sentence of ordinary words!!", config) == "max_characters"
    with pytest.raises(UsageError, match=r"corpus\.max_characters=9: corpus\.min_characters=20"):
        CorpusConfig(max_characters=9).check()


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_repetition_counts_runs_seen_before(words: list[str]) -> None:
    runs = [tuple(words[n : n + RUN_WORDS]) for n in range(len(words) - RUN_WORDS + 1)]
    expected = 1 - len(set(runs)) / len(runs) if runs else 0.0
    assert repeated_share(words) == pytest.approx(expected)


@given(st.lists(st.sampled_from(["one", "two", "three", "four"]), max_size=60), st.floats(0, 1))
def test_the_quick_test_never_spares_a_repetitive_text(words: list[str], most: float) -> None:
    assert is_repetitive(" ".join(words), most) == (repeated_share(words) > most)


def test_ordinary_text_is_not_repetitive_in_any_script() -> None:
    draw = random.Random(1)
    english = draw.choices(["the", "a", "of", "old", "river", "stones", "sang", "to", "in"], k=900)
    assert not is_repetitive(" ".join(english), 0.5)
    chinese = "".join(draw.choices("的一是不了人我在有他这中大来上国", k=3000))
    assert first_words(chinese, 5000) == list(chinese)
    assert not is_repetitive(chinese, 0.5)
    assert is_repetitive("欢迎光临本店。" * 40, 0.5)
