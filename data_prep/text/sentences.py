"""Clean text cut into paragraphs of sentences.

`rules` looks at every mark that may end a sentence and at the words around it: abbreviations,
initials, decimals, quotations and ellipses do not end one. `lines` takes lines as they are (one
sentence a line, as google-research/bert wants it); `none` keeps paragraphs whole.
"""

import re
from collections.abc import Callable
from itertools import pairwise

from data_prep.text.abbreviations import ENGLISH, Abbreviations

# A mark that may end a sentence, more of them ("?!", "...", ". . ."), what closes with it, and a
# space with no small letter after it; in scripts that write no spaces, the mark is enough. One
# leading class of characters for all of them keeps the search fast.
END = re.compile(
    r"[.!?…؟۔।॥։።။៕。！？｡](?:"
    r"(?<=[。！？｡])[。！？｡…]*[”’」』）》〉\"']*\s*"
    r"|(?: ?[.!?…])*+[\"'”’»›)\]]*(?: [\"'”’»)\]]+(?= ))? (?![a-z])"
    r")"
)
OPENING = "\"'“‘«‹„([{¿¡-–— "
INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]$")  # J, U.S, a.m
WORD = re.compile(r"\w+")

LONGEST_WRAPPED_LINE = 120  # text whose lines are all shorter may be wrapped by hand
SHORTEST_WRAPPED_LINE = 40
RAGGED = 10  # characters by which a wrapped line may fall short of the width


class Splitter:
    """Cuts clean text into paragraphs of sentences in one of three ways."""

    def __init__(self, how: str, abbreviations: Abbreviations = ENGLISH):
        ways = {"rules": self._by_rules, "lines": self._by_lines, "none": self._whole}
        self._split: Callable[[str], list[str]] = ways[how]
        self._unwraps = how == "rules"
        self._known = abbreviations
        self._longest = abbreviations.longest

    def paragraphs(self, text: str) -> list[list[str]]:
        """The paragraphs of a clean text, each a list of sentences."""
        if self._unwraps and "\n" in text:
            text = unwrap(text)
        split = self._split
        return [split(paragraph) for paragraph in text.split("\n\n") if paragraph]

    def sentences(self, line: str) -> list[str]:
        """The sentences of one line of clean text, by the rules."""
        found = []
        start = 0
        for match in END.finditer(line):
            mark, end = match.span()
            if end < len(line) and self._ends_sentence(line, start, mark, end):
                found.append(line[start:end].rstrip())
                start = end
        found.append(line[start:])
        return found

    def _by_lines(self, paragraph: str) -> list[str]:
        return paragraph.split("\n")

    def _whole(self, paragraph: str) -> list[str]:
        return [paragraph.replace("\n", " ")]

    def _by_rules(self, paragraph: str) -> list[str]:
        if "\n" not in paragraph:
            return self.sentences(paragraph)
        return [sentence for line in paragraph.split("\n") for sentence in self.sentences(line)]

    def _ends_sentence(self, line: str, start: int, mark: int, after: int) -> bool:
        """Whether the mark at `mark` ends the sentence from `start`; `after` is what follows."""
        follows = line[after]
        if not follows.isupper():
            if follows in OPENING:
                follows = line[after : after + 4].lstrip(OPENING)[:1] or follows
            if follows.islower():
                return False
        if line[mark] != "." or line[mark + 1] == ".":
            return True
        word = line[line.rfind(" ", start, mark) + 1 or start : mark].lstrip(OPENING)
        if len(word) > self._longest and "." not in word:
            return True
        folded = word.lower()
        known = self._known
        if folded in known.inside or (folded in known.before_numbers and follows.isdigit()):
            return False
        if word.isdigit():  # "1. First point", "am 3. Oktober"
            is_ordinal = _next_word_in(known.after_ordinals, line, after)
            return mark - start > len(word) and not is_ordinal
        may_be_initials = len(word) == 1 or "." in word  # worth the pattern
        if folded in known.undecided or (may_be_initials and INITIALS.match(word)):
            return _next_word_in(known.first_words, line, after)
        return True


def _next_word_in(words: frozenset[str], line: str, after: int) -> bool:
    next_word = WORD.search(line, after)
    if next_word is None or next_word[0] not in words:
        return False
    end = next_word.end()  # "A" starts a sentence, "A." is one more initial
    return len(next_word[0]) > 1 or line[end : end + 1] != "."


ENGLISH_RULES = Splitter("rules")


def split_sentences(line: str) -> list[str]:
    """The sentences of one line of English."""
    return ENGLISH_RULES.sentences(line)


def unwrap(text: str) -> str:
    """Join lines that were broken only because the next word did not fit.

    Where every line is short and this break left no room for the word after it, the break means
    nothing; all other breaks stay, such as those after headings and in lists.
    """
    lines = text.split("\n")
    width = max(map(len, lines))
    if not SHORTEST_WRAPPED_LINE <= width <= LONGEST_WRAPPED_LINE:
        return text
    joined = [lines[0]]
    for before, line in pairwise(lines):
        room = width - RAGGED - len(before)
        if before and line and len(line.split(" ", 1)[0]) >= room:
            joined[-1] += f" {line}"
        else:
            joined.append(line)
    return "\n".join(joined)
