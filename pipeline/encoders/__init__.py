"""Encoders: text to the hidden states of every layer, one interface for all kinds of models.

May use `training`, `models`, `data`, `store` and `data_prep`.
"""

from pipeline.encoders.bert import BertEncoder
from pipeline.encoders.class_heads import ClassHead, class_head
from pipeline.encoders.concatenation import Concatenation
from pipeline.encoders.elmo import ElmoEncoder
from pipeline.encoders.evaluation import evaluation_order, for_each_batch
from pipeline.encoders.inputs import (
    EncodedInputs,
    InContext,
    InputBatch,
    Words,
    WordUnits,
    kept_lengths,
    offsets_of,
    runs,
)
from pipeline.encoders.interface import Encoder
from pipeline.encoders.load import load_encoder, random_encoder
from pipeline.encoders.separate import SeparateSentences
from pipeline.encoders.static import StaticEncoder
from pipeline.encoders.tokens import TokenEncoder
from pipeline.models.classes import SENTENCES

__all__ = [
    "SENTENCES",
    "BertEncoder",
    "ClassHead",
    "Concatenation",
    "ElmoEncoder",
    "EncodedInputs",
    "Encoder",
    "InContext",
    "InputBatch",
    "SeparateSentences",
    "StaticEncoder",
    "TokenEncoder",
    "WordUnits",
    "Words",
    "class_head",
    "evaluation_order",
    "for_each_batch",
    "kept_lengths",
    "load_encoder",
    "offsets_of",
    "random_encoder",
    "runs",
]  # fmt: skip
