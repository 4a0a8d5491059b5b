"""Pretraining: the module, strategies, checkpoints and the entry of a rank."""
