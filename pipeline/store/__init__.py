"""The store on disk: outputs, leases, content checksums, references, runs, journals.

May use `data_prep` only.
"""
