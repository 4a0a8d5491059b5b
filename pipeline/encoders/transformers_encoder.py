"""Encoders of `transformers` for which we have no network: RoBERTa, DistilBERT, DeBERTa and others.

BERT, RoFormer and ModernBERT with settings that our network lacks are among them. Any folder whose
`AutoModel` returns hidden states per layer can be read. Batches are padded inside; the hidden
states outside are flat, as those of every encoder. Weights are read from safetensors only, and no
code of the folder is run.

E inputs, L units of the longest input, N units of a batch, D hidden width
"""

import inspect
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from data_prep.errors import UsageError
from data_prep.files import atomic_write, write_atomically
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.huggingface import Specials
from pipeline.encoders.class_heads import DENSE_HEADS, HAVE_POOLER, DenseTransform, Transform
from pipeline.encoders.inputs import InputBatch
from pipeline.encoders.tokens import Template, TokenEncoder
from pipeline.models.bert.network import initialise
from pipeline.models.classes import PREFIXES, SENTENCES
from pipeline.models.untrusted import State

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PROBE = "a"  # a text that every tokenizer gives at least one token
# Keys of config.json that name a place or belong to an earlier head.
UNSAVED = (
    "_name_or_path", "transformers_version", "id2label", "label2id", "problem_type",
    "finetuning_task", "task_specific_params",
)  # fmt: skip


