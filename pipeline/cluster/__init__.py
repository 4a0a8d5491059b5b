"""SLURM: what is submitted, how it is watched, and how an interrupted job goes on.

May use `workflow` and everything below it.
"""
