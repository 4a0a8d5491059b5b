"""Dashboards: wandb, TensorBoard and CSV, fed from metrics.jsonl, which is the truth.

May use `models`, `data`, `store` and `data_prep`.
"""
