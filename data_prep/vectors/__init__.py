"""The `vectors` stage: static word vectors, read from published files or trained on the corpus.

May use `corpus`, `text` and data_prep's root modules.
"""
