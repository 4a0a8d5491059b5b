"""Encoders from folders: which kind it is follows from the files that are there."""

from pathlib import Path

import torch

from data_prep.tokenizers import Tokenizer
from data_prep.vectors.table import VECTORS, read_table
from pipeline.encoders.bert import BertEncoder
from pipeline.encoders.interface import Encoder
from pipeline.encoders.static import StaticEncoder
from pipeline.models.bert import Bert
from pipeline.models.config import BertConfig, ModelConfig
from pipeline.models.huggingface import load_folder


def load_encoder(folder: Path) -> Encoder:
    """The encoder in a folder: word vectors, or a Hugging Face BERT as `export` writes it."""
    if (folder / VECTORS).exists():
        return StaticEncoder(read_table(folder))
    return BertEncoder(load_folder(folder), Tokenizer.load(folder))


def random_encoder(model: ModelConfig, tokenizer: Path, seed: int) -> Encoder:
    """An untrained encoder of the given shape: the floor that pretraining is measured against."""
    assert isinstance(model, BertConfig)
    vocabulary = Tokenizer.load(tokenizer)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return BertEncoder(Bert(model, vocabulary.size), vocabulary)
