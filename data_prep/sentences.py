"""Clean text cut into paragraphs of sentences.

`rules` looks at every mark that may end a sentence and at the words around it: abbreviations,
initials, decimals, quotations and ellipses do not end one. `lines` takes lines as they are (one
sentence a line, as google-research/bert wants it); `none` keeps paragraphs whole.
"""

import re
from collections.abc import Callable
from itertools import pairwise

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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Never the end of a sentence: a name or a number follows.
TITLES = _words("""
    mr mrs ms mx messrs mme mlle dr drs prof rev fr hon sir st ste mt ft gen lt col capt cpt maj
    sgt cmdr adm gov sen rep pres supt det insp vs v cf viz e.g i.e eg ie ca approx esp al ed eds
    jan feb mar apr jun jul aug sept sep oct nov dec mon tue tues wed thu thurs fri
""")
# Not the end where a number follows: "No. 5", "pp. 3–7".
NUMBERED = _words("no nos p pp vol vols fig figs eq eqs sec ch chap art op pt par ver")
# May end a sentence or stand inside one; a usual first word after them decides.
UNDECIDED = _words("inc ltd co corp bros jr sr esq etc ave blvd rd dept univ ph.d m.d b.a")
FIRST_WORDS = _words("""
    The A An This That These Those There Then It Its He His She Her They Their We Our You Your I
    My In On At As By For From With After Before During When While Where If Although Though Because
    Since However But And So Or Yet Not No Some Many Most Several One Two All Each Both Other
    Another Such Also According Under Until What Who Why How Here Now Today Later Meanwhile Despite
""")
INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]$")  # J, U.S, a.m
LONGEST_ABBREVIATION = max(map(len, TITLES | NUMBERED | UNDECIDED))
WORD = re.compile(r"\w+")

LONGEST_WRAPPED_LINE = 120  # text whose lines are all shorter may be wrapped by hand
SHORTEST_WRAPPED_LINE = 40
RAGGED = 10  # characters by which a wrapped line may fall short of the width


def split_text(text: str, how: str) -> list[list[str]]:
    """The paragraphs of a clean text, each a list of sentences, by rules, lines or none."""
    split: Callable[[str], list[str]] = {"rules": _by_rules, "lines": _by_lines, "none": _whole}[
        how
    ]
    if how == "rules" and "\n" in text:
        text = unwrap(text)
    return [split(paragraph) for paragraph in text.split("\n\n") if paragraph]


def _by_lines(paragraph: str) -> list[str]:
    return paragraph.split("\n")


def _whole(paragraph: str) -> list[str]:
    return [paragraph.replace("\n", " ")]


def _by_rules(paragraph: str) -> list[str]:
    return [sentence for line in paragraph.split("\n") for sentence in split_sentences(line)]


def split_sentences(line: str) -> list[str]:
    """The sentences of one line of clean text."""
    sentences = []
    start = 0
    for match in END.finditer(line):
        end = match.end()
        if end < len(line) and _ends_sentence(line, start, match.start(), end):
            sentences.append(line[start:end].rstrip())
            start = end
    sentences.append(line[start:])
    return sentences


def _ends_sentence(line: str, start: int, mark: int, after: int) -> bool:
    """Whether the mark at `mark` ends the sentence begun at `start`; `after` is what follows."""
    follows = line[after]
    if follows in OPENING:
        follows = line[after : after + 4].lstrip(OPENING)[:1] or follows
    if follows.islower():
        return False
    if line[mark] != "." or line[mark + 1] == ".":
        return True
    word = line[max(line.rfind(" ", start, mark) + 1, start) : mark].lstrip(OPENING)
    if len(word) > LONGEST_ABBREVIATION and "." not in word:
        return True
    folded = word.lower()
    if folded in TITLES:
        return False
    if folded in NUMBERED:
        return not follows.isdigit()
    if word.isdigit():  # "1. First point"
        return mark - start > len(word)
    if folded in UNDECIDED or INITIALS.match(word):
        next_word = WORD.search(line, after)
        return next_word is not None and next_word[0] in FIRST_WORDS
    return True


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
