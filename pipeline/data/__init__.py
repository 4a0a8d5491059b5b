"""From example shards to batches: order, chunks, masks, loader."""
