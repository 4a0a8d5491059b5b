"""CUDA lines run on a pretended device; see `pretended_step` for what that can and cannot show."""
