"""The architecture that a Hugging Face folder's config.json states; torch-free."""

import json
from dataclasses import dataclass
from pathlib import Path

from data_prep.errors import UsageError
from pipeline.models.config import BertConfig

SEGMENTS = 2
NEEDED = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "type_vocab_size": SEGMENTS,
    "position_embedding_type": "absolute",
    "is_decoder": False,
}
KEYS = {
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
}


@dataclass(frozen=True)
class Stated:
    """What config.json says."""

    config: BertConfig
    vocab_size: int | None


def read_stated(folder: Path) -> Stated:
    """The architecture of a folder, or why it is none that can be read."""
    path = folder / "config.json"
    try:
        stated = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read; give a Hugging Face BERT folder") from error
    for key, value in NEEDED.items():
        if stated.get(key, value) != value:
            raise UsageError(f"{path}: {key} is {stated[key]}; only {value} can be read")
    given = {ours: stated[theirs] for ours, theirs in KEYS.items() if theirs in stated}
    return Stated(BertConfig(**given), stated.get("vocab_size"))
