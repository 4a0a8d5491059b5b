"""The `shard` stage: raw text to clean, deduplicated document shards (`build.make_shards`).

May use `reading`, `text` and data_prep's root modules.
"""
