"""Use a model: predict with a fine-tuned one, fill blanks, compare words, separate senses.

May use `pages`, `workflow` and everything below them.
"""
