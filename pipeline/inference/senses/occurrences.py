"""Find the occurrences of a word in a file of sentences or in a run's document shards.

Whole words are compared, without case and punctuation: `bank` is found in "Bank's" but not in
"embankment". A phrase such as `New York` is found too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from data_prep.corpus.shard_format import ShardPart, parts, read_sections
from data_prep.errors import SesameError, UsageError
from data_prep.text.words import TextWords, split_like_bert
from pipeline.tasks.examples import read_lines

REACH = 100  # words of context kept on either side
SPLITS = ("heldout", "train")  # held-out text first
MOST_PARTS = 64  # maximum parts read per split, 4 MB each
GATHERED = 8  # find this many times the wanted number, then draw a sample
SEED = 0

Target = tuple[str, ...]


@dataclass(frozen=True)
class Occurrence:
    """A word in a sentence."""

    words: TextWords  # words of the sentence
    begin: int  # index of the occurrence's first word
    end: int
    text: str  # the original sentence, with the word marked »so«
    place: str  # line of the file, or document and line
    label: str | None = None

    def within(self, reach: int) -> "Occurrence":
        """Return the same occurrence with at most `reach` words on either side."""
        first = max(0, self.begin - reach)
        kept = self.words[first : self.end + reach]
        return replace(self, words=kept, begin=self.begin - first, end=self.end - first)


def read_occurrences(path: Path, word: str, most: int | None = None) -> list[Occurrence]:
    """Return the occurrences in a file: per line a sentence, or a sentence, a tab and a label.

    If there are more than `most`, a fixed random sample of this size is drawn.
    """
    target = _target(word)
    found: list[Occurrence] = []
    columns = 0  # set by the first line
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
    """Return at most `most` occurrences in a corpus, held-out text first; a fixed random sample."""
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
    """Draw at most `most` occurrences, in their order."""
    return [found[number] for number in np.sort(rng.permutation(len(found))[:most])]


def _target(word: str) -> Target:
    words, _ = split_like_bert(word.casefold())
    if not words:
        raise UsageError(f"word={word}: give a word, such as word=bank")
    return words


def _gather(
    pieces: Sequence[ShardPart], target: Target, rng: np.random.Generator, enough: int
) -> Iterator[Occurrence]:
    """Read parts in random order until there are enough occurrences."""
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
