"""Heads as transformers' classes have them, per architecture and kind of task.

A fine-tuned encoder with such a head is a Hugging Face folder that `AutoModelFor…` loads. A class
puts layers between the hidden states and its last linear layer: BERT's classifier reads the pooler,
RoFormer's a dense layer, ModernBERT's classes a dense layer with a norm.

D hidden width
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.models.bert.config import BertConfig

Transform = Callable[[Tensor], Tensor]  # [rows, D] to [rows, D]
# The task's kind to the class's suffix.
SUFFIXES = {
    "classify": "ForSequenceClassification",
    "regress": "ForSequenceClassification",
    "tag": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
SENTENCES = ("classify", "regress", "choice")  # kinds with one answer per input
# BERT's other classes have no pooler.
HAVE_POOLER = tuple(SUFFIXES[kind] for kind in SENTENCES)


@dataclass(frozen=True)
class ClassHead:
    """The head of one class: its name, and the names of its tensors."""

    name: str  # such as BertForSequenceClassification
    output: str  # module of the last linear layer
    transform: dict[str, str]  # our module of the layers before it to theirs
    stated: dict[str, Any] = field(default_factory=dict)  # settings of these layers (config.json)


PREFIXES = {"bert": "Bert", "roformer": "RoFormer", "modernbert": "ModernBert"}


def class_head(model_type: str, kind: str) -> ClassHead:
    """Return the head of an architecture's class for a kind of task."""
    name = PREFIXES[model_type] + SUFFIXES[kind]
    if model_type == "modernbert":
        own = {"transform.dense": "head.dense", "transform.norm": "head.norm"}
        return ClassHead(name, "classifier", own)
    if kind == "span":
        return ClassHead(name, "qa_outputs", {})
    if model_type == "roformer" and kind == "choice":
        own = {"transform.dense": "sequence_summary.summary"}
        stated = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
        return ClassHead(name, "classifier", own, stated)
    if model_type == "roformer" and kind in SENTENCES:
        return ClassHead(name, "classifier.out_proj", {"transform.dense": "classifier.dense"})
    return ClassHead(name, "classifier", {})


class DenseTransform(nn.Module):
    """A dense layer with GELU; dropout before it (RoFormer), or a norm after it (ModernBERT)."""

    def __init__(self, config: BertConfig, has_norm: bool) -> None:
        super().__init__()
        self.dropout = nn.Identity() if has_norm else nn.Dropout(config.dropout)
        self.dense = nn.Linear(config.hidden, config.hidden, bias=config.biases)
        self.norm = (
            nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
            if has_norm
            else nn.Identity()
        )
        nn.init.normal_(self.dense.weight, std=config.init_std)
        if self.dense.bias is not None:
            nn.init.zeros_(self.dense.bias)

    def forward(self, x_RD: Tensor) -> Tensor:
        y_RD: Tensor = self.norm(F.gelu(self.dense(self.dropout(x_RD))))
        return y_RD
