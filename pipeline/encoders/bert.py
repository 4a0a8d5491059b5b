"""BERT with its tokenizer as an encoder: units are tokens, with [CLS] and [SEP] added."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor, nn

from data_prep.errors import UsageError
from data_prep.files import atomic_write, write_atomically
from data_prep.tokenizers import Tokenizer
from pipeline.encoders.class_heads import HAVE_POOLER, DenseTransform, Transform
from pipeline.encoders.inputs import InputBatch
from pipeline.encoders.tokenizer_files import copy_tokenizer
from pipeline.encoders.tokens import Template, TokenEncoder
from pipeline.models.bert.architectures import ARCHITECTURES
from pipeline.models.bert.huggingface import to_huggingface
from pipeline.models.bert.network import Bert, MaskedHead, initialise
from pipeline.models.classes import SENTENCES
from pipeline.models.untrusted import State

POOLER = ".pooler."  # part of the names of its tensors


class BertEncoder(TokenEncoder):
    """A BERT with its tokenizer."""

    def __init__(
        self,
        bert: Bert,
        tokenizer: Tokenizer,
        source: Path | None = None,
        masked: MaskedHead | None = None,
        has_pooler: bool = True,
    ) -> None:
        """masked: the pretrained masked-LM head, with whose layers ModernBERT's heads begin.

        has_pooler: False if the pooler's weights are random.
        """
        cls, sep = (tokenizer.cls,), (tokenizer.sep,)
        super().__init__(tokenizer, Template(before=cls, between=sep, after=sep))
        self.bert = bert
        self.source = source
        self._masked = [masked]  # in a list, so that it is not a submodule
        self._has_pooler = has_pooler
        fitting = [each for each in ARCHITECTURES if not each.amiss(bert.config, "none")]
        self._architecture = fitting[0] if fitting else None
        self.model_type = fitting[0].model_type if fitting else None
        self.hidden = bert.config.hidden
        self.states = bert.config.layers + 1
        self.longest = bert.config.max_positions

    def head_layers(self, kind: str) -> Transform | None:
        """Return BERT's pooler, RoFormer's dense layer, or ModernBERT's dense layer and norm."""
        if self.model_type == "modernbert":
            config = self.bert.config
            norm = nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
            transform = DenseTransform(
                config.hidden, config.init_std, norm=norm, biases=config.biases
            )
            [masked] = self._masked
            if masked is not None:
                transform.dense.load_state_dict(masked.transform.state_dict())
                transform.norm.load_state_dict(masked.norm.state_dict())
            return transform
        if kind not in SENTENCES or self.model_type is None:
            return None
        if self.model_type == "roformer":
            config = self.bert.config
            return DenseTransform(config.hidden, config.init_std, dropout=config.dropout)
        if not self._has_pooler:
            initialise(self.bert.pooler, self.bert.config.init_std)
        return self.bert.pool

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder of the encoder alone."""
        self.save_with(folder, {}, {}, None)

    def save_with(
        self, folder: Path, head: State, stated: dict[str, Any], name: str | None
    ) -> None:
        """Write a Hugging Face folder of the encoder and a class's head; see `TokenEncoder`."""
        architecture = self._architecture
        if architecture is None or self.source is None:
            raise UsageError("no class of transformers computes what this encoder does")
        ours = {f"bert.{key}": value.cpu() for key, value in self.bert.state_dict().items()}
        config = self.bert.config
        weights = to_huggingface(ours, architecture, config) | head
        if name is not None and not name.endswith(HAVE_POOLER):
            weights = {key: value for key, value in weights.items() if POOLER not in key}
        with atomic_write(folder / "model.safetensors") as stream:
            stream.write(save(weights, {"format": "pt"}))
        base = architecture.stated(config, self.bert.vocab_size, self.tokenizer.pad)
        written = base | {"architectures": [name or architecture.bare_model]} | stated
        write_atomically(folder / "config.json", json.dumps(written, indent=2) + "\n")
        copy_tokenizer(self.source, folder, config.max_positions, config.segments)

    def recompute_activations(self) -> None:
        """Keep only the inputs of each layer for the backward pass."""
        self.bert.checkpoint_activations = True

    def blocks(self) -> list[list[nn.Parameter]]:
        """Return the embeddings, then one block per layer; the last has final norm and pooler."""
        layers = [list(layer.parameters()) for layer in self.bert.layers]
        embeddings = list(self.bert.embeddings.parameters())
        known = {id(value) for block in (embeddings, *layers) for value in block}
        layers[-1] += [value for value in self.bert.parameters() if id(value) not in known]
        return [embeddings, *layers]

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Return the hidden states x_ND of the embeddings and of every layer."""
        states: list[Tensor] = self.bert(
            batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths
        )
        return states

    def last_states(self, batch: InputBatch, rows_R: Tensor) -> Tensor:
        """Return the last hidden states of some units; the last layer skips all others."""
        return self.bert.last_states(
            batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths, rows_R
        )
