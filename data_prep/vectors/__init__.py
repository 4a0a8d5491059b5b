"""Static word vectors: read from the files others publish, or trained on the corpus.

May use `corpus`, `text` and data_prep's root modules.
"""
