"""Networks as plain torch modules, their configs, and conversion to Hugging Face and AllenNLP.

May use `data`, `store` and `data_prep`.
"""
