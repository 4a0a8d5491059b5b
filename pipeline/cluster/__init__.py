"""SLURM: submit jobs, show their status, continue interrupted jobs.

May use `workflow` and everything below it.
"""
