"""Find the words of scripts without spaces: Chinese, Japanese, Thai, Lao, Khmer and Burmese.

The words are those of ICU (https://icu.unicode.org), through the package `icu4py`. One library with
dictionaries for all six: offline, deterministic, the same in every locale, part of the wheel and
pinned with it, under the Unicode licence. jieba, MeCab, PyThaiNLP and others know one language
each, and BudouX finds phrases. Text of other scripts is never given to ICU.
Try it: separate_words("我们今天去北京大学")
"""

from itertools import pairwise

from icu4py.breakers import WordBreaker

from data_prep.text.scripts import SPACELESS_CHARACTER

LOCALE = "root"  # the dictionaries depend on the script alone


def word_bounds(run: str) -> list[int]:
    """Return the places inside a run of text where one word ends and the next one starts.

    A run has no white space. Only places beside a character of a script without spaces are
    returned: in "价格3.14元" the number stays whole.
    """
    if not SPACELESS_CHARACTER.search(run):
        return []
    bounds = []
    place = 0
    for word in WordBreaker(run, LOCALE):
        if place and is_beside_spaceless(run, place):
            bounds.append(place)
        place += len(word)
    return bounds


def is_beside_spaceless(text: str, place: int) -> bool:
    """Return True if the character before or after a place belongs to a script without spaces."""
    return SPACELESS_CHARACTER.search(text, max(place - 1, 0), place + 1) is not None


def separate_words(text: str) -> str:
    """Return the text with a space between the words of scripts without spaces."""
    if not SPACELESS_CHARACTER.search(text):
        return text
    return " ".join(map(_separate_run, text.split(" ")))


def _separate_run(run: str) -> str:
    bounds = [0, *word_bounds(run), len(run)]
    return " ".join(run[start:end] for start, end in pairwise(bounds))


def count_words(run: str) -> int:
    """Return the number of words in a run of text without white space."""
    return 1 + len(word_bounds(run))
