"""Text cut into whole words, for ELMo: what finds them, and a tokenizer whose pieces they are.

A word of `words` is a run of letters and digits, punctuation stands apart; `spaced_words` takes
tokenised text, where white space alone tells. Try it: split_words("Don't panic, it's 42.")
"""

import json
from functools import lru_cache
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer

from data_prep.tokenizers.characters import BEGIN_SENTENCE, END_SENTENCE
from data_prep.tokenizers.huggingface import Specials, finished
from data_prep.tokenizers.normalise import sentencepiece_normaliser

UNKNOWN = "<UNK>"
SPECIAL_WORDS = [BEGIN_SENTENCE, END_SENTENCE, UNKNOWN]
# There is neither padding nor a mask; other code wants to know some id that is no word's.
SPECIALS = Specials(
    pad=END_SENTENCE, unk=UNKNOWN, cls=BEGIN_SENTENCE, sep=END_SENTENCE, mask=END_SENTENCE
)
# Letters and digits, also around single marks inside (don't, 3.14, well-known); any other character
# stands alone, and so does a Chinese one, since no space parts words there.
LETTERS = r"(?:(?!\p{Han})[\p{L}\p{M}\p{N}_])+"
WORD = rf"{LETTERS}(?:['’.,\-]{LETTERS})*|\S"


def words_normaliser(lowercase: bool, strip_accents: bool, spaced: bool) -> Normalizer:
    """Composed characters and single spaces; where only spaces cut words, a `<S>` that the text
    itself has is an unknown word, not the beginning of a sentence."""
    usual = sentencepiece_normaliser(lowercase, strip_accents)
    if not spaced:
        return usual
    return normalizers.Sequence([usual, normalizers.Replace(Regex(r"(?<!\S)</?S>(?!\S)"), UNKNOWN)])


def words_cutter(spaced: bool) -> pre_tokenizers.PreTokenizer:
    """What finds the words of normalised text: by white space alone, or with punctuation apart."""
    if spaced:
        return pre_tokenizers.WhitespaceSplit()
    return pre_tokenizers.Split(Regex(WORD), "removed", invert=True)


@lru_cache
def _plain() -> Tokenizer:
    return from_words([], lowercase=False, strip_accents=False, spaced=False)


def split_words(text: str, library: Tokenizer | None = None) -> list[str]:
    """The words of a text as a words tokenizer finds them, or else with punctuation apart."""
    finder = library or _plain()
    normal = finder.normalizer.normalize_str(text) if finder.normalizer else text
    return [word for word, _ in finder.pre_tokenizer.pre_tokenize_str(normal)]


def cuts_words(stated: dict[str, Any]) -> bool:
    """Whether a tokenizer, as its JSON states it, is one of `from_words`: it knows no rule that
    looks across white space."""
    return any(
        (stated["normalizer"], stated["pre_tokenizer"])
        == (
            _state(words_normaliser(lowercase, strip_accents, spaced)),
            _state(words_cutter(spaced)),
        )
        for lowercase in (False, True)
        for strip_accents in (False, True)
        for spaced in (False, True)
    )


def _state(part: Normalizer | pre_tokenizers.PreTokenizer) -> Any:
    return json.loads(part.__getstate__())


def from_words(words: list[str], lowercase: bool, strip_accents: bool, spaced: bool) -> Tokenizer:
    """A tokenizer whose ids are the special words and then these, in their order."""
    ids = {word: number for number, word in enumerate([*SPECIAL_WORDS, *words])}
    tokenizer = Tokenizer(models.WordLevel(ids, UNKNOWN))
    tokenizer.normalizer = words_normaliser(lowercase, strip_accents, spaced)
    tokenizer.pre_tokenizer = words_cutter(spaced)
    return finished(tokenizer, SPECIALS)
