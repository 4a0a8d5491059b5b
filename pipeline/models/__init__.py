"""Networks as plain torch modules, their configs, and the formats that others read.

May use `data`, `store` and `data_prep`.
"""
