"""Encoders: what turns text into the hidden states of every layer, for heads to stand on."""

from pipeline.encoders.bert import BertEncoder
from pipeline.encoders.interface import EncodedInputs, Encoder, InputBatch, kept_lengths, runs
from pipeline.encoders.load import load_encoder, random_encoder

__all__ = [
    "BertEncoder", "EncodedInputs", "Encoder", "InputBatch", "kept_lengths", "load_encoder",
    "random_encoder", "runs",
]  # fmt: skip
