"""Words as characters: AllenNLP's numbering, checked against a plain reading of its rules."""

import numpy as np
import pytest

from data_prep.tokenizers.characters import ALPHABET, Spelling, character_ids


def plain(word: str, size: int = 50) -> list[int]:
    """What AllenNLP's ELMoCharacterMapper documents: symbols plus one, the mask being 0."""
    if word in ("<S>", "</S>"):
        body = [256 if word == "<S>" else 257]
    else:
        body = list(word.encode("utf-8", "ignore")[: size - 2])
    symbols = [258, *body, 259]
    return [symbol + 1 for symbol in symbols + [260] * (size - len(symbols))]


WORDS = [
    "<S>",
    "the",
    "naïve",
    "東京",
    "a" * 47,
    "b" * 48,
    "c" * 60,
    "é" * 40,
    "",
    "</S>",
    "\ud800x",
]


@pytest.mark.parametrize("size", [50, 12, 3])
def test_characters_are_allennlps(size: int) -> None:
    found = character_ids(WORDS, size)
    assert found.dtype == np.uint16
    assert found.tolist() == [plain(word, size) for word in WORDS]
    assert found.max() < ALPHABET and found.min() > 0


def test_a_table_gives_words_in_any_order_and_number() -> None:
    chosen = np.array([9, 1, 1, 0, 6])
    assert np.array_equal(Spelling(WORDS).characters(chosen), character_ids(WORDS)[chosen])
    assert Spelling(WORDS).characters(np.zeros(0, int)).shape == (0, 50)
