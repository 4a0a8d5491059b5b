"""Make tasks from the links of a MediaWiki dump: tag names, or classify one name or several.

A link with a capitalised text marks a name. Editors link a name only once per page, so all other
occurrences on the page are tagged as well. A sentence is kept only if every capitalised word is
explained: it is part of a name, or it stands first (the method of Nothman et al. 2013). The
examples of a page form a group, so that no page is in two splits.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from data_prep.reading.source_files import SourceFile
from data_prep.reading.wiki import Page, is_disambiguation, read_pages, read_siteinfo, to_prose
from data_prep.text.sentences import split_sentences
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile

KIND = "NAME"
ONE, SEVERAL = "one", "several"  # labels for task.kind=classify: names in the sentence
ARTICLES = 0  # the namespace of articles
OPEN, CLOSE = "\ue000", "\ue001"  # private-use characters, which prose does not contain
MARK = re.compile(f"[{OPEN}{CLOSE}]")
# Initials (U.S.), numbers, words with inner hyphens or apostrophes but without 's, single marks.
WORD = re.compile(r"(?:[^\W\d_]\.){2,}|['’]s\b|\d[\d.,]*\d(?!\w)|\w+(?:['’-](?!s\b)\w+)*|[^\w\s]")
OPENING = frozenset("\"'“”‘(«:")  # a capital after one of these need not begin a name

Name = tuple[str, ...]


@dataclass(frozen=True)
class Sentence:
    """A sentence's words, and its links as (first word, one past the last)."""

    words: tuple[str, ...]
    links: list[tuple[int, int]]


def read_wiki_links(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield the usable sentences of all articles; `line` is the page's number in the dump."""
    wiki = read_siteinfo(SourceFile(file.path, file.path.name))
    for number, page in enumerate(read_pages(file.path), start=1):
        if page.namespace != ARTICLES or page.redirect or is_disambiguation(page):
            continue
        prose = to_prose(page.text, wiki, lambda target, label: f"{OPEN}{label}{CLOSE}")
        sentences = [s for text in prose.split("\n\n") for s in marked_sentences(text)]
        for words, tags in tag_page(sentences, page):
            if task.kind == "classify":
                names = sum(tag.startswith("B-") for tag in tags)
                gold = SEVERAL if names > 1 else ONE
                yield Example((" ".join(words),), gold, str(page.id), number)
            else:
                yield Example(words, tags, str(page.id), number)


def marked_sentences(paragraph: str) -> Iterator[Sentence]:
    """Yield the sentences of a paragraph whose links are marked by OPEN and CLOSE."""
    text, links = _unmark(paragraph)
    end = 0
    for sentence in split_sentences(text):
        start = text.index(sentence, end)
        end = start + len(sentence)
        words = list(WORD.finditer(text, start, end))
        places = [word.start() for word in words]
        runs = [(bisect_left(places, first), bisect_left(places, last)) for first, last in links]
        yield Sentence(tuple(word[0] for word in words), [(a, b) for a, b in runs if a < b])


def _unmark(paragraph: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without marks, and the character ranges they enclosed."""
    parts = MARK.split(paragraph)
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    marks = MARK.findall(paragraph)
    links = [
        (ends[i + 1], ends[i + 2])
        for i, (mark, following) in enumerate(pairwise(marks))
        if (mark, following) == (OPEN, CLOSE)
    ]
    return "".join(parts), links


def tag_page(sentences: Sequence[Sentence], page: Page) -> Iterator[tuple[Name, tuple[str, ...]]]:
    """Yield (words, tags) of the page's sentences that have a name and no unexplained capital."""
    common = {word for sentence in sentences for word in sentence.words if word.islower()}
    names = {
        sentence.words[start:end]
        for sentence in sentences
        for start, end in sentence.links
        if _is_name(sentence.words[start:end], start == 0)
    }
    title = tuple(WORD.findall(re.sub(r"\s*\(.*\)$", "", page.title)))
    if title and title[0][0].isupper() and title[0].lower() not in common:
        names.add(title)
    longest_first = defaultdict(list)
    for name in sorted(names, key=len, reverse=True):
        longest_first[name[0]].append(name)
    for sentence in sentences:
        tags = _tag(sentence.words, longest_first)
        if any(tag != "O" for tag in tags) and _explained(sentence.words, tags, common):
            yield sentence.words, tuple(tags)


def _is_name(words: Name, starts_sentence: bool) -> bool:
    capitals = [word for word in words if word[0].isupper()]
    return words[0][0].isupper() and (not starts_sentence or len(capitals) > 1)


def _tag(words: Name, longest_first: dict[str, list[Name]]) -> list[str]:
    """Return BIO tags, taking the longest name at each word from left to right.

    `longest_first`: names by their first word, longest first.
    """
    tags: list[str] = []
    while len(tags) < len(words):
        start = len(tags)
        candidates = longest_first.get(words[start], [])
        found = next((n for n in candidates if words[start : start + len(n)] == n), None)
        tags += [f"B-{KIND}", *[f"I-{KIND}"] * (len(found) - 1)] if found else ["O"]
    return tags


def _explained(words: Name, tags: Sequence[str], common: set[str]) -> bool:
    """Return True if every capitalised word outside names stands first and is common.

    Common words occur in lower case on the page.
    """
    for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
        if tag != "O" or not word[0].isupper():
            continue
        first = place == 0 or words[place - 1] in OPENING
        if not first or word.lower() not in common:
            return False
    return True
