"""Split clean text into paragraphs of sentences.

`rules` tests every mark that may end a sentence and the words around it: abbreviations, initials,
decimals, quotations and ellipses do not end one. `lines` takes every line as a sentence (the input
format of google-research/bert). `none` keeps paragraphs whole.
"""

import re
from collections.abc import Callable
from itertools import pairwise

from data_prep.text.abbreviations import ENGLISH, Abbreviations
from data_prep.text.scripts import SPACELESS, SPACELESS_CHARACTER, SPACELESS_MARKS

# Full stops after which no space is needed: Chinese and Japanese, Indic (danda), Burmese, Khmer.
UNSPACED_MARKS = "。！？｡।॥။។៕"
# Latin, and with a space: Arabic, Urdu, Armenian, Ethiopic, Mongolian, Cree, Santali, Manipuri.
MARKS = ".!?…‼‽⁇⁈⁉؟۔։።፧᠃᙮᱾꯫" + UNSPACED_MARKS
GREEK_QUESTION = ";"  # NFC turns U+037E into it
# The quotes of many languages close with what opens them in English or French: „so“, »so«.
CLOSING = "\"'”’»›“‘«‹)\\]"
CLOSING_UNSPACED = "”’」』】〕）］｝》〉»)\"'"
EMOTICON = r"[:;]'?-?[()DPp]+"


def _end_pattern(marks: str) -> re.Pattern[str]:
    """Return the pattern of what may end a sentence.

    That is a mark, repeated marks ("?!", "...", ". . ."), closing quotes or brackets, an emoticon,
    and a space that is not followed by a lower-case letter. Some marks need no space; "!" and "?"
    need none before a script without spaces. A single leading character class keeps the search
    fast.
    """
    return re.compile(
        rf"[{marks}](?:"
        rf"(?<=[{UNSPACED_MARKS}])[{UNSPACED_MARKS}…]*[{CLOSING_UNSPACED}]*\s*"
        rf"|(?: ?[.!?…])*+[{CLOSING}]*(?: [\"'”’»)\]]+(?= )| {EMOTICON}(?= ))? (?![a-z])"
        rf"|(?<=[!?])[!?]*+[{CLOSING_UNSPACED}]*(?=[{SPACELESS}])"
        r")"
    )


END = _end_pattern(MARKS)
GREEK_END = _end_pattern(MARKS + GREEK_QUESTION)
OPENING = "\"'“‘«‹„([{¿¡-–— "
NEVER_FIRST = ",;:)]"
JAPANESE_QUOTATION = re.compile(r"[」』][とっ]")  # 「…。」と言った: the sentence goes on
INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]$")  # J, U.S, a.m
WORD = re.compile(r"\w+")
AFTER_DAY = re.compile(r"\. \d{1,2}\. \d")  # 5. 10. 2020
BEFORE_MONTH_END = re.compile(r"\b\d{1,2}\. \d{1,2}$")
# A line break between two characters of scripts without spaces, or their punctuation.
SPACELESS_JOIN = re.compile(
    f"(?<=[{SPACELESS}{SPACELESS_MARKS}])\n(?=[{SPACELESS}{SPACELESS_MARKS}])"
)

LONGEST_WRAPPED_LINE = 120  # text whose longest line is between these two may be hard-wrapped
SHORTEST_WRAPPED_LINE = 40
RAGGED = 10  # characters by which a wrapped line may be shorter than the width allows


