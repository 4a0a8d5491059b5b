"""Read existing tokenizers: a folder or file with tokenizer.json, vocab.txt or a .model.

These are the folders of Hugging Face, of Google's BERT releases and of this package. They are
untrusted: sizes, ids and types are checked before they are used.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Tokenizer

from data_prep.errors import SesameError, UsageError
from data_prep.reading.untrusted import VOCABULARY_BYTES, read_bytes, read_object, read_text
from data_prep.tokenizers.characters import BEGIN_SENTENCE
from data_prep.tokenizers.huggingface import (
    Specials,
    finished,
    from_sentencepiece,
    from_vocabulary,
)
from data_prep.tokenizers.vocabulary import COUNTS, VOCABULARY, read_vocabulary
from data_prep.tokenizers.words import SPECIAL_WORDS, SPECIALS, from_words

MODEL = "spiece.model"  # kept if it is in the folder of the tokenizer.json made from it
VOCABULARIES = ("tokenizer.json", "vocab.txt", VOCABULARY)
BESIDE = ("special_tokens_map.json", "tokenizer_config.json", MODEL, VOCABULARY, COUNTS)
SETTINGS = ("special_tokens_map.json", "tokenizer_config.json")  # the later one takes precedence
# Ids may have gaps, but a table of all ids must fit in memory.
MOST_IDS_PER_TOKEN, MOST_GAP = 2, 10_000
LONGEST_TOKEN = 4096  # characters
RARE_CHARACTER = "\U00013000"  # an Egyptian hieroglyph
ALIASES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


@dataclass(frozen=True)
class Source:
    """An existing tokenizer, with its special tokens declared."""

    tokenizer: Tokenizer
    specials: Specials
    sentencepiece_model: bytes | None = None


def has_vocabulary(folder: Path) -> bool:
    """Return True if a model's folder contains a tokenizer or a vocabulary."""
    return any((folder / name).is_file() for name in VOCABULARIES) or any(folder.glob("*.model"))


def source_files(path: Path) -> list[Path]:
    """List the files of a tokenizer that are read; the last one has the vocabulary.

    Raises UsageError if there is none.
    """
    if path.is_file() and path.suffix in (".json", ".txt", ".model"):
        return [path]
    if path.is_dir():
        vocabularies = [*(path / name for name in VOCABULARIES), *sorted(path.glob("*.model"))]
        for vocabulary in vocabularies:
            if vocabulary.is_file():
                beside = [path / name for name in BESIDE if vocabulary.name != name]
                return [file for file in beside if file.is_file()] + [vocabulary]
    raise UsageError(
        f"tokenizer.source={path}: must be a folder with tokenizer.json, vocab.txt, "
        f"{VOCABULARY} or a .model file, or one of these files"
    )


def read_source(path: Path) -> Source:
    """Read a tokenizer; settings that its folder does not state are derived from its vocabulary."""
    *beside, vocabulary = source_files(path)
    settings: dict[str, Any] = {}
    for file in beside:
        if file.name in SETTINGS:
            settings.update(read_object(file))
    if vocabulary.suffix == ".json":
        models = [read_bytes(file, VOCABULARY_BYTES) for file in beside if file.name == MODEL]
        source = _from_tokenizer_json(vocabulary, settings, models[0] if models else None)
    elif vocabulary.suffix == ".txt":
        source = _from_vocabulary_file(vocabulary, settings)
    else:
        source = _from_model_file(vocabulary, settings)
    _check_vocabulary(vocabulary, source)
    return source


def _check_vocabulary(file: Path, source: Source) -> None:
    ids = source.tokenizer.get_vocab(True)
    largest = max(ids.values())
    if largest > MOST_IDS_PER_TOKEN * len(ids) + MOST_GAP:
        raise SesameError(f"{file}: has {len(ids):,} tokens, but an id {largest:,}")
    if not ids.keys() - set(source.specials.names()):
        raise SesameError(f"{file}: has special tokens only, and none for text")


