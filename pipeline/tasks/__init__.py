"""Downstream tasks: readers, heads, metrics and the fine-tuning loop."""
