"""Self-contained HTML pages: charts, blocks, wording and the shell.

May use `store` and `data_prep`.
"""
