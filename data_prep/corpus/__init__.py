"""The work of the `shard` stage: clean text, deduplication, selection, mixture, shard format.

May use `reading`, `text` and data_prep's root modules.
"""
