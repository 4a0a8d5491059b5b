"""ELMo: network, objective, cost, and conversion to AllenNLP's pair of files.

May use the shared files of `models`, and `data` and `data_prep`. `family.py` is its entry.
"""
