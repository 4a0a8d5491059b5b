"""Pretrained encoders as folders that others load: Hugging Face, AllenNLP, model cards.

May use `workflow` and everything below it.
"""
