"""The page of the whole store: runs, curves of what trains now, sweeps and submissions.

May use `cluster`, `report` and everything below them. Stages and sweeps are handed in.
"""
