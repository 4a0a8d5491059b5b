"""Encoders and their heads, as plain torch modules."""
