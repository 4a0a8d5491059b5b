"""`sesame bench elmo`: a whole training step at the published sizes, against bare LSTMs.

Ours is a full step of `sesame pretrain`: characters, both directions, the softmax sampled from
100,000 words, gradients, their norm and Adagrad. The peer is only the forward and backward pass of
four `nn.LSTM(512, 4096, proj_size=512)`, two per direction, over the same windows. Our step may
cost 1.6 times as much, a ratio of 0.63. Words repeat as in text (log-uniform), and both directions
read the same words. Measured without clipping of the cell state, and with the published clipping,
which `nn.LSTM` lacks. Takes about two minutes and 4 GB. Try it: sesame bench elmo
"""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from data_prep.tokenizers.characters import character_ids, symbol_counts
from pipeline.bench.figures import Figure, compared
from pipeline.bench.turns import alternate, spent
from pipeline.bench.usage import measure_usage
from pipeline.config.schema import Config
from pipeline.data.streams import WordBatch
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import ElmoForPretraining, draw_negatives
from pipeline.training.optimizers.adagrad import Adagrad

VOCAB, STREAMS, ROUNDS = 100_000, 16, 5
EVALUATED = 64  # streams in an evaluation's batch, as in training
LETTERS = 6  # mean letters of a word after the first
LARGEST_NORM = 10.0
PUBLISHED = ElmoConfig()
UNCLIPPED = replace(PUBLISHED, cell_clip=0.0, projection_clip=0.0)
WORDS = STREAMS * PUBLISHED.window


def measure(config: Config) -> list[Figure]:
    """Return words per second; a word counts once for both directions."""
    warnings.filterwarnings("ignore", "LSTM with projections")  # oneDNN does not support them
    torch.manual_seed(0)
    batch = _batch(np.random.default_rng(0), STREAMS)
    peer = partial(_peer, _bare_lstms(UNCLIPPED))
    peer()  # the first pass allocates
    return [
        _against(peer, "without clipping", UNCLIPPED, batch),
        _against(peer, "clipped as published", PUBLISHED, batch),
        *_evaluation(),
        Figure(f"distinct words among {2 * WORDS:,}", len(batch.characters_UC), "words"),
    ]


def _against(peer: partial[None], name: str, sizes: ElmoConfig, batch: WordBatch) -> Figure:
    model = ElmoForPretraining(sizes, VOCAB)
    optimizer = Adagrad(model.parameters(), initial_accumulator=1.0, eps=1e-10, lr=0.2)
    step = partial(_step, model, optimizer, batch)
    step()  # creates the optimizer state
    title = f"elmo_original, {name}: whole step, against bare nn.LSTM"
    return compared(title, WORDS, "words/s", alternate(step, peer, ROUNDS))


def _evaluation() -> list[Figure]:
    """Return the speed of exact perplexity and its memory besides the weights."""
    model = ElmoForPretraining(PUBLISHED, VOCAB).eval()
    batch = _batch(np.random.default_rng(0), EVALUATED)
    words = batch.forward_targets_ST.numel()
    speed = words / spent(partial(_evaluate, model, batch)).seconds
    return [
        Figure(f"exact perplexity over {VOCAB:,} words", speed, "words/s"),
        *(
            Figure(f"its memory beside the weights, {vocab:,} words", _beside(vocab), "MB")
            for vocab in (VOCAB, 4 * VOCAB)
        ),
    ]


def _beside(vocab: int) -> float:
    """Return the megabytes that an evaluation adds, measured in fresh processes."""
    without, evaluating = (measure_usage(partial(_in_process, vocab, n)) for n in (0, 1))
    return evaluating.megabytes - without.megabytes


def _in_process(vocab: int, evaluations: int) -> None:
    model = ElmoForPretraining(PUBLISHED, vocab).eval()
    batch = _batch(np.random.default_rng(0), EVALUATED)
    for _ in range(evaluations):
        _evaluate(model, batch)


def _batch(rng: np.random.Generator, streams: int) -> WordBatch:
    """Return windows of words with log-uniform frequencies and random spellings."""
    drawn_ST = np.exp(rng.random((streams, PUBLISHED.window)) * np.log(VOCAB)).astype(np.int64)
    words_U, index = np.unique(drawn_ST, return_inverse=True)
    sizes_U = 1 + rng.poisson(LETTERS, len(words_U))
    spelt = ["".join(chr(97 + letter) for letter in rng.integers(0, 26, size)) for size in sizes_U]
    forward_ST, words_ST = (
        torch.from_numpy(index.reshape(drawn_ST.shape)),
        torch.from_numpy(drawn_ST),
    )
    characters = character_ids(spelt)
    return WordBatch(
        characters_UC=torch.from_numpy(characters.astype(np.int32)),
        forward_index_ST=forward_ST,
        backward_index_ST=forward_ST.flip(1),
        forward_targets_ST=words_ST.roll(-1, 1),
        backward_targets_ST=words_ST.flip(1).roll(-1, 1),
        streams=slice(0, streams),
        symbols=symbol_counts(characters),
    )


def _step(model: ElmoForPretraining, optimizer: torch.optim.Optimizer, batch: WordBatch) -> None:
    negatives = draw_negatives(model.elmo.config, VOCAB, 0, torch.device("cpu"))
    losses, _ = model(batch, None, negatives)
    loss = (losses.forward_sum + losses.backward_sum) / (2 * batch.forward_targets_ST.numel())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _bare_lstms(sizes: ElmoConfig) -> list[list[torch.nn.LSTM]]:
    return [
        [
            torch.nn.LSTM(sizes.projection, sizes.cell, proj_size=sizes.projection)
            for _ in range(sizes.layers)
        ]
        for _ in range(2)
    ]


def _peer(directions: list[list[torch.nn.LSTM]]) -> None:
    window_TSP = torch.randn(PUBLISHED.window, STREAMS, PUBLISHED.projection)
    for layers in directions:
        x_TSP = window_TSP
        for layer in layers:
            x_TSP = layer(x_TSP)[0]
        x_TSP.sum().backward()  # type: ignore[no-untyped-call]
        for layer in layers:
            layer.zero_grad(set_to_none=True)


@torch.no_grad()
def _evaluate(model: ElmoForPretraining, batch: WordBatch) -> None:
    model(batch, None, None)
