"""Read existing tokenizers: a folder or file with tokenizer.json, vocab.txt or a .model.

These are the folders of Hugging Face, of Google's BERT releases and of this package.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Tokenizer

from data_prep.errors import SesameError, UsageError
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
            settings.update(_read_json(file))
    if vocabulary.suffix == ".json":
        models = [file.read_bytes() for file in beside if file.name == MODEL]
        return _from_tokenizer_json(vocabulary, settings, models[0] if models else None)
    if vocabulary.suffix == ".txt":
        return _from_vocabulary_file(vocabulary, settings)
    return _from_model_file(vocabulary, settings)


def _from_tokenizer_json(file: Path, settings: dict[str, Any], model: bytes | None) -> Source:
    content = _read_text(file)
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library has no narrower class
        raise SesameError(f"{file}: not a tokenizer of the tokenizers library") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    specials = _specials(settings, tokenizer.get_vocab(True))
    return Source(finished(tokenizer, specials), specials, model)


def _from_vocabulary_file(file: Path, settings: dict[str, Any]) -> Source:
    content = _read_text(file)
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
    specials = _specials(settings, first_seen)
    if specials.unk not in first_seen:
        raise SesameError(f"{file}: no line is {specials.unk}, the token for unknown words")
    lowercase = settings.get("do_lower_case")
    if lowercase is None:  # not stated in Google's releases; uncased vocabularies have no capitals
        lowercase = not any(
            piece != piece.lower() for piece in vocabulary if not piece.startswith("[")
        )
    strip_accents = settings.get("strip_accents")
    if strip_accents is None:
        strip_accents = lowercase  # as BERT does
    return Source(from_vocabulary(vocabulary, lowercase, strip_accents, specials), specials)


def _from_model_file(file: Path, settings: dict[str, Any]) -> Source:
    model = file.read_bytes()
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise SesameError(f"{file}: not a SentencePiece model") from error
    pieces = [processor.id_to_piece(number) for number in range(len(processor))]
    specials = _specials(settings, pieces)
    return Source(from_sentencepiece(model, False, False, specials), specials, model)


def _specials(settings: dict[str, Any], vocabulary: Collection[str]) -> Specials:
    """Return the special tokens: as the settings state, else a usual name in the vocabulary.

    If it has none of the usual names, ours is used; the caller adds it to the vocabulary.
    """
    names = {}
    for role, aliases in ALIASES.items():
        stated = settings.get(f"{role}_token")
        name = stated.get("content") if isinstance(stated, dict) else stated
        known = [alias for alias in aliases if alias in vocabulary]
        names[role] = name or (known or list(aliases))[0]
    return Specials(**names)


def _read_text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise SesameError(f"{file}: not UTF-8 at byte {error.start}") from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read_text(file))
    except json.JSONDecodeError as error:
        raise SesameError(f"{file}, line {error.lineno}: not JSON") from error
    if not isinstance(value, dict):
        raise SesameError(f"{file}: must be a JSON object")
    return value
