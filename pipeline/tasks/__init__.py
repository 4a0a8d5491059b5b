"""Downstream tasks: readers, heads, metrics and the fine-tuning loop.

May use `encoders`, `training` and everything below them.
"""