class TransformersEncoder(TokenEncoder):
    """A model of transformers with its tokenizer."""

    def __init__(
        self,
        network: "PreTrainedModel",
        words: "PreTrainedTokenizerFast",
        has_pooler: bool = True,
        masked: State | None = None,
    ) -> None:
        """has_pooler: False if the pooler's weights, if any, are random.

        masked: the layers of ModernBERT's pretrained masked-LM head, with which its heads begin.
        """
        config = network.config
        super().__init__(_tokenizer(words), _template(words, getattr(config, "type_vocab_size", 0)))
        self.network = network
        self._words = words
        taken = inspect.signature(network.forward).parameters
        self._takes_segments = self.template.has_segments and "token_type_ids" in taken
        self.longest = _longest(network, words)
        self.states, self.hidden = self._measured()
        self.is_causal = self._hides_what_follows()
        self.model_type = config.model_type if config.model_type in PREFIXES else None
        self._has_pooler = has_pooler
        self._masked = masked

    def head_layers(self, kind: str) -> Transform | None:
        """Return BERT's pooler, ModernBERT's dense layer and norm, or others' dense layer."""
        if self.model_type == "modernbert":
            return self._modernbert_layers()
        if kind not in SENTENCES or self.model_type is None:
            return None
        std = getattr(self.network.config, "initializer_range", 0.02)
        if self.model_type == "bert":
            if not self._has_pooler:
                initialise(self.network.pooler, std)
                self._has_pooler = True
            return self._pool
        own = DENSE_HEADS[self.model_type]
        activation = own.activation
        if own.setting is not None and kind != "choice":  # the class for choices states its own
            activation = getattr(self.network.config, own.setting, activation)
        dropout = getattr(self.network.config, "hidden_dropout_prob", 0.0)
        return DenseTransform(self.hidden, std, _activation(activation), dropout)

    def _modernbert_layers(self) -> DenseTransform:
        config = self.network.config
        layers = DenseTransform(
            self.hidden,
            config.initializer_range,
            _activation(config.classifier_activation),
            norm=nn.LayerNorm(self.hidden, config.norm_eps, bias=config.norm_bias),
            biases=config.classifier_bias,
        )
        if self._masked is not None and _shapes(self._masked) == _shapes(layers.state_dict()):
            layers.load_state_dict(self._masked)
        return layers

    def _pool(self, x_RD: Tensor) -> Tensor:
        """Apply the pooler to states of first units."""
        pooled_RD: Tensor = self.network.pooler(x_RD[:, None])
        return pooled_RD

    def save(self, folder: Path) -> None:
        """Write a folder that `AutoModel` and `AutoTokenizer` load."""
        self.save_with(folder, {}, {}, None)

    def save_with(
        self, folder: Path, head: State, stated: dict[str, Any], name: str | None
    ) -> None:
        """Write a folder of the encoder and the head of the class `name`; see `TokenEncoder`."""
        weights = _untied(self.network)
        if not self._has_pooler or (name is not None and not name.endswith(HAVE_POOLER)):
            weights = {key: value for key, value in weights.items() if not is_pooler(key)}
        if name is not None:
            prefix = self.network.base_model_prefix
            weights = {f"{prefix}.{key}": value for key, value in weights.items()} | head
        with atomic_write(folder / "model.safetensors") as stream:
            stream.write(save(weights, {"format": "pt"}))
        config = self.network.config.to_dict()
        base = {key: value for key, value in config.items() if key not in UNSAVED}
        written = base | {"architectures": [name or type(self.network).__name__]} | stated
        if "classifier_pooling" in base:  # of ModernBERT; our heads read the first unit
            written["classifier_pooling"] = "cls"
        write_atomically(folder / "config.json", json.dumps(written, indent=2) + "\n")
        self._words.save_pretrained(folder)
        _forget_place(folder / "tokenizer_config.json")

    def recompute_activations(self) -> None:
        """Keep only the inputs of each layer for the backward pass."""
        self.network.gradient_checkpointing_enable()

    def blocks(self) -> list[list[nn.Parameter]]:
        """Return the embeddings, then one block per layer; the last has all other parameters.

        A network whose layers share their parameters is one block above its embeddings.
        """
        layers = [list(layer.parameters()) for layer in _layers(self.network, self.states - 1)]
        tables = [
            value
            for module in self.network.modules()
            if isinstance(module, nn.Embedding) or "Embeddings" in type(module).__name__
            for value in module.parameters()
        ]
        embeddings = list({id(value): value for value in tables}.values())
        known = {id(value) for block in (embeddings, *layers) for value in block}
        rest = [value for value in self.network.parameters() if id(value) not in known]
        if not layers:
            return [embeddings, rest]
        layers[-1] += rest
        return [embeddings, *layers]

    def lookup_tables(self) -> list[nn.Embedding]:
        """Return the table of tokens; networks may read other tables as a whole."""
        table = self.network.get_input_embeddings()
        return [table] if type(table) is nn.Embedding else []

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Return the hidden states x_ND of the embeddings and of every layer."""
        real_EL, told = self._padded(batch)
        states = self.network(**told, output_hidden_states=True).hidden_states
        return [x_ELD[real_EL] for x_ELD in states]

    def last_states(self, batch: InputBatch, rows_R: Tensor) -> Tensor:
        """Return the last hidden states of some units of a batch, x_RD."""
        real_EL, told = self._padded(batch)
        x_RD: Tensor = self.network(**told).last_hidden_state[real_EL][rows_R]
        return x_RD

    def _padded(self, batch: InputBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the units that are not padding, and the network's arguments."""
        lengths_E1 = torch.from_numpy(batch.lengths).to(batch.tokens_N.device)[:, None]
        real_EL = torch.arange(int(batch.lengths.max()), device=lengths_E1.device) < lengths_E1
        tokens_EL = torch.full_like(real_EL, self.tokenizer.pad, dtype=torch.int64)
        tokens_EL[real_EL] = batch.tokens_N
        told = {"input_ids": tokens_EL, "attention_mask": real_EL.long()}
        if self._takes_segments:
            told["token_type_ids"] = torch.zeros_like(tokens_EL)
            told["token_type_ids"][real_EL] = batch.segments_N
        return real_EL, told

    @torch.no_grad()
    def _measured(self) -> tuple[int, int]:
        """Return the number and width of hidden states. Raises UsageError if they do not fit."""
        self.network.eval()
        batch = self.encode_texts([(PROBE,)], self.longest or 64).batch(torch.arange(1).numpy())
        answer = self.network(**self._padded(batch)[1], output_hidden_states=True)
        shapes = {state.shape[:2] for state in answer.hidden_states or ()}
        widths = {state.shape[-1] for state in answer.hidden_states or ()}
        if shapes != {(1, len(batch.tokens_N))} or len(widths) != 1:
            raise UsageError(
                f"encoder: {type(self.network).__name__} does not give one hidden state per token "
                "and layer; choose an encoder such as BERT or RoBERTa"
            )
        return len(answer.hidden_states), *widths

    @torch.no_grad()
    def _hides_what_follows(self) -> bool:
        """Return True if the first unit's state is the same whatever follows it."""
        inputs = self.encode_texts([(f"{PROBE} {PROBE}",)], self.longest or 64)
        batch, first = inputs.batch(torch.arange(1).numpy()), torch.arange(1)
        others_N = (batch.tokens_N + 1) % self.tokenizer.size
        others_N[0] = batch.tokens_N[0]
        x_1D = self.last_states(batch, first)
        y_1D = self.last_states(replace(batch, tokens_N=others_N), first)
        return len(others_N) > 1 and torch.allclose(x_1D, y_1D, rtol=0, atol=1e-6)


