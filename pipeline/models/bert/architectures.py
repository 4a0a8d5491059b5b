"""The architectures of transformers that our BERT can be exported to: BERT, RoFormer, ModernBERT.

For each: the options that fit, the names of tensors, and config.json. A model must fit one of them
exactly, or it cannot be exported. This is checked from the config, before any training. Without
torch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.fields import check, check_types
from data_prep.reading.untrusted import read_object
from pipeline.models.bert.config import SEGMENTS, BertConfig
from pipeline.models.config import THETA, setting

MOST_TOKENS = 1 << 31  # in a vocabulary; published ones have up to a million
Names = dict[str, tuple[str, ...]]  # our module -> theirs; their tensors concatenated give ours


@dataclass(frozen=True)
class Architecture:
    """An encoder of transformers, and how it corresponds to ours."""

    title: str
    model_type: str
    model: str  # class of transformers with all its heads
    has_pairs: bool  # has a pooler and a head for pairs of segments
    is_interleaved: bool  # rotary pairs are adjacent; ours are (i, i + D/2)
    options: dict[str, Any]  # required values of our options
    keys: dict[str, str]  # our option -> key of config.json
    fixed: dict[
        str, Any
    ]  # required values of other keys of config.json; None: written, not checked
    absent: dict[str, Any]  # transformers' defaults of keys, where they differ from ours
    encoder: str  # name of the encoder inside the model with heads
    bare: tuple[str, ...]  # beginnings of tensor names in a file with the encoder only
    modules: Names  # outside the layers
    layers: str  # prefix of the layers' names
    layer_modules: Names  # inside a layer

    @property
    def bare_model(self) -> str:
        """The class of the encoder alone, such as BertModel."""
        return f"{self.model.partition('For')[0]}Model"

    def names(self, ours: str) -> list[str]:
        """Return the names of the tensors that, concatenated, are our tensor; empty if it has no
        counterpart."""
        module, _, kind = ours.rpartition(".")
        if not module.startswith("bert.layers."):
            return [f"{name}.{kind}" for name in self.modules[module]]
        number, _, part = module.removeprefix("bert.layers.").partition(".")
        return [f"{self.layers}.{number}.{name}.{kind}" for name in self.layer_modules[part]]

    def stated(self, config: BertConfig, vocab_size: int, pad: int) -> dict[str, Any]:
        """Return the content of config.json for transformers."""
        return {
            "architectures": [self.model],
            "model_type": self.model_type,
            "vocab_size": vocab_size,
            "pad_token_id": pad,
            **{theirs: getattr(config, ours) for ours, theirs in self.keys.items()},
            **self.fixed,
        }

    def amiss(self, config: BertConfig, pairs: str) -> dict[str, str]:
        """Return the settings that do not fit, each with the setting that would."""
        wrong = {
            setting(key, getattr(config, key)): setting(key, needed)
            for key, needed in self.options.items()
            if getattr(config, key) != needed
        }
        if pairs != "none" and not self.has_pairs:
            wrong[f"examples.pairs={pairs}"] = "examples.pairs=none"
        return wrong


BERT = Architecture(
    title="BERT",
    model_type="bert",
    model="BertForPreTraining",
    has_pairs=True,
    is_interleaved=False,
    options={
        "norm": "post",
        "positions": "learned",
        "activation": "gelu",
        "biases": True,
        "segments": True,
        "global_every": 1,
        "rotary_base": THETA,
    },
    keys={
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "intermediate": "intermediate_size",
        "max_positions": "max_position_embeddings",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "norm_eps": "layer_norm_eps",
        "init_std": "initializer_range",
        "tied": "tie_word_embeddings",
    },
    fixed={
        "hidden_act": "gelu",
        "type_vocab_size": SEGMENTS,
        "position_embedding_type": "absolute",
        "is_decoder": False,
    },
    absent={},
    encoder="bert",
    bare=("embeddings.", "encoder.", "pooler."),
    modules={
        "bert.embeddings.tokens": ("bert.embeddings.word_embeddings",),
        "bert.embeddings.positions": ("bert.embeddings.position_embeddings",),
        "bert.embeddings.segments": ("bert.embeddings.token_type_embeddings",),
        "bert.embeddings.norm": ("bert.embeddings.LayerNorm",),
        "bert.pooler": ("bert.pooler.dense",),
        "masked": ("cls.predictions",),
        "masked.transform": ("cls.predictions.transform.dense",),
        "masked.norm": ("cls.predictions.transform.LayerNorm",),
        "masked.decoder": ("cls.predictions.decoder",),
        "pair": ("cls.seq_relationship",),
    },
    layers="bert.encoder.layer",
    layer_modules={
        "attention.qkv": tuple(f"attention.self.{name}" for name in ("query", "key", "value")),
        "attention.output": ("attention.output.dense",),
        "attention_norm": ("attention.output.LayerNorm",),
        "feedforward.input": ("intermediate.dense",),
        "feedforward.output": ("output.dense",),
        "feedforward_norm": ("output.LayerNorm",),
    },
)

# Su et al. 2021: BERT with rotary positions, and without pairs.
ROFORMER = Architecture(
    title="RoFormer",
    model_type="roformer",
    model="RoFormerForMaskedLM",
    has_pairs=False,
    is_interleaved=True,
    options=BERT.options | {"positions": "rotary"},
    keys=BERT.keys,
    fixed={
        "hidden_act": "gelu",
        "type_vocab_size": SEGMENTS,
        "rotary_value": False,
        "is_decoder": False,
    },
    absent={},
    encoder="roformer",
    bare=BERT.bare,
    modules={
        ours: tuple(name.replace("bert.", "roformer.", 1) for name in theirs)
        for ours, theirs in BERT.modules.items()
    }
    | {"bert.pooler": (), "pair": ()},
    layers="roformer.encoder.layer",
    layer_modules=BERT.layer_modules,
)

# Warner et al. 2024, with global attention in every layer or in every n-th.
MODERNBERT = Architecture(
    title="ModernBERT",
    model_type="modernbert",
    model="ModernBertForMaskedLM",
    has_pairs=False,
    is_interleaved=False,
    options={
        "norm": "pre",
        "positions": "rotary",
        "activation": "geglu",
        "biases": False,
        "segments": False,
    },
    keys=BERT.keys
    | {
        "dropout": "embedding_dropout",
        "attention_dropout": "attention_dropout",
        "norm_eps": "norm_eps",
        "global_every": "global_attn_every_n_layers",
        "local_window": "local_attention",
        "rotary_base": "global_rope_theta",
    },
    fixed={
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "local_rope_theta": THETA,
        # transformers' defaults are ids of ModernBERT's own vocabulary.
        **dict.fromkeys(("bos_token_id", "cls_token_id", "sep_token_id", "eos_token_id")),
    },
    absent={
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": THETA,
    },
    encoder="model",
    bare=("embeddings.", "layers.", "final_norm."),
    modules={
        "bert.embeddings.tokens": ("model.embeddings.tok_embeddings",),
        "bert.embeddings.norm": ("model.embeddings.norm",),
        "bert.final_norm": ("model.final_norm",),
        "bert.pooler": (),
        "masked": ("decoder",),
        "masked.transform": ("head.dense",),
        "masked.norm": ("head.norm",),
        "masked.decoder": ("decoder",),
        "pair": (),
    },
    layers="model.layers",
    layer_modules={
        "attention.qkv": ("attn.Wqkv",),
        "attention.output": ("attn.Wo",),
        "attention_norm": ("attn_norm",),
        "feedforward.input": ("mlp.Wi",),
        "feedforward.output": ("mlp.Wo",),
        "feedforward_norm": ("mlp_norm",),
    },
)

ARCHITECTURES = (BERT, ROFORMER, MODERNBERT)


def fitting(config: BertConfig, pairs: str) -> Architecture:
    """Return the architecture that computes exactly the same as the model.

    Raises `UsageError` with the nearest remedies if there is none.
    """
    amiss = {each.title: each.amiss(config, pairs) for each in ARCHITECTURES}
    fewest = min(map(len, amiss.values()))
    nearest = {title: wrong for title, wrong in amiss.items() if len(wrong) == fewest}
    if not fewest:
        return next(each for each in ARCHITECTURES if each.title in nearest)
    odd = dict.fromkeys(setting for wrong in nearest.values() for setting in wrong)
    remedies = [f"{' '.join(wrong.values())} ({title})" for title, wrong in nearest.items()]
    raise UsageError(
        f"{', '.join(odd)}: no architecture of transformers computes exactly this, so the model "
        f"cannot be exported; pretrain with {' or '.join(remedies)}, or leave export and what "
        "needs it out of stages"
    )


@dataclass(frozen=True)
class Stated:
    """The content of a folder's config.json, converted."""

    architecture: Architecture
    config: BertConfig
    vocab_size: int | None


