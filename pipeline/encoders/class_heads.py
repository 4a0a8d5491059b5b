"""Heads as transformers' classes have them, per architecture and kind of task.

A fine-tuned encoder with such a head is a Hugging Face folder that `AutoModelFor…` loads. A class
puts layers between the hidden states and its last linear layer: BERT's classifier reads the pooler,
ModernBERT's classes have a dense layer with a norm, the classifiers of all others a dense layer.

D hidden width
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.models.classes import SENTENCES, SUFFIXES, class_name

Transform = Callable[[Tensor], Tensor]  # [rows, D] to [rows, D]
# BERT's other classes have no pooler.
HAVE_POOLER = tuple(SUFFIXES[kind] for kind in SENTENCES)


@dataclass(frozen=True)
class ClassHead:
    """The head of one class: its name, and the names of its tensors."""

    name: str  # such as BertForSequenceClassification
    output: str  # module of the last linear layer
    transform: dict[str, str]  # our module of the layers before it to theirs
    stated: dict[str, Any] = field(default_factory=dict)  # settings of these layers (config.json)


class DenseHead(NamedTuple):
    """A class for sentences with a dense layer before its last linear one."""

    dense: str  # module of the dense layer
    output: str  # module of the last linear layer
    activation: str
    setting: str | None = None  # of config.json, which may name another activation


_ROBERTA = DenseHead("classifier.dense", "classifier.out_proj", "tanh")
_DEBERTA = DenseHead("pooler.dense", "classifier", "gelu", "pooler_hidden_act")
DENSE_HEADS = {
    "roformer": DenseHead("classifier.dense", "classifier.out_proj", "gelu", "hidden_act"),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "distilbert": DenseHead("pre_classifier", "classifier", "relu"),
    "electra": DenseHead("classifier.dense", "classifier.out_proj", "gelu"),
    "deberta": _DEBERTA,
    "deberta-v2": _DEBERTA,
}


def class_head(model_type: str, kind: str) -> ClassHead | None:
    """Return the head of an architecture's class for a kind of task; None if we have none such."""
    name = class_name(model_type, kind)
    if name is None:
        return None
    if model_type == "modernbert":
        layers = {"transform.dense": "head.dense", "transform.norm": "head.norm"}
        return ClassHead(name, "classifier", layers)
    if kind == "span":
        return ClassHead(name, "qa_outputs", {})
    if model_type == "roformer" and kind == "choice":
        layers = {"transform.dense": "sequence_summary.summary"}
        stated = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
        return ClassHead(name, "classifier", layers, stated)
    if kind in SENTENCES and model_type in DENSE_HEADS:
        own = DENSE_HEADS[model_type]
        return ClassHead(name, own.output, {"transform.dense": own.dense})
    return ClassHead(name, "classifier", {})


class DenseTransform(nn.Module):
    """Dropout, a dense layer with its activation, and a norm (ModernBERT's only)."""

    def __init__(
        self,
        hidden: int,
        init_std: float,
        activation: Transform = F.gelu,
        dropout: float = 0.0,
        norm: nn.Module | None = None,
        biases: bool = True,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(hidden, hidden, bias=biases)
        self.norm = nn.Identity() if norm is None else norm
        nn.init.normal_(self.dense.weight, std=init_std)
        if biases:
            nn.init.zeros_(self.dense.bias)

    def forward(self, x_RD: Tensor) -> Tensor:
        y_RD: Tensor = self.norm(self.activation(self.dense(self.dropout(x_RD))))
        return y_RD
