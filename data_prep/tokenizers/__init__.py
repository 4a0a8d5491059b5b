"""Vocabularies trained from word counts, and the tokenizer that all later stages use.

May use `corpus`, `text` and data_prep's root modules.
"""

from data_prep.tokenizers.tokenizer import Encoded, Tokenizer

__all__ = ["Encoded", "Tokenizer"]
