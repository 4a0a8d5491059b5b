"""Document shards and a tokenizer to training rows; `build.build` is the way in."""
