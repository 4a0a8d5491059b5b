"""The `tokenizer` stage (`build.build_tokenizer`), and the `Tokenizer` that later stages use.

May use `corpus`, `text` and data_prep's root modules.
"""

from data_prep.tokenizers.tokenizer import Encoded, Tokenizer, load_tokenizer

__all__ = ["Encoded", "Tokenizer", "load_tokenizer"]
