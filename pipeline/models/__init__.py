"""Model families (one folder each, listed in `registry`) and the layers that they share.

May use `data`, `store` and `data_prep`.
"""
