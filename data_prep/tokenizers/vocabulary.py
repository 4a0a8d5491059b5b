"""ELMo's vocabulary: the words that the model predicts, in the format of bilm-tf.

The vocabulary is `<S>`, `</S>`, `<UNK>`, then words by falling count. Only its words are predicted.
But the model reads words by their characters, so rarer words have ids too, after the vocabulary.
Writes the files of `huggingface.write_folder`, and
    vocabulary.txt  the predicted words, one per line; the id of a word is its line number, from 0
    counts.npy      the number of occurrences of each predicted word in the training text
Try it: sesame tokenizer corpus.paths=texts/ tokenizer=words tokenizer.vocab_size=5000
"""

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from data_prep.arrays import write_array
from data_prep.config import TokenizerConfig
from data_prep.errors import SesameError
from data_prep.files import atomic_write, write_atomically
from data_prep.reading.untrusted import VOCABULARY_BYTES, open_array, read_text
from data_prep.text.scripts import SPACELESS_CHARACTER
from data_prep.tokenizers.huggingface import pieces_of, write_folder
from data_prep.tokenizers.merging import WordCounts
from data_prep.tokenizers.words import SPECIAL_WORDS, SPECIALS, from_words

VOCABULARY, COUNTS = "vocabulary.txt", "counts.npy"
END_OF_TERMS = "!!!MAXTERMID"  # the last line of vocabularies that bilm-tf's authors published


def write_words(counts: WordCounts, out: Path, config: TokenizerConfig) -> None:
    """Write the tokenizer folder with a vocabulary of `tokenizer.vocab_size` predicted words.

    Raises SesameError if the corpus has too few distinct words.
    """
    # A text may contain words that look like the special ones; they are read as these and not
    # counted.
    found = [
        (word, count)
        for word, count in zip(counts.words, counts.counts, strict=True)
        if word not in SPECIAL_WORDS
    ]
    predicted = config.vocab_size - len(SPECIAL_WORDS)
    largest = len(found) + len(SPECIAL_WORDS)
    if config.vocab_size > largest:
        raise SesameError(
            f"tokenizer.vocab_size={config.vocab_size}: this corpus supports at most {largest} "
            f"{config.kind}; set tokenizer.vocab_size={largest} or less, or add text"
        )
    words = [word for word, _ in found]
    occurrences = [count for _, count in found[:predicted]]
    specials = [0, 0, counts.total - sum(occurrences)]
    spaced = config.kind == "spaced_words"
    segmented = not spaced and any(map(SPACELESS_CHARACTER.search, words))
    library = from_words(
        words, config.lowercase, config.strip_accents, spaced, segmented, config.user_symbols
    )
    write_folder(out, library, SPECIALS, None)
    vocabulary = [*SPECIAL_WORDS, *words[:predicted]]
    write_atomically(out / VOCABULARY, "\n".join([*vocabulary, ""]))
    write_counts(out, [*specials, *occurrences])


def write_counts(out: Path, counts: list[int]) -> None:
    """Write the occurrences of each word of the vocabulary, in its order."""
    with atomic_write(out / COUNTS) as stream:
        write_array(stream, np.array(counts, np.int64))


def read_vocabulary(file: Path) -> list[str]:
    """Read the predicted words of a vocabulary file, ours or bilm-tf's.

    Raises SesameError, with the line, if it is not a list of distinct words.
    """
    lines = read_text(file, VOCABULARY_BYTES).removesuffix("\n").split("\n")
    words = [line.removesuffix("\r") for line in lines]
    if words[-1] == END_OF_TERMS:
        words.pop()
    for line, (word, wanted) in enumerate(zip(words, SPECIAL_WORDS, strict=False), 1):
        if word != wanted:
            raise SesameError(
                f"{file}, line {line}: must be {wanted}; a vocabulary begins with "
                f"{', '.join(SPECIAL_WORDS)} and continues with words by falling count"
            )
    first_seen: dict[str, int] = {}
    for line, word in enumerate(words, 1):
        if not word or word.split() != [word]:
            raise SesameError(f"{file}, line {line}: must be one word, without white space")
        if word in first_seen:
            raise SesameError(f"{file}, line {line}: repeats the word of line {first_seen[word]}")
        first_seen[word] = line
    if len(words) <= len(SPECIAL_WORDS):
        raise SesameError(f"{file}: has no words after the {len(SPECIAL_WORDS)} special ones")
    return words


def read_counts(file: Path) -> list[int]:
    """Read the counts of a vocabulary's words; raises SesameError unless they fall."""
    counts = open_array(file, "i", dimensions=1)
    rises = np.flatnonzero(np.diff(counts[len(SPECIAL_WORDS) :]) > 0)
    if rises.size:
        line = int(rises[0]) + len(SPECIAL_WORDS) + 2
        raise SesameError(
            f"{file}: the word of line {line} in {VOCABULARY} is more frequent than the one before "
            "it; sampling relies on falling counts, so sort the vocabulary"
        )
    return [int(count) for count in counts]


def take_vocabulary(files: list[Path], library: Tokenizer, out: Path) -> None:
    """Write the vocabulary and counts of an existing tokenizer of words.

    The predicted words are those of its vocabulary.txt, or all words it knows if it has none.
    """
    known = pieces_of(library)
    stated = [file for file in files if file.name == VOCABULARY]
    words = read_vocabulary(stated[0]) if stated else known
    if known[: len(words)] != words:
        raise SesameError(f"{files[-1]}: its first words differ from those of {VOCABULARY}")
    write_atomically(out / VOCABULARY, "\n".join([*words, ""]))
    for file in files:
        if file.name == COUNTS:
            counts = read_counts(file)
            if len(counts) != len(words):
                raise SesameError(f"{file}: has {len(counts):,} counts for {len(words):,} words")
            write_counts(out, counts)