class OtherNetworkError(UsageError):
    """The settings of a folder need a network that we do not have, though transformers may."""

    def __init__(self, path: Path, key: str, value: object, readable: str) -> None:
        self.setting = f"{key}={value!s:.40}"
        super().__init__(f"{path}: {key} is {value!s:.40}; only {readable} can be read")


def foreign_setting(folder: Path) -> str | None:
    """Return the setting of config.json for which only transformers may have a network.

    Such as `model_type=roberta` or `hidden_act=relu`; None if our network computes the encoder, or
    if the file cannot be used at all, as `read_stated` reports.
    """
    try:
        read_stated(folder)
    except OtherNetworkError as error:
        return error.setting
    except SesameError:
        return None
    return None


def read_stated(folder: Path) -> Stated:
    """Read config.json of a Hugging Face folder.

    Raises OtherNetworkError if another network is needed, and SesameError for a damaged file.
    """
    path = folder / "config.json"
    if not path.exists():
        raise UsageError(f"{path}: there is no such file; give a Hugging Face BERT folder")
    stated = read_object(path)
    known = {each.model_type: each for each in ARCHITECTURES}
    model_type = stated.get("model_type", BERT.model_type)
    if not isinstance(model_type, str):
        raise UsageError(f"{path}: model_type is {model_type!s:.40}, which is no name")
    if model_type not in known:
        raise OtherNetworkError(path, "model_type", model_type, ", ".join(known))
    architecture = known[model_type]
    try:
        said = architecture.absent | _said_once(stated, path)
    except (TypeError, AttributeError, KeyError) as error:
        raise UsageError(f"{path}: not the settings of a {architecture.title}") from error
    for key, value in architecture.fixed.items():
        if value is not None and said.get(key, value) != value:
            raise OtherNetworkError(path, key, said[key], value)
    given = {ours: said[theirs] for ours, theirs in architecture.keys.items() if theirs in said}
    config = BertConfig(**architecture.options | given)
    narrow = said.get("embedding_size") if architecture is ROFORMER else None
    if narrow not in (None, config.hidden):
        raise OtherNetworkError(path, "embedding_size", narrow, "that of hidden_size")
    vocab_size = stated.get("vocab_size")
    is_number = isinstance(vocab_size, int) and not isinstance(vocab_size, bool)
    if vocab_size is not None and not (is_number and 1 <= vocab_size <= MOST_TOKENS):
        raise UsageError(f"{path}: vocab_size must be a whole number from 1 to {MOST_TOKENS:,}")
    try:
        check_types(config, "model.")
        check(config, "model.")
        config.check()
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return Stated(architecture, config, vocab_size)


def _said_once(stated: dict[str, Any], path: Path) -> dict[str, Any]:
    """Convert ModernBERT's per-layer settings of newer transformers to the older global keys.

    Raises OtherNetworkError for scaled rotary positions and for layers in another order than ours.
    """
    once = dict(stated)
    for kind, key in (("full", "global_rope_theta"), ("sliding", "local_rope_theta")):
        if rope := (stated.get("rope_parameters") or {}).get(f"{kind}_attention"):
            if (rope_type := rope.get("rope_type", "default")) != "default":
                raise OtherNetworkError(path, "rope_type", rope_type, "default")
            once[key] = float(rope["rope_theta"])
    if layers := list(stated.get("layer_types") or ()):
        later = [number for number in range(1, len(layers)) if layers[number] == "full_attention"]
        n = later[0] if later else len(layers)
        if layers != [f"{'sliding' if i % n else 'full'}_attention" for i in range(len(layers))]:
            raise OtherNetworkError(
                path, "layer_types", "irregular",
                "full_attention in every n-th layer from the first on, sliding_attention in others",
            )  # fmt: skip
        once["global_attn_every_n_layers"] = n
    return once
