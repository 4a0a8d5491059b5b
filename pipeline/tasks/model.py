"""An encoder with a head, and its answers for a set of inputs.

U rows of the head's answers, C classes
"""

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.encoders import Encoder, InputBatch, for_each_batch
from pipeline.tasks.answers import Answers, Floats
from pipeline.tasks.batches import Ints, TaskData
from pipeline.tasks.heads import Head


class Model(nn.Module):
    """An encoder with a head. `frozen`: the encoder gets no gradients and no dropout."""

    def __init__(self, encoder: Encoder, head: Head, frozen: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.frozen = frozen
        encoder.requires_grad_(not frozen)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.head.output.weight.device

    def train(self, mode: bool = True) -> "Model":
        """Set training mode; a frozen encoder always stays in evaluation mode."""
        super().train(mode)
        self.encoder.train(mode and not self.frozen)
        return self

    def forward(
        self, batch: InputBatch, gold: Tensor | None = None, is_counted: bool = True
    ) -> Tensor:
        """Return the head's answers [U, C] for a batch (rows as in `heads`).

        With `gold`, return the sum of the losses instead: wrappers of a network, such as
        DeepSpeed's, must see every use of its weights. `is_counted`: False for a batch that a rank
        computes only because the others have one; it changes no moment of the head.
        """
        self.head.is_counted = is_counted
        answers = self._answers(batch)
        return answers if gold is None else self.head.loss_sums(answers.float(), gold, batch)[0]

    def _answers(self, batch: InputBatch) -> Tensor:
        rows_R = self.head.rows(batch)
        if rows_R is not None and not (self.training and self.head.kind == "tag"):
            return self.head.read(self.encoder.last_states(batch, rows_R), batch)
        answers: Tensor = self.head(self.encoder(batch), batch)
        return answers

    def trained_state(self) -> dict[str, Tensor]:
        """Return a copy of all trained parameters and of the head's moments."""
        learned = {n: value for n, value in self.named_parameters() if value.requires_grad}
        own = dict(self.head.named_parameters(prefix="head"))
        return {name: value.detach().clone() for name, value in (learned | own).items()}


def development_score(model: Model, dev: TaskData, answers: Answers, metric: str) -> float:
    """Return a score on the development set, with a decision threshold tuned on it.

    Puts the model into evaluation mode.
    """
    outputs = head_outputs(model, dev)
    tuned = answers.tuned(outputs, dev)
    return tuned.score(dev.examples, tuned.decode(outputs, dev))[metric]


def head_outputs(model: Model, data: TaskData) -> Floats:
    """Return the head's answers for all inputs, in their order: [U, C].

    Puts the model into evaluation mode.
    """
    model.eval()
    outputs = np.empty((len(data.gold), model.head.columns), np.float32)

    def compute(rows: Ints) -> tuple[Ints, Floats]:
        batch = data.inputs.batch(rows).to(model.device)
        answers_UC: Floats = model.head.decide(model(batch), batch).float().cpu().numpy()
        return rows, answers_UC

    for rows, answers_UC in for_each_batch(compute, data.inputs.lengths, model.device):
        outputs[data.places(rows)] = answers_UC
    return outputs
