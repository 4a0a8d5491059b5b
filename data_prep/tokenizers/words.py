"""Tokenizers whose tokens are whole words, for ELMo.

With the kind `words`, a word is a run of letters and digits, and punctuation is split off. In
scripts without spaces, words are those of data_prep.text.segmentation: text must go through
`separate_words` before it goes to the library. Vocabularies without a word of these scripts, and
those of earlier versions, have no segmenter: each Chinese character is a word there. The kind
`spaced_words` is for text that is already tokenized: it splits at white space only.
Try it: split_like_elmo("Don't panic, it's 42.")
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer

from data_prep.text.segmentation import separate_words
from data_prep.tokenizers.characters import BEGIN_SENTENCE, END_SENTENCE
from data_prep.tokenizers.huggingface import Specials, finished
from data_prep.tokenizers.normalise import sentencepiece_normaliser

UNKNOWN = "<UNK>"
SPECIAL_WORDS = [BEGIN_SENTENCE, END_SENTENCE, UNKNOWN]
# There is no padding and no mask token; other code needs an id that belongs to no word.
SPECIALS = Specials(
    pad=END_SENTENCE, unk=UNKNOWN, cls=BEGIN_SENTENCE, sep=END_SENTENCE, mask=END_SENTENCE
)
# Letters and digits, with single marks between them (don't, 3.14, well-known). Any other character
# is a word by itself; so is a Chinese one, if no segmenter has separated the words.
LETTERS = r"[\p{L}\p{M}\p{N}_]+"
LETTERS_BUT_CHINESE = r"(?:(?!\p{Han})[\p{L}\p{M}\p{N}_])+"
WORD, WORD_BUT_CHINESE = (
    rf"{letters}(?:['’.,\-]{letters})*|\S" for letters in (LETTERS, LETTERS_BUT_CHINESE)
)
# Alternatives that match themselves and no white space, as `re.escape` writes them.
LITERALS = re.compile(r"(?:(?:\\[^\s\w]|[^\s\\|.^$*+?{}()\[\]])+\|)*")


def words_normaliser(lowercase: bool, strip_accents: bool, spaced: bool) -> Normalizer:
    """Return a normaliser to NFC and single spaces.

    With `spaced`, it turns `<S>` and `</S>` in the text into the unknown word, since they would
    otherwise be read as the beginning and end of a sentence.
    """
    usual = sentencepiece_normaliser(lowercase, strip_accents)
    if not spaced:
        return usual
    return normalizers.Sequence([usual, normalizers.Replace(Regex(r"(?<!\S)</?S>(?!\S)"), UNKNOWN)])


def words_cutter(
    spaced: bool, segmented: bool, symbols: Sequence[str] = ()
) -> pre_tokenizers.PreTokenizer:
    """Return the pre-tokenizer: at white space only if `spaced`, else also at punctuation.

    With `segmented`, it expects text from `separate_words`, and Chinese words stay whole.
    symbols: strings such as [EMAIL] that are words although they contain punctuation.
    """
    if spaced:
        return pre_tokenizers.WhitespaceSplit()
    word = WORD if segmented else WORD_BUT_CHINESE
    return pre_tokenizers.Split(Regex("|".join([*map(re.escape, symbols), word])), "removed", True)


@lru_cache
def _plain() -> Tokenizer:
    return from_words([], lowercase=False, strip_accents=False, spaced=False, segmented=True)


def split_like_elmo(text: str, library: Tokenizer | None = None) -> list[str]:
    """Return the words of a text, as split by `library`, a tokenizer of words.

    Without a library, punctuation is split off (the kind `words`).
    """
    finder = library or _plain()
    given = separate_words(text) if is_segmented(finder) else text
    normal = finder.normalizer.normalize_str(given) if finder.normalizer else given
    return [word for word, _ in finder.pre_tokenizer.pre_tokenize_str(normal)]


def is_segmented(library: Tokenizer) -> bool:
    """Return True if a tokenizer expects text from `separate_words`."""
    cutter = library.pre_tokenizer
    wanted = _state(words_cutter(spaced=False, segmented=True))
    return cutter is not None and _without_symbols(_state(cutter)) == wanted


def cuts_words(stated: dict[str, Any]) -> bool:
    """Return True if a tokenizer's JSON is that of `from_words`.

    Such a tokenizer has no rule that looks across white space.
    """
    cutter = _without_symbols(stated["pre_tokenizer"])
    return any(
        (stated["normalizer"], cutter)
        == (
            _state(words_normaliser(lowercase, strip_accents, spaced)),
            _state(words_cutter(spaced, segmented)),
        )
        for lowercase in (False, True)
        for strip_accents in (False, True)
        for spaced in (False, True)
        for segmented in (False, True)
    )


def _without_symbols(cutter: dict[str, Any]) -> dict[str, Any]:
    """Return a pre-tokenizer's JSON as `words_cutter` makes it without symbols."""
    pattern = cutter.get("pattern", {}).get("Regex", "")
    for word in (WORD, WORD_BUT_CHINESE):
        if pattern.endswith(word) and LITERALS.fullmatch(pattern.removesuffix(word)):
            return {**cutter, "pattern": {"Regex": word}}
    return cutter


def _state(part: Normalizer | pre_tokenizers.PreTokenizer) -> Any:
    return json.loads(part.__getstate__())


def from_words(
    words: list[str],
    lowercase: bool,
    strip_accents: bool,
    spaced: bool,
    segmented: bool = False,
    symbols: Sequence[str] = (),
) -> Tokenizer:
    """Return a tokenizer with the special words as first ids, then `words` in their order.

    segmented, symbols: see `words_cutter`.
    """
    ids = {word: number for number, word in enumerate([*SPECIAL_WORDS, *words])}
    tokenizer = Tokenizer(models.WordLevel(ids, UNKNOWN))
    tokenizer.normalizer = words_normaliser(lowercase, strip_accents, spaced)
    tokenizer.pre_tokenizer = words_cutter(spaced, segmented, symbols)
    return finished(tokenizer, SPECIALS)
