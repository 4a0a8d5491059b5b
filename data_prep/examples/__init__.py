"""Document shards and a tokenizer to training rows; `build.build` is the way in.

May use `tokenizers`, `corpus`, `text` and data_prep's root modules.
"""
