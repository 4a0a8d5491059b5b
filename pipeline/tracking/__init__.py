"""Dashboards (wandb, TensorBoard, CSV), filled from metrics.jsonl, which remains authoritative.

May use `models`, `data`, `store` and `data_prep`.
"""
