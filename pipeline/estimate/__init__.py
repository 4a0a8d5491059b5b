"""Estimate the cost of a pretraining: memory, tokens, FLOPs, disk, hours.

May use `workflow` and everything below it.
"""