class Splitter:
    """Splits clean text into paragraphs of sentences; `how` is rules, lines or none."""

    def __init__(
        self, how: str, abbreviations: Abbreviations = ENGLISH, language: str | None = None
    ):
        ways = {"rules": self._by_rules, "lines": self._by_lines, "none": self._whole}
        self._split: Callable[[str], list[str]] = ways[how]
        self._unwraps = how == "rules"
        self._known = abbreviations
        self._abbreviations = abbreviations.every
        self._end = GREEK_END if language == "el" else END

    def paragraphs(self, text: str) -> list[list[str]]:
        """Return the paragraphs of a clean text, each as a list of sentences."""
        if self._unwraps and "\n" in text:
            text = unwrap(text)
        split = self._split
        return [split(paragraph) for paragraph in text.split("\n\n") if paragraph]

    def sentences(self, line: str) -> list[str]:
        """Split one line of clean text into sentences, by the rules."""
        found = []
        start = 0
        for match in self._end.finditer(line):
            mark, end = match.span()
            if end < len(line) and self._ends_sentence(line, start, mark, end):
                found.append(line[start:end].rstrip())
                start = end
        found.append(line[start:])
        return found

    def _by_lines(self, paragraph: str) -> list[str]:
        return paragraph.split("\n")

    def _whole(self, paragraph: str) -> list[str]:
        return [join_lines(paragraph.split("\n"))]

    def _by_rules(self, paragraph: str) -> list[str]:
        if self._end.search(paragraph) is None:
            return paragraph.split("\n")
        if "\n" not in paragraph:
            return self.sentences(paragraph)
        return [sentence for line in paragraph.split("\n") for sentence in self.sentences(line)]

    def _ends_sentence(self, line: str, start: int, mark: int, after: int) -> bool:
        """Return True if the mark at `mark` ends the sentence that begins at `start`.

        `after` is the position of the text that follows the mark.
        """
        follows = line[after]
        if not follows.isupper():
            if follows in OPENING:
                follows = line[after : after + 4].lstrip(OPENING)[:1] or follows
            # Georgian letters are lower-case, but stand at the beginning of sentences too.
            if follows in NEVER_FIRST or (follows.islower() and follows.title() != follows):
                return False
            if follows in "とっ" and JAPANESE_QUOTATION.match(line, after - 1):
                return False
        if line[mark] != "." or line[mark + 1] == ".":
            return True
        word = line[line.rfind(" ", start, mark) + 1 or start : mark].lstrip(OPENING)
        known = self._known
        folded = word.lower()
        may_be_initials = len(word) == 1 or "." in word  # cheap test before the pattern
        if not (may_be_initials or folded in self._abbreviations or word.isdigit()):
            return True
        if folded in known.inside or (folded in known.before_numbers and follows.isdigit()):
            return False
        if word.isdigit():  # "1. First point", "am 3. Oktober"
            if follows.isdigit() and _is_in_date(line, mark):
                return False
            is_ordinal = _next_word_in(known.after_ordinals, line, after)
            return mark - start > len(word) and not is_ordinal
        if folded in known.undecided or (may_be_initials and INITIALS.match(word)):
            return _next_word_in(known.first_words, line, after)
        return True


def _is_in_date(line: str, mark: int) -> bool:
    """Return True if the full stop at `mark` follows the day or month of a date: 5. 10. 2020."""
    return bool(
        AFTER_DAY.match(line, mark) or BEFORE_MONTH_END.search(line[max(mark - 7, 0) : mark])
    )


def _next_word_in(words: frozenset[str], line: str, after: int) -> bool:
    next_word = WORD.search(line, after)
    if next_word is None or next_word[0] not in words:
        return False
    end = next_word.end()  # "A" may start a sentence, "A." is another initial
    return len(next_word[0]) > 1 or line[end : end + 1] != "."


ENGLISH_RULES = Splitter("rules")


def split_sentences(line: str) -> list[str]:
    """Split one line of English into sentences."""
    return ENGLISH_RULES.sentences(line)


def unwrap(text: str) -> str:
    """Join the lines of hard-wrapped text.

    A line break is removed if the next word would not have fitted on the line before. All other
    breaks stay, such as those after headings and in lists. Text with very short or long lines is
    returned unchanged.
    """
    lines = text.split("\n")
    width = max(map(len, lines))
    if not SHORTEST_WRAPPED_LINE <= width <= LONGEST_WRAPPED_LINE:
        return text
    runs = [[lines[0]]]
    for before, line in pairwise(lines):
        room = width - RAGGED - len(before)
        if before and line and _first_word_length(line) >= room:
            runs[-1].append(line)
        else:
            runs.append([line])
    return "\n".join(map(join_lines, runs))


def _first_word_length(line: str) -> int:
    """Return the length of what must stay on one line; scripts without spaces break anywhere."""
    return 1 if SPACELESS_CHARACTER.match(line) else len(line.split(" ", 1)[0])


def join_lines(lines: list[str]) -> str:
    """Join the lines of one paragraph, with a space only where the script separates words by it."""
    if len(lines) == 1:
        return lines[0]
    return SPACELESS_JOIN.sub("", "\n".join(lines)).replace("\n", " ")
