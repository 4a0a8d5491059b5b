"""From raw text to training examples: sources, shards, tokenizers. Never imports torch."""
