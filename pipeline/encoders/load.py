"""Load encoders from folders; the files in a folder decide the kind of encoder."""

from pathlib import Path

import torch

from data_prep.tokenizers import Tokenizer
from data_prep.vectors.table import VECTORS, read_table
from pipeline.encoders.bert import BertEncoder
from pipeline.encoders.elmo import load_elmo_encoder, random_elmo_encoder
from pipeline.encoders.interface import Encoder
from pipeline.encoders.static import StaticEncoder
from pipeline.models.allennlp_options import find_pair
from pipeline.models.bert import Bert
from pipeline.models.config import BertConfig, ElmoConfig, ModelConfig
from pipeline.models.huggingface import load_folder


def load_encoder(folder: Path) -> Encoder:
    """Load word vectors, an ELMo (AllenNLP's two files) or a Hugging Face BERT from a folder."""
    if (folder / VECTORS).exists():
        return StaticEncoder(read_table(folder))
    if find_pair(folder) is not None:
        return load_elmo_encoder(folder)
    return BertEncoder(load_folder(folder), Tokenizer.load(folder))


def random_encoder(model: ModelConfig, tokenizer: Path, seed: int) -> Encoder:
    """Return an untrained encoder of the given shape: the baseline for pretrained encoders."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if isinstance(model, ElmoConfig):
            return random_elmo_encoder(model, tokenizer)
        assert isinstance(model, BertConfig)
        vocabulary = Tokenizer.load(tokenizer)
        return BertEncoder(Bert(model, vocabulary.size), vocabulary)
