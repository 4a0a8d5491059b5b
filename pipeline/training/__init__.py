"""Training: the step, engines, checkpoints, schedule, callbacks and the entry of a rank.

Pretraining uses all of it; fine-tuning on ranks uses the step, engines and checkpoints.

May use `tracking`, `models`, `data`, `store` and `data_prep`.
"""
