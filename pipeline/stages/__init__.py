"""The stages, one file each; every one has `inputs`, `fingerprint_keys` and `run`."""
