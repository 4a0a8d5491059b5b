"""Vocabularies trained from word counts, and the tokenizer that all later stages use."""

from data_prep.tokenizers.tokenizer import Encoded, Tokenizer

__all__ = ["Encoded", "Tokenizer"]
