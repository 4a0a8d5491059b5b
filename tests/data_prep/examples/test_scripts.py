"""Masks in every script, with every tokenizer and unit: one rate, and no example without one."""

from pathlib import Path

import numpy as np
import pytest

from data_prep.config import TokenizerConfig
from data_prep.examples.masking import MaskRule, Vocabulary, choose_masks
from data_prep.random import keys
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from tests.data_prep.tokenizer_texts import write_shards

# The letters of made-up words; Thai and Khmer with their vowel signs, which continue a letter.
LETTERS = {
    "latin": "abdefgiklmnoprstu",
    "cyrillic": "абвгдеиклмнопрсту",
    "chinese": "的一是在不了有和人这中大为上个国我以要他时来用们",
    "japanese": "のにはをたがでてとしれさあいうかきくけこ",
    "thai": "กขคงจชดตทนบปพมยรลวสหอาิีุูเแโ",
    "khmer": "កខគងចជដតនបពមយរលសហាិីុូេ",
    "burmese": "ကခဂငစဆဇညတထဒနပဖဘမယရလဝသာိီုူေ",
}
SPACED = ("latin", "cyrillic")


def clauses(script: str, count: int) -> list[str]:
    """Sentences of words that repeat, without spaces where the script has none."""
    rng = np.random.default_rng(1)
    letters = list(LETTERS[script])
    words = ["".join(rng.choice(letters, rng.integers(1, 5))) for _ in range(120)]
    space = " " if script in SPACED else ""
    return [space.join(rng.choice(words, rng.integers(8, 30))) for _ in range(count)]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "wordpiece"])
@pytest.mark.parametrize("script", LETTERS)
def test_every_script_has_the_same_share_of_masks(script: str, kind: str, tmp_path: Path) -> None:
    texts = clauses(script, 400)
    write_shards(tmp_path, "train", [texts[:200], texts[200:]])
    write_shards(tmp_path, "heldout", [texts[:3]])
    size = 60 if kind == "unigram" else 90
    if (script, kind) == ("chinese", "wordpiece"):
        size = 29  # every character is a word
    build_tokenizer(tmp_path, tmp_path, TokenizerConfig(kind, size, workers=1))
    tokenizer = Tokenizer.load(tmp_path)
    encoded = tokenizer.encode(texts)
    framed = [[tokenizer.cls, *encoded[n], tokenizer.sep] for n in range(len(texts))]
    tokens = np.concatenate([np.array(each, np.int64) for each in framed])
    offsets = np.cumsum([0, *map(len, framed)]).astype(np.int32)
    counts = {}
    for unit in ("token", "word", "span"):
        rule, vocabulary = MaskRule(unit=unit), Vocabulary.of(tokenizer)
        masks = choose_masks(tokens, offsets, keys(3, np.arange(len(texts))), vocabulary, rule)
        counts[unit] = np.diff(masks.target_examples)
        maskable = np.add.reduceat(~vocabulary.special[tokens], offsets[:-1])
        assert (counts[unit][maskable > 0] > 0).all()
    # Word and span stop before a word that does not fit.
    for unit in ("word", "span"):
        assert 0.99 * counts["token"].mean() < counts[unit].mean() <= counts["token"].mean()
