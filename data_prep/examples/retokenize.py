"""Proof that rows hold what the tokenizer library itself makes of the source sentences.

A sample of sections is read again from the document shards and tokenized by the library's plain
`encode_batch`; every segment that rows take from them must be a run of these ids.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers

from data_prep.chunks import ChunkStore, token_dtype
from data_prep.counter import key, keys
from data_prep.examples.rows import read_sections_of_examples
from data_prep.examples.validate import violation
from data_prep.shards import ShardPart, read_sections

SHARE_OF_PARTS, MOST_PARTS = 25, 40  # one part in 25, at least one and at most 40
PART_CHARACTERS = 100_000  # tokenized again of each, at least one section


@dataclass(frozen=True)
class Source:
    """Rows `first` to `end` (excluded) of a split: from which part, and kept in which folder."""

    part: ShardPart
    rows: Path
    first: int
    end: int


@dataclass
class Compared:
    """How much was compared."""

    sections: int = 0
    segments: int = 0


def check_sources(
    folder: Path, split: str, sources: list[Source], tokenizer_folder: Path, seed: int
) -> Compared:
    """Compare a sample of a split's segments with the library's ids of their sections."""
    store = ChunkStore(folder, split)
    library = tokenizers.Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    library.no_truncation()
    library.encode_special_tokens = True  # "[MASK]" in a text is text
    compared = Compared()
    sources = [source for source in sources if source.end > source.first]
    count = min(MOST_PARTS, 1 + len(sources) // SHARE_OF_PARTS, len(sources))
    for index in np.unique(np.linspace(0, len(sources) - 1, count).astype(int)):
        ids = _sample(sources[index].part, library, token_dtype(store.vocab_size), seed)
        compared.sections += len(ids)
        compared.segments += _compare(store, sources[index], ids)
    return compared


def _sample(
    part: ShardPart, library: tokenizers.Tokenizer, dtype: str, seed: int
) -> dict[int, bytes]:
    """The library's ids of some sections, chosen by chance, by their place in the part."""
    sections = list(read_sections(part.path, part.start, part.end))
    names = np.array([(section.document << 20) + section.section for section in sections])
    ids: dict[int, bytes] = {}
    characters = 0
    for place in np.argsort(keys(key(seed, "retokenize"), names)):
        sentences = sections[place].sentences
        encodings = library.encode_batch(sentences, add_special_tokens=False)
        ids[int(place)] = np.array([i for each in encodings for i in each.ids], dtype).tobytes()
        characters += sum(map(len, sentences))
        if characters >= PART_CHARACTERS:
            break
    return ids


def _compare(store: ChunkStore, source: Source, ids: dict[int, bytes]) -> int:
    """Look up every segment that this part's rows take from the sampled sections."""
    compared = before = 0
    section_of = read_sections_of_examples(source.rows)
    first = int(np.searchsorted(store.first_row, source.first, "right")) - 1
    last = int(np.searchsorted(store.first_row, source.end, "left"))
    for number in range(first, last):
        whole = store.read(number)
        start = max(source.first - int(store.first_row[number]), 0)
        chunk = whole.between(start, min(source.end - int(store.first_row[number]), whole.rows))
        sections = section_of[before : before + chunk.examples]
        before += chunk.examples
        for example in np.flatnonzero(np.isin(sections, list(ids))):
            begin, end = chunk.example_tokens[example : example + 2]
            middle = begin + int(chunk.second[example])
            segments = [chunk.tokens[begin + 1 : middle - 1]]
            if middle < end and chunk.documents[example, 0] == chunk.documents[example, 1]:
                segments.append(chunk.tokens[middle : end - 1])
            for segment in segments:
                if not _has(ids[int(sections[example])], segment.tobytes(), segment.itemsize):
                    row = start + int(np.searchsorted(chunk.row_examples, example, "right")) - 1
                    raise violation(
                        store, number, row,
                        "a segment is no run of the ids that the tokenizer library gives its "
                        f"section of document {chunk.documents[example, 0]}",
                    )  # fmt: skip
                compared += 1
    assert before == len(section_of), "the rows of a part are not where they should be"
    return compared


def _has(ids: bytes, segment: bytes, size: int) -> bool:
    """Whether ids of `size` bytes each hold a segment, at a whole id."""
    place = ids.find(segment)
    while place >= 0 and place % size:
        place = ids.find(segment, place + 1)
    return place >= 0
