"""From example shards to batches: order, cursor, loader, batches.

May use `store` and `data_prep`.
"""
