"""Where a word occurs: in a file of sentences, labelled or not, or in a run's document shards.

Words are compared, not characters: case does not matter and punctuation stands apart, so `bank` is
in "Bank's" and not in "embankment". Several words in a row, as in `New York`, are found too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from data_prep.corpus.shard_format import ShardPart, parts, read_sections
from data_prep.errors import SesameError, UsageError
from data_prep.text.words import TextWords, split_words
from pipeline.tasks.examples import read_lines

REACH = 100  # words kept on either side
SPLITS = ("heldout", "train")  # text that was never trained on comes first
MOST_PARTS = 64  # of a split are read, 4 MB each
GATHERED = 8  # times as many are found as are drawn, where there are so many
SEED = 0

Target = tuple[str, ...]


@dataclass(frozen=True)
class Occurrence:
    """A word in a sentence."""

    words: TextWords  # of the sentence
    begin: int  # where the word is among them
    end: int
    text: str  # the sentence as it stands, the word marked »so«
    place: str  # line of the file, or document and line
    label: str | None = None

    def within(self, reach: int) -> "Occurrence":
        """The same with no more than so many words on either side."""
        first = max(0, self.begin - reach)
        kept = self.words[first : self.end + reach]
        return replace(self, words=kept, begin=self.begin - first, end=self.end - first)


def read_occurrences(path: Path, word: str, most: int | None = None) -> list[Occurrence]:
    """Those in a file with a sentence a line, or a sentence, a tab and its label.

    Where there are more than `most`, so many are drawn by chance, always the same.
    """
    target = _target(word)
    found: list[Occurrence] = []
    columns = 0  # the first line tells
    for number, line in read_lines(path):
        if not line.strip():
            continue
        sentence, *others = cells = [cell.strip() for cell in line.split("\t")]
        columns = columns or len(cells)
        if len(cells) != columns or columns > 2 or not all(cells):
            raise SesameError(
                f"{path}:{number}: not as the lines before it, or of more than two cells; give a "
                "sentence a line, or a sentence, one tab and its label on every line"
            )
        label = others[0] if others else None
        found += _occurrences(sentence, target, f"line {number}", label)
    return _draw(found, len(found) if most is None else most, np.random.default_rng(SEED))


def corpus_occurrences(shards: Path, word: str, most: int) -> list[Occurrence]:
    """At most so many of a corpus, the held-out ones first; drawn by chance, always the same."""
    target = _target(word)
    rng = np.random.default_rng(SEED)
    drawn: list[Occurrence] = []
    for split in SPLITS:
        room = most - len(drawn)
        if room:
            found = _gather(parts(shards, split), target, rng, GATHERED * room)
            drawn += _draw(list(found), room, rng)
    return drawn


def _draw(found: list[Occurrence], most: int, rng: np.random.Generator) -> list[Occurrence]:
    """At most so many of those found, in their order."""
    return [found[number] for number in np.sort(rng.permutation(len(found))[:most])]


def _target(word: str) -> Target:
    words, _ = split_words(word.casefold())
    if not words:
        raise UsageError(f"word={word}: give a word, such as word=bank")
    return words


def _gather(
    pieces: Sequence[ShardPart], target: Target, rng: np.random.Generator, enough: int
) -> Iterator[Occurrence]:
    """Occurrences of pieces in a random order, until there are enough."""
    count = 0
    for number in rng.permutation(len(pieces))[:MOST_PARTS]:
        piece = pieces[number]
        for section in read_sections(piece.path, piece.start, piece.end):
            for line, sentence in enumerate(section.sentences, start=1):
                if target[0] in sentence.casefold():
                    place = f"document {section.document}, part {section.section}, line {line}"
                    for found in _occurrences(sentence, target, place, None):
                        count += 1
                        yield found
        if count >= enough:
            return


def _occurrences(
    sentence: str, target: Target, place: str, label: str | None
) -> Iterator[Occurrence]:
    words = TextWords.of(sentence)
    spans = words.characters
    folded = [word.casefold() for word in words]
    for begin in range(len(words) - len(target) + 1):
        end = begin + len(target)
        if tuple(folded[begin:end]) != target:
            continue
        first, last = max(0, begin - REACH), min(len(words), end + REACH) - 1
        cuts = (spans[first, 0], spans[begin, 0], spans[end - 1, 1], spans[last, 1])
        before, word, after = (sentence[a:b] for a, b in pairwise(cuts))
        text = f"{before}»{word}«{after}"
        yield Occurrence(words, begin, end, text, place, label).within(REACH)
