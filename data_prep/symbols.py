"""Symbols that are one token each: special tokens, and what stands for redacted text."""

import re
from typing import Any

from data_prep.errors import UsageError

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # in the order of their ids
NAME_SYMBOL = "[NAME]"  # stands for a name of corpus.redact_names_file


def symbol_of(kind: str) -> str:
    """Return the symbol that stands for redacted text of a kind: [EMAIL]."""
    return f"[{kind.upper()}]"


def compile_redaction(name: str, pattern: str) -> Any:
    """Compile a pattern of `corpus.redact_patterns` with RE2, whose matching takes linear time.

    Raises UsageError for a name that cannot be a symbol and for a pattern that RE2 refuses.
    """
    import re2

    key = f"corpus.redact_patterns.{name}"
    if not re.fullmatch("[A-Z][A-Z_]*", name) or symbol_of(name) in SPECIAL_PIECES:
        raise UsageError(f"{key}: a symbol is named by capital letters and _, such as CASE_NUMBER")
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise UsageError(
            f"{key}={pattern}: not a regular expression of RE2 ({error.args[0].decode()}), which "
            "has neither look-around nor back-references"
        ) from error
    if compiled.search("") is not None:
        raise UsageError(f"{key}={pattern}: it matches empty text; require a character")
    return compiled
