"""Timings, one file per subject; each has `measure(config) -> list[Figure]`. No test runs them.

May use every room but `commands`.
"""
