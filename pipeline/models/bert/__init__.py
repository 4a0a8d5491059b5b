"""BERT: network, objective, cost, and conversion to transformers' architectures.

May use the shared files of `models`, and `data` and `data_prep`. `family.py` is its entry.
"""
