"""Builds the network and objective of a job, and loads the weights it starts from (`init`)."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from data_prep.errors import UsageError
from pipeline.models.objective import Objective
from pipeline.models.registry import check_architecture, family_of
from pipeline.training.job import Job


def make_network(job: Job) -> tuple[nn.Module, Objective]:
    """Return the job's network with random weights, and its objective."""
    trainer = job.trainer
    return family_of(job.model).build(
        job.model,
        job.vocab_size,
        rows=trainer.global_batch_size // trainer.world_size,
        seed=trainer.seed,
        checkpoint_activations=trainer.activation_checkpointing,
    )


def start_from(network: nn.Module, job: Job, say: Callable[[str], None]) -> None:
    """Load `init.source` or `init.vectors`, where set, into the network, in place.

    Raises `UsageError` if architecture or vocabulary differ.
    """
    family = family_of(job.model)
    if job.vectors is not None:
        set_, total = family.start_embeddings(network, Path(job.vectors), Path(job.tokenizer))
        say(f"{set_:,} of {total:,} embeddings start from vectors of words")
    if job.source is None:
        return
    source = family.load(Path(job.source))
    if source.vocab_size not in (None, job.vocab_size):
        raise UsageError(
            f"init.source: {job.source} has a vocabulary of {source.vocab_size:,} tokens, but the "
            f"tokenizer has {job.vocab_size:,}; leave tokenizer.source unset to use the model's "
            "tokenizer"
        )
    check_architecture(job.model, source.config)
    network.load_state_dict(network.state_dict() | source.state)
    if source.missing:
        say(f"{', '.join(source.missing)} not in init.source: starting fresh")
