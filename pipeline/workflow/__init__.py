"""The plan of work: the graph of stage instances, what is to be done and why, and doing it.

May use `config` and everything below it. Stages are handed in; none is imported here.
"""
