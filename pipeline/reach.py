"""How far around a word the tokenizer of a planned or finished input looks: `Tokenizer.reach`.

A plan needs it before a tokenizer is trained; then it follows from the tokenizer's settings.
"""

from pathlib import Path
from typing import Any

from data_prep.config import WORD_KINDS


def trained_reach(tokenizer: dict[str, Any]) -> str:
    """That of a tokenizer trained with these result keys; whole words have no pieces."""
    kind = tokenizer["kind"]
    if kind in WORD_KINDS or (kind == "wordpiece" and not tokenizer["user_symbols"]):
        return "word"
    return "space"


def given_reach(folder: Path) -> str | None:
    """That of the tokenizer in a folder or file; None where a model brings none."""
    from data_prep.tokenizers import Tokenizer
    from data_prep.tokenizers.sources import has_vocabulary

    if folder.is_dir() and not has_vocabulary(folder):
        return None
    tokenizer = Tokenizer.load(folder)
    return "word" if tokenizer.kind in WORD_KINDS else tokenizer.reach
