"""What is done with an encoder: filling blanks, word similarity, senses.

May use `pages`, `workflow` and everything below them.
"""
