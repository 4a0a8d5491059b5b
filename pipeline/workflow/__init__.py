"""The workflow: builds the graph of stage instances, plans what must be made, and executes it.

May use `config` and everything below it. Stages are passed in; none is imported here.
"""
