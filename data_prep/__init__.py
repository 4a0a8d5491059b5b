"""Raw text to training examples: document shards, tokenizers, example rows. Never imports torch."""