def _shapes(state: State) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in state.items()}


def is_pooler(name: str) -> bool:
    """Return True for a tensor of the layer over the first unit that BERT has."""
    return name.startswith("pooler.")


def _activation(name: str) -> Transform:
    """Return an activation by the name that it has in config.json."""
    from transformers.activations import ACT2FN

    found: Transform = ACT2FN[name]
    return found


def _tokenizer(words: "PreTrainedTokenizerFast") -> Tokenizer:
    """Return the library's tokenizer as ours; a role without a token takes another special one."""
    others = (words.unk_token, words.eos_token, words.pad_token, *words.all_special_tokens)
    other = next((token for token in others if token), None)
    if other is None:
        raise UsageError(f"{words.name_or_path}: its tokenizer has no special token")
    roles = ("pad", "unk", "cls", "sep", "mask")
    specials = Specials(**{role: getattr(words, f"{role}_token") or other for role in roles})
    library = words.backend_tokenizer
    library.no_truncation()
    library.no_padding()
    return Tokenizer(library, specials)


def _template(words: "PreTrainedTokenizerFast", segments: int) -> Template:
    """Find the special tokens around sentences by encoding a pair."""
    library = words.backend_tokenizer
    pair = library.encode(PROBE, PROBE)
    is_special = [bool(mark) for mark in pair.special_tokens_mask]
    first = is_special.index(False)
    last = len(is_special) - is_special[::-1].index(False)
    middle = [place for place in range(first, last) if is_special[place]]
    after_first = middle[-1] + 1 if middle else last
    is_numbered = set(pair.type_ids[after_first:last]) == {1}
    is_told = "token_type_ids" in words.model_input_names
    return Template(
        before=tuple(pair.ids[:first]),
        between=tuple(pair.ids[place] for place in middle),
        after=tuple(pair.ids[last:]),
        has_segments=segments > 1 and is_told and is_numbered,
    )


def _longest(network: "PreTrainedModel", words: "PreTrainedTokenizerFast") -> int | None:
    """Return the maximum units of an input; None if there is no limit.

    RoBERTa numbers positions from the id of padding on, so its table has some rows more.
    """
    stated = [words.model_max_length, getattr(network.config, "max_position_embeddings", None)]
    for name, table in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
            skipped = 0 if table.padding_idx is None else table.padding_idx + 1
            stated.append(table.num_embeddings - skipped)
    numbers = [value for value in stated if isinstance(value, int) and 0 < value < 1 << 30]
    return min(numbers, default=None)


def _layers(network: nn.Module, count: int) -> Sequence[nn.Module]:
    """Return the network's layers: its first list of this many modules; empty if it has none."""
    lists = (module for module in network.modules() if isinstance(module, nn.ModuleList))
    return next((list(each) for each in lists if len(each) == count), [])


def _untied(network: nn.Module) -> State:
    """Return copies of all tensors, as a file may not hold one tensor under two names."""
    return {name: value.cpu().clone() for name, value in network.state_dict().items()}


def _forget_place(path: Path) -> None:
    """Remove the folder's name from a tokenizer's settings."""
    stated = json.loads(path.read_text())
    stated.pop("name_or_path", None)
    write_atomically(path, json.dumps(stated, indent=2, ensure_ascii=False) + "\n")
