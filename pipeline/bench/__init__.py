"""Timings, one file a subject; each has `measure(config) -> list[Figure]`. Never run by tests."""
