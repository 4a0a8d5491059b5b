"""Dashboards: wandb, TensorBoard and CSV, told from metrics.jsonl, which is the truth."""
