"""Builds the network and objective of a job, and loads the weights it starts from (`init`)."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from data_prep.errors import UsageError
from data_prep.tokenizers import Tokenizer
from data_prep.vectors.table import read_table
from pipeline.models.allennlp import load_allennlp
from pipeline.models.bert import Bert, BertForPretraining
from pipeline.models.config import BertConfig, ElmoConfig
from pipeline.models.elmo import ElmoForPretraining
from pipeline.models.huggingface import load_for_pretraining
from pipeline.training.job import Job
from pipeline.training.objective import MaskedPieces, NextWords, Objective
from pipeline.training.piece_vectors import piece_vectors
from pipeline.training.source import check_architecture

SOFTMAX = "softmax.safetensors"  # beside an AllenNLP pair, whose format does not include it


def make_network(job: Job) -> tuple[nn.Module, Objective]:
    """Return the job's network with random weights, and its objective."""
    trainer = job.trainer
    if isinstance(job.model, ElmoConfig):
        streams = trainer.global_batch_size // trainer.world_size
        return (
            ElmoForPretraining(job.model, job.vocab_size),
            NextWords(job.model, job.vocab_size, streams, trainer.seed),
        )
    assert isinstance(job.model, BertConfig)
    bert = BertForPretraining(job.model, job.vocab_size, trainer.activation_checkpointing)
    return bert, MaskedPieces()


def start_from(network: nn.Module, job: Job, say: Callable[[str], None]) -> None:
    """Load `init.source` or `init.vectors`, where set, into the network, in place.

    Raises `UsageError` if architecture or vocabulary differ.
    """
    if job.vectors is not None:
        assert isinstance(network, BertForPretraining)
        say(_start_embeddings(network.bert, Path(job.vectors), job))
    if job.source is None:
        return
    folder = Path(job.source)
    if isinstance(network, ElmoForPretraining):
        fresh = _start_elmo(network, folder, job)
    else:
        assert isinstance(network, BertForPretraining)
        fresh = _start_bert(network, folder, job)
    if fresh:
        say(f"{', '.join(fresh)} not in init.source: starting fresh")


def _start_embeddings(bert: Bert, folder: Path, job: Job) -> str:
    """Set token embeddings from word vectors, in place; return a message with their number."""
    tokenizer, weight_VD = Tokenizer.load(Path(job.tokenizer)), bert.embeddings.tokens.weight
    table, std = read_table(folder), bert.config.init_std
    pieces_P, vectors_PD = piece_vectors(table, tokenizer, bert.config.hidden, std)
    with torch.no_grad():
        weight_VD[torch.from_numpy(pieces_P)] = torch.from_numpy(vectors_PD)
    return f"{len(pieces_P):,} of {len(weight_VD):,} embeddings start from vectors of words"


def _start_bert(network: BertForPretraining, folder: Path, job: Job) -> list[str]:
    """Copy the weights of a BERT folder; return the names of the parts that it lacks."""
    source, fresh = load_for_pretraining(folder)
    _check_vocabulary(source.bert.vocab_size, folder, job)
    check_architecture(job.model, source.bert.config)
    network.load_state_dict(source.state_dict())
    return fresh


def _start_elmo(network: ElmoForPretraining, folder: Path, job: Job) -> list[str]:
    """Copy the weights of an ELMo folder; return the names of the parts that it lacks."""
    source = load_allennlp(folder)
    check_architecture(job.model, source.config)
    network.elmo.load_state_dict(source.state_dict())
    if not (folder / SOFTMAX).is_file():
        return ["the softmax over words"]
    softmax = load_file(folder / SOFTMAX)
    _check_vocabulary(len(softmax["bias"]), folder, job)
    network.softmax.load_state_dict(softmax)
    return []


def _check_vocabulary(theirs: int, folder: Path, job: Job) -> None:
    if theirs != job.vocab_size:
        raise UsageError(
            f"init.source: {folder} has a vocabulary of {theirs:,} tokens, but the tokenizer has "
            f"{job.vocab_size:,}; leave tokenizer.source unset to use the model's tokenizer"
        )
