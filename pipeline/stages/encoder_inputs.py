"""What stages read that stand on an encoder: outputs by role, one or several side by side."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep.fields import result_keys
from pipeline.config import FLOORS, RANDOM, VECTORS, Config
from pipeline.stages.work import Request

if TYPE_CHECKING:
    from pipeline.encoders import Encoder


def encoder_requests(config: Config) -> dict[str, Request]:
    """An output for each encoder; only a vocabulary where its weights are random."""
    requests = {}
    for number, name in enumerate(config.encoders, start=1):
        suffix = "" if len(config.encoders) == 1 else f"_{number}"
        own = replace(config, encoder=name)
        if name == RANDOM:
            requests[f"tokenizer{suffix}"] = Request("tokenizer", own)
        elif name == VECTORS:
            requests[f"encoder{suffix}"] = Request("vectors", own)
        elif name not in FLOORS:
            requests[f"encoder{suffix}"] = Request("export", own)
    return requests


def encoder_keys(config: Config) -> dict[str, Any]:
    """What shapes an encoder that no output tells: the model whose weights are random."""
    return {"model": result_keys(config.model)} if RANDOM in config.encoders else {}


def pieces_keys(config: Config, reaches: Callable[[], Sequence[str | None]]) -> dict[str, Any]:
    """A result key where words once had other pieces than in their text, and have the same now.

    That was so for words cut from a text (spans; several encoders) unless the tokenizer is BERT's
    WordPiece, and for given words (tags) where a tokenizer looks across spaces. All other results
    are as before, and so are their fingerprints.
    """
    kind = config.task.kind
    cuts_texts = kind == "span" or (kind != "tag" and len(config.encoders) > 1)
    if config.task.members or not (cuts_texts or kind == "tag"):
        return {}
    changed = ("space", "text") if cuts_texts else ("text",)
    if not any(reach in changed for reach in reaches()):
        return {}
    return {"pieces": {"of": "whole texts"}}


def open_encoder(config: Config, inputs: dict[str, Path], seed: int) -> "Encoder":
    """The encoder, or all of them as one."""
    from pipeline.encoders import Concatenation, load_encoder, random_encoder

    members = [
        random_encoder(config.model, path, seed)
        if role.startswith("tokenizer")
        else load_encoder(path)
        for role, path in inputs.items()
    ]
    return members[0] if len(members) == 1 else Concatenation(members)


def encoder_label(config: Config) -> str:
    """What tables call the encoder; of a folder or file only its name."""
    return " + ".join("pretrained" if name is None else Path(name).name for name in config.encoders)
