"""Pretraining: the step, engines, checkpoints, schedule, callbacks and the entry of a rank.

May use `tracking`, `models`, `data`, `store` and `data_prep`.
"""
