"""`sesame bench train`: a whole training step beside transformers in a plain loop.

Same rows (BERT's mix of lengths at 128 positions), same threads, same optimizer, sides alternating;
the peer pads to the longest row and computes logits everywhere, as `BertForPreTraining` does.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.bench.figures import Figure, alternate, compared
from pipeline.config import Config
from pipeline.data.batch import Batch
from pipeline.models.bert import BertForPretraining
from pipeline.models.config import BertConfig
from pipeline.models.huggingface import huggingface_config

VOCAB, LENGTH, MASKED, SHORT = 30_522, 128, 0.15, 0.1
PAD = 0


@dataclass(frozen=True)
class Size:
    """A model and how much work a round of it is."""

    name: str
    config: BertConfig
    rows: int
    rounds: int


SIZES = (
    Size("bert_tiny", BertConfig(layers=2, hidden=128, heads=2, intermediate=512), 32, 15),
    Size("bert_mini", BertConfig(layers=4, hidden=256, heads=4, intermediate=1024), 32, 9),
    Size("bert_base", BertConfig(), 8, 3),
)


def measure(config: Config) -> list[Figure]:
    """Useful tokens a second of every size."""
    return [_measure(size) for size in SIZES]


def _measure(size: Size) -> Figure:
    from transformers import AutoModelForPreTraining
    from transformers import BertConfig as PeerConfig

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    short = rng.random(size.rows) < SHORT
    lengths = np.where(short, rng.integers(8, LENGTH + 1, size.rows), LENGTH)
    batch = _batch(lengths, rng)
    ours = BertForPretraining(size.config, VOCAB).train()
    stated = PeerConfig(**huggingface_config(size.config, VOCAB, PAD))
    peer = AutoModelForPreTraining.from_config(stated).train()
    step = partial(_ours, ours, _optimizer(ours), batch)
    peer_step = partial(_peer, peer, _optimizer(peer), _padded(batch))
    step(), peer_step()  # the first step allocates
    rounds = alternate(step, peer_step, size.rounds)
    return compared(f"{size.name}, useful tokens", int(lengths.sum()), "tokens/s", rounds)


def _optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def _batch(lengths: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Batch:
    """Random rows of these lengths, masked and paired."""
    total = int(lengths.sum())
    positions = np.concatenate([np.arange(length) for length in lengths])
    targets = np.sort(rng.choice(total, int(MASKED * total), replace=False))
    return Batch(
        tokens_N=torch.from_numpy(rng.integers(5, VOCAB, total)),
        positions_N=torch.from_numpy(positions),
        segments_N=torch.from_numpy((positions >= LENGTH // 2).astype(np.int64)),
        lengths=lengths,
        targets_M=torch.from_numpy(targets),
        labels_M=torch.from_numpy(rng.integers(5, VOCAB, len(targets))),
        pair_labels_E=torch.from_numpy(rng.integers(0, 2, len(lengths))),
    )


def _padded(batch: Batch) -> dict[str, Tensor]:
    """The same rows as transformers takes them."""
    real_BL = torch.arange(LENGTH) < torch.from_numpy(batch.lengths)[:, None]
    labels_N = torch.full_like(batch.tokens_N, -100)
    labels_N[batch.targets_M] = batch.labels_M

    def spread(values_N: Tensor, fill: int) -> Tensor:
        padded_BL = torch.full(real_BL.shape, fill)
        padded_BL[real_BL] = values_N
        return padded_BL

    return {
        "input_ids": spread(batch.tokens_N, PAD),
        "token_type_ids": spread(batch.segments_N, 0),
        "attention_mask": real_BL.long(),
        "labels": spread(labels_N, -100),
        "next_sentence_label": batch.pair_labels_E,
    }


def _ours(model: BertForPretraining, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    losses = model(batch)
    loss = losses.mlm_sum / len(batch.labels_M) + losses.pair_sum / len(batch.lengths)
    _update(loss, optimizer)


def _peer(model: Any, optimizer: torch.optim.Optimizer, inputs: dict[str, Tensor]) -> None:
    _update(model(**inputs).loss, optimizer)


def _update(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
