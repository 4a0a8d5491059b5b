"""Export pretrained encoders as folders for Hugging Face or AllenNLP, with model cards.

May use `workflow` and everything below it.
"""
