"""A WordPiece tokenizer of whole words, for encoders that are tested on toy text."""

from collections.abc import Sequence
from pathlib import Path

from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder


def write_toy_tokenizer(folder: Path, words: Sequence[str]) -> Path:
    """Write a lower-casing tokenizer of these words to an existing folder; return it."""
    vocabulary = [*Specials().names(), *words]
    library = from_vocabulary(vocabulary, lowercase=True, strip_accents=False, specials=Specials())
    write_folder(folder, library, Specials(), None)
    return folder
