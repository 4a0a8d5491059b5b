"""The peer of fine-tuning benchmarks: a class of transformers in the training loop of its examples.

It shuffles, pads each batch to its longest input (or to a given width), and steps fused AdamW with
linear warm-up and decay; biases and norms have no weight decay. Inputs are tokenised beforehand, by
our tokenizer. For tasks of the kinds classify, regress and tag.

E inputs, L padded length, N units without padding, W words, U rows of answers, C classes
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.tasks.batches import TaskData
from pipeline.tasks.finetune_config import FinetuneConfig
from pipeline.tasks.optimizer import learning_rate

KINDS = ("classify", "regress", "tag")
IGNORED = -100  # transformers' label of a token without a loss


class Padded(NamedTuple):
    """A batch as transformers takes it."""

    inputs: dict[str, Tensor]
    is_real_EL: Tensor
    word_starts_W: Tensor  # index into N; empty for plain texts
    gold_U: Tensor


class TransformersLoop:
    """Trains `model` in place and computes its answers."""

    def __init__(
        self, model: Any, config: FinetuneConfig, pad: int, width: int | None = None
    ) -> None:
        """`pad`: the padding's token id. `width`: length of every input; None: of the longest."""
        self.model = model
        self._config, self._pad, self._width = config, pad, width

    def epochs(self, train: TaskData) -> Iterator[int]:
        """Train; yield the number of each finished epoch, from 1."""
        config = self._config
        steps = -(-len(train.counts) // config.batch_size) * config.epochs
        groups = parameter_groups(self.model, config.weight_decay)
        optimizer = torch.optim.AdamW(groups, lr=config.lr, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: learning_rate(step, steps, config.warmup)
        )
        for epoch in range(config.epochs):
            self.model.train()
            rng = np.random.default_rng([config.seed, epoch])
            for batch in self._batches(train, rng.permutation(len(train.counts))):
                optimizer.zero_grad(set_to_none=True)
                labels = _labels(batch)
                torch.autograd.backward(self.model(**batch.inputs, labels=labels).loss)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
                optimizer.step()
                schedule.step()
            yield epoch + 1

    @torch.inference_mode()
    def outputs(self, data: TaskData) -> NDArray[np.float32]:
        """Return the logits of all rows of answers, [U, C], in the order of `data`."""
        self.model.eval()
        outputs = []
        for batch in self._batches(data, np.arange(len(data.counts))):
            logits = self.model(**batch.inputs).logits  # [E, C], or [E, L, C] of tags
            if logits.ndim == 3:
                logits = logits[batch.is_real_EL][batch.word_starts_W]
            outputs.append(logits)
        return torch.cat(outputs).numpy()

    def _batches(self, data: TaskData, order: NDArray[np.int64]) -> Iterator[Padded]:
        size = self._config.batch_size
        for rows in np.split(order, range(size, len(order), size)):
            batch, gold_U = data.batch(rows)
            width = self._width or int(batch.lengths.max())
            is_real_EL = torch.arange(width) < torch.from_numpy(batch.lengths)[:, None]
            tokens_EL = torch.full(is_real_EL.shape, self._pad)
            tokens_EL[is_real_EL] = batch.tokens_N
            inputs = {"input_ids": tokens_EL, "attention_mask": is_real_EL.long()}
            if batch.segments_N.any():
                inputs["token_type_ids"] = torch.zeros_like(tokens_EL)
                inputs["token_type_ids"][is_real_EL] = batch.segments_N
            yield Padded(inputs, is_real_EL, batch.word_starts_W, gold_U)


def parameter_groups(model: torch.nn.Module, decay: float) -> list[dict[str, Any]]:
    """Return AdamW's groups: biases and norms do not decay, as in transformers' own examples."""
    values = list(model.parameters())
    return [
        {"params": [value for value in values if value.ndim > 1], "weight_decay": decay},
        {"params": [value for value in values if value.ndim <= 1], "weight_decay": 0.0},
    ]


def _labels(batch: Padded) -> Tensor:
    """Return the targets as transformers takes them: of tags, at the first token of each word."""
    if not len(batch.word_starts_W):
        return batch.gold_U
    labels_N = torch.full((int(batch.is_real_EL.sum()),), IGNORED)
    labels_N[batch.word_starts_W] = batch.gold_U
    labels_EL = torch.full(batch.is_real_EL.shape, IGNORED)
    labels_EL[batch.is_real_EL] = labels_N
    return labels_EL
