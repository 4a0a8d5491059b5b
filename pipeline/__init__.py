"""Sesame: pretrain BERT and ELMo from raw text to scored models, on a laptop or a cluster."""
