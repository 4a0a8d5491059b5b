"""Check that the rows hold the ids that the tokenizer library gives for the source sentences.

A sample of sections is read again from the document shards and tokenized with the library's own
`encode_batch`. Every segment in the rows that comes from these sections must be a run of these ids.
For lossless tokenizers (unigram and BPE), decoding the ids must also return the sentence.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers

from data_prep.corpus.shard_format import ShardPart, read_sections, section_names
from data_prep.errors import SesameError
from data_prep.examples.chunks import ChunkStore, token_dtype
from data_prep.examples.rows import read_sections_of_examples
from data_prep.examples.validate import violation
from data_prep.random import key, keys
from data_prep.tokenizers import load_tokenizer

SHARE_OF_PARTS, MOST_PARTS = 25, 40  # one part in 25, at least one and at most 40
PART_CHARACTERS = 100_000  # tokenized again per part; at least one section
LOSSLESS = ("unigram", "bpe")
SPACE_MARK = "▁"  # stands for a space in tokens, so a text that contains it decodes differently


@dataclass(frozen=True)
class Source:
    """Rows [first, end) of a split: the part they were made from, and their rows folder."""

    part: ShardPart
    rows: Path
    first: int
    end: int


@dataclass
class Compared:
    """Counts of what was compared."""

    sections: int = 0
    segments: int = 0
    decoded: int = 0  # sentences


def check_sources(
    folder: Path, split: str, sources: list[Source], tokenizer_folder: Path, seed: int
) -> Compared:
    """Compare a sample of a split's segments with the library's ids of their sections.

    Raises SesameError, naming the row, at the first difference.
    """
    store = ChunkStore(folder, split)
    tokenizer = load_tokenizer(tokenizer_folder)
    library = tokenizers.Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    library.no_truncation()
    library.encode_special_tokens = True  # read "[MASK]" in a text as plain text
    unknown = tokenizer.unk if tokenizer.kind in LOSSLESS else None
    compared = Compared()
    sources = [source for source in sources if source.end > source.first]
    count = min(MOST_PARTS, 1 + len(sources) // SHARE_OF_PARTS, len(sources))
    for index in np.unique(np.linspace(0, len(sources) - 1, count).astype(int)):
        part = sources[index].part
        ids, texts = _sample(part, library, token_dtype(store.vocab_size), seed)
        compared.sections += len(ids)
        if unknown is not None:
            compared.decoded += _check_decoded(part, library, texts, unknown)
        compared.segments += _compare(store, sources[index], ids)
    return compared


def _sample(
    part: ShardPart, library: tokenizers.Tokenizer, dtype: str, seed: int
) -> tuple[dict[int, bytes], list[tuple[str, list[int]]]]:
    """Tokenize a random sample of a part's sections with the library.

    Returns the ids of each section as bytes, by its index in the part; and (sentence, ids) pairs.
    """
    sections = list(read_sections(part.path, part.start, part.end))
    names = np.array([section_names(each.document, each.section) for each in sections])
    ids: dict[int, bytes] = {}
    texts: list[tuple[str, list[int]]] = []
    characters = 0
    for place in np.argsort(keys(key(seed, "retokenize"), names)):
        sentences = sections[place].sentences
        encodings = library.encode_batch(sentences, add_special_tokens=False)
        ids[int(place)] = np.array([i for each in encodings for i in each.ids], dtype).tobytes()
        texts += [(text, each.ids) for text, each in zip(sentences, encodings, strict=True)]
        characters += sum(map(len, sentences))
        if characters >= PART_CHARACTERS:
            break
    return ids, texts


def _check_decoded(
    part: ShardPart,
    library: tokenizers.Tokenizer,
    texts: list[tuple[str, list[int]]],
    unknown: int,
) -> int:
    """Decode sentences without unknown tokens; return how many were compared.

    Raises SesameError if a decoded sentence differs in more than white space.
    """
    compared = 0
    for text, ids in texts:
        if unknown in ids or SPACE_MARK in text:
            continue
        expected = library.normalizer.normalize_str(text) if library.normalizer else text
        if _squeezed(library.decode(ids)) != _squeezed(expected):
            raise SesameError(
                f"{part.path}: a sentence after byte {part.start} differs when its tokens are "
                "decoded; the tokenizer loses text, so make it again"
            )
        compared += 1
    return compared


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _compare(store: ChunkStore, source: Source, ids: dict[int, bytes]) -> int:
    """Check every segment that this source's rows take from the sampled sections.

    Returns the number of segments compared.
    """
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
                        "a segment is not a run of the ids that the tokenizer library gives for "
                        f"its section of document {chunk.documents[example, 0]}",
                    )  # fmt: skip
                compared += 1
    assert before == len(section_of), "the rows of a part are not where they should be"
    return compared


def _has(ids: bytes, segment: bytes, size: int) -> bool:
    """Return True if `segment` occurs in `ids` at an id boundary; ids have `size` bytes."""
    place = ids.find(segment)
    while place >= 0 and place % size:
        place = ids.find(segment, place + 1)
    return place >= 0
