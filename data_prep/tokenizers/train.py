"""Train vocabularies from word counts with SentencePiece, with the same bytes on every run.

SentencePiece reads word counts (its TSV format), so the cost of training does not grow with the
corpus. One thread, no paths and no shuffling make it deterministic. The trainers of the
`tokenizers` library break ties by hash order, so their result differs from run to run. Therefore
WordPiece is trained here too: as byte-pair merges over characters, with different symbols for a
character at the beginning of a word and inside it.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import sentencepiece

from data_prep.config import TokenizerConfig
from data_prep.errors import SesameError
from data_prep.symbols import SPECIAL_PIECES
from data_prep.tokenizers.merging import WordCounts

PAD, UNK, CLS, SEP, MASK = SPECIAL_PIECES
CONTINUES = "##"
LONGEST_WORD = 100  # characters; BERT maps longer words to [UNK]
FIRST_CODE = 0x20000  # during training, characters from here on encode the WordPiece symbols


def train_sentencepiece(counts: WordCounts, config: TokenizerConfig) -> bytes:
    """Train a model of kind `unigram` or `bpe`; return the bytes of the SentencePiece model file.

    Raises SesameError if the corpus does not support the vocabulary size.
    """
    _check_any(counts)
    model = _train(
        zip(counts.words, counts.counts, strict=True),
        config,
        model_type=config.kind,
        vocab_size=config.vocab_size,
        pad_id=0, pad_piece=PAD, unk_id=1, unk_piece=UNK, bos_id=2, bos_piece=CLS,
        eos_id=3, eos_piece=SEP, control_symbols=[MASK],
        user_defined_symbols=list(config.user_symbols),
        byte_fallback=config.byte_fallback,
        split_digits=config.split_digits,
        character_coverage=config.character_coverage,
    )  # fmt: skip
    size = len(sentencepiece.SentencePieceProcessor(model_proto=model))
    if size < config.vocab_size:
        raise _too_large(config, size)
    return model


def train_wordpiece(counts: WordCounts, config: TokenizerConfig) -> list[str]:
    """Train BERT's vocabulary: special tokens, user symbols, characters, merges by frequency.

    Raises SesameError if the corpus does not support the vocabulary size.
    """
    _check_any(counts)
    alphabet = _alphabet(counts, config.character_coverage)
    words = {
        word: count
        for word, count in zip(counts.words, counts.counts, strict=True)
        if len(word) <= LONGEST_WORD and alphabet.issuperset(word)
    }
    # A character inside words needs both forms, or a new word with it would be [UNK] as a whole.
    joining = {character for word in words if len(word) > 1 for character in word}
    symbols = sorted(alphabet) + [CONTINUES + character for character in sorted(joining)]
    given = [*SPECIAL_PIECES, *config.user_symbols]
    # A user symbol may be a single character.
    symbols = [symbol for symbol in symbols if symbol not in config.user_symbols]
    merges_wanted = config.vocab_size - len(given) - len(symbols)
    if merges_wanted < 0:
        raise _too_small(config, len(given) + len(symbols))

    codes = {symbol: chr(FIRST_CODE + number) for number, symbol in enumerate(symbols)}
    coded = (
        (codes[word[0]] + "".join(codes[CONTINUES + letter] for letter in word[1:]), count)
        for word, count in words.items()
    )
    begin = {word[0] for word in words}
    go_on = {CONTINUES + letter for word in words for letter in word[1:]}
    model = _train(
        coded,
        config,
        model_type="bpe",
        vocab_size=1 + len(begin) + len(go_on) + merges_wanted,
        unk_id=0, bos_id=-1, eos_id=-1, pad_id=-1,
        character_coverage=1.0,
        add_dummy_prefix=False,
        split_by_unicode_script=False,
        split_by_number=False,
        max_sentencepiece_length=LONGEST_WORD,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(number) for number in range(1, len(processor))]
    merges = [_decoded(piece, symbols) for piece in pieces if len(piece) > 1]
    if len(merges) < merges_wanted:
        raise _too_large(config, len(given) + len(symbols) + len(merges))
    # SentencePiece sums coverage in single precision. If the sum reaches 1 before the rarest
    # character, it leaves this character out and adds one more merge.
    return given + symbols + merges[:merges_wanted]


def _decoded(piece: str, symbols: list[str]) -> str:
    first, *rest = (symbols[ord(code) - FIRST_CODE] for code in piece)
    return first + "".join(symbol.removeprefix(CONTINUES) for symbol in rest)


def _alphabet(counts: WordCounts, coverage: float) -> set[str]:
    """Return the most frequent characters that together make up `coverage` of all characters."""
    characters: Counter[str] = Counter()
    for word, count in zip(counts.words, counts.counts, strict=True):
        for character in word:
            characters[character] += count
    alphabet: set[str] = set()
    missing = (1 - coverage) * characters.total()
    left = characters.total()
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if left <= missing:
            break
        alphabet.add(character)
        left -= count
    return alphabet


def _train(words: Iterable[tuple[str, int]], config: TokenizerConfig, **options: Any) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{count}" for word, count in words),
            model_writer=model,
            input_format="tsv",
            normalization_rule_name="identity",
            num_threads=1,
            shuffle_input_sentence=False,
            hard_vocab_limit=False,  # if the size is too large, returns the largest that fits
            minloglevel=2,
            **options,
        )
    except RuntimeError as error:
        characters = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if characters:
            raise _too_small(config, int(characters[1])) from error
        raise SesameError(
            f"tokenizer.kind={config.kind}: SentencePiece could not train on these words; "
            "HYDRA_FULL_ERROR=1 shows its message"
        ) from error
    return model.getvalue()


def _check_any(counts: WordCounts) -> None:
    if not counts.words:
        raise SesameError("no words to train a tokenizer on: the training shards are empty")


def _too_large(config: TokenizerConfig, largest: int) -> SesameError:
    return SesameError(
        f"tokenizer.vocab_size={config.vocab_size}: this corpus supports at most {largest} "
        f"{config.kind} tokens; set tokenizer.vocab_size={largest} or less, or add text"
    )


def _too_small(config: TokenizerConfig, smallest: int) -> SesameError:
    return SesameError(
        f"tokenizer.vocab_size={config.vocab_size}: the special tokens and single characters of "
        f"this corpus need {smallest}; set tokenizer.vocab_size to more, or lower "
        f"tokenizer.character_coverage ({config.character_coverage})"
    )
