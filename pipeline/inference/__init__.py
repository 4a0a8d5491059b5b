"""Use an encoder: fill blanks, compare word similarity, separate senses.

May use `pages`, `workflow` and everything below them.
"""
