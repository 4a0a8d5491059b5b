"""Load encoders from folders; the files in a folder decide the kind of encoder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from data_prep.errors import UsageError
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.sources import has_vocabulary
from data_prep.vectors.table import VECTORS, read_table
from pipeline.encoders.bert import BertEncoder
from pipeline.encoders.concatenation import Concatenation
from pipeline.encoders.elmo import load_elmo_encoder, random_elmo_encoder
from pipeline.encoders.interface import Encoder
from pipeline.encoders.static import StaticEncoder
from pipeline.encoders.transformers_folder import load_transformers_encoder
from pipeline.models.bert.architectures import foreign_setting
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.huggingface import load_for_pretraining
from pipeline.models.bert.network import Bert
from pipeline.models.config import ModelConfig
from pipeline.models.registry import family_of, family_of_folder
from pipeline.store.encoder_files import MEMBERS, OF_MODEL


def _load_huggingface_encoder(folder: Path) -> Encoder:
    """Read a model with our own network if there is one, else through transformers.

    Raises SesameError if a file is missing, damaged or not supported.
    """
    if foreign_setting(folder) is not None:
        return load_transformers_encoder(folder)
    if not has_vocabulary(folder):
        raise UsageError(f"{folder}: has no tokenizer; copy its tokenizer.json or vocab.txt to it")
    model, missing = load_for_pretraining(folder)
    masked = None if "masked-LM head" in missing else model.masked
    tokenizer = Tokenizer.load(folder)
    return BertEncoder(model.bert, tokenizer, folder, masked, "pooler" not in missing)


def _random_bert_encoder(model: BertConfig, tokenizer: Path) -> BertEncoder:
    vocabulary = Tokenizer.load(tokenizer)
    return BertEncoder(Bert(model, vocabulary.size), vocabulary, tokenizer)


class _Makers(NamedTuple):
    load: Callable[[Path], Encoder]  # from a folder
    random: Callable[[Any, Path], Encoder]  # from a model config and a tokenizer


MAKERS = {  # by `Family.folder_format`
    "huggingface": _Makers(_load_huggingface_encoder, _random_bert_encoder),
    "allennlp": _Makers(load_elmo_encoder, random_elmo_encoder),
}


def load_encoder(folder: Path) -> Encoder:
    """Load word vectors, an ELMo (AllenNLP's two files), a Hugging Face folder, or several."""
    if (folder / VECTORS).exists():
        return StaticEncoder(read_table(folder))
    if (folder / OF_MODEL).is_dir():  # a fine-tuned model in Sesame's own form
        return load_encoder(folder / OF_MODEL)
    if (folder / MEMBERS).is_dir():
        return Concatenation(
            [load_encoder(member) for member in sorted(folder.glob(f"{MEMBERS}/*"))]
        )
    return MAKERS[family_of_folder(folder).folder_format].load(folder)


def random_encoder(model: ModelConfig, tokenizer: Path, seed: int) -> Encoder:
    """Return an untrained encoder of the given shape: the baseline for pretrained encoders."""
    with torch.random.fork_rng(devices=[]):  # without devices it would copy the state of every GPU
        torch.manual_seed(seed)
        return MAKERS[family_of(model).folder_format].random(model, tokenizer)