def _from_tokenizer_json(file: Path, settings: dict[str, Any], model: bytes | None) -> Source:
    content = read_text(file, VOCABULARY_BYTES)
    try:
        tokenizer = Tokenizer.from_str(content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        specials = _specials(file, settings, tokenizer.get_vocab(True))
        finished(tokenizer, specials)
        tokenizer.encode(RARE_CHARACTER)  # fails if there is no token for unknown text
    except SesameError:
        raise
    except Exception as error:  # the library has no narrower class
        raise SesameError(f"{file}: not a tokenizer of the tokenizers library") from error
    return Source(tokenizer, specials, model)


def _from_vocabulary_file(file: Path, settings: dict[str, Any]) -> Source:
    content = read_text(file, VOCABULARY_BYTES)
    if file.name == VOCABULARY or content.startswith(f"{BEGIN_SENTENCE}\n"):
        words = read_vocabulary(file)[len(SPECIAL_WORDS) :]
        return Source(from_words(words, False, False, spaced=False), SPECIALS)
    vocabulary = content.removesuffix("\n").split("\n")
    vocabulary = [piece.removesuffix("\r") for piece in vocabulary]
    first_seen: dict[str, int] = {}
    for line, piece in enumerate(vocabulary, 1):
        if piece in first_seen:
            raise SesameError(f"{file}, line {line}: repeats the token of line {first_seen[piece]}")
        first_seen[piece] = line
    specials = _specials(file, settings, first_seen)
    if specials.unk not in first_seen:
        raise SesameError(f"{file}: no line is {specials.unk}, the token for unknown words")
    lowercase = _flag(file, settings, "do_lower_case")
    if lowercase is None:  # not stated in Google's releases; uncased vocabularies have no capitals
        lowercase = not any(
            piece != piece.lower() for piece in vocabulary if not piece.startswith("[")
        )
    strip_accents = _flag(file, settings, "strip_accents")
    if strip_accents is None:
        strip_accents = lowercase  # as BERT does
    return Source(from_vocabulary(vocabulary, lowercase, strip_accents, specials), specials)


def _from_model_file(file: Path, settings: dict[str, Any]) -> Source:
    model = read_bytes(file, VOCABULARY_BYTES)
    try:
        if not model:
            raise RuntimeError("sentencepiece takes an empty file for a model without pieces")
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = [processor.id_to_piece(number) for number in range(len(processor))]
        scores = [processor.get_score(number) for number in range(len(processor))]
    except (RuntimeError, UnicodeDecodeError) as error:
        raise SesameError(f"{file}: not a SentencePiece model") from error
    if not all(map(math.isfinite, scores)):
        raise SesameError(f"{file}: a token has a score that is not finite")
    if max(map(len, pieces), default=0) > LONGEST_TOKEN:
        raise SesameError(f"{file}: has a token of more than {LONGEST_TOKEN:,} characters")
    specials = _specials(file, settings, pieces)
    try:
        return Source(from_sentencepiece(model, False, False, specials), specials, model)
    except SesameError:
        raise
    except Exception as error:  # the library has no narrower class
        raise SesameError(f"{file}: a SentencePiece model that cannot be converted") from error


def _specials(file: Path, settings: dict[str, Any], vocabulary: Collection[str]) -> Specials:
    """Return the special tokens: as the settings state, else a usual name in the vocabulary.

    If it has none of the usual names, ours is used; the caller adds it to the vocabulary.
    """
    names = {}
    for role, aliases in ALIASES.items():
        stated = settings.get(f"{role}_token")
        name = stated.get("content") if isinstance(stated, dict) else stated
        if name and not (isinstance(name, str) and _is_encodable(name)):
            raise SesameError(f"{file.parent}: {role}_token is not a string of Unicode text")
        known = [alias for alias in aliases if alias in vocabulary]
        names[role] = name or (known or list(aliases))[0]
    return Specials(**names)


def _is_encodable(text: str) -> bool:
    """Return False if a text has lone surrogates, which JSON can express."""
    return text.isascii() or text.encode(errors="ignore").decode() == text


def _flag(file: Path, settings: dict[str, Any], name: str) -> bool | None:
    """Return a setting that is true, false or absent."""
    value = settings.get(name)
    if value is not None and not isinstance(value, bool):
        raise SesameError(f"{file.parent}: {name} must be true or false")
    return value
