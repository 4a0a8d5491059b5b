"""Inputs of the stages that use an encoder: one output per encoder, by role."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep.errors import UsageError
from data_prep.fields import result_keys
from data_prep.reading.untrusted import read_object
from pipeline.config.schema import FLOORS, RANDOM, VECTORS, Config, is_random
from pipeline.models.config import ModelConfig
from pipeline.models.registry import architecture_of, family_of, family_of_folder
from pipeline.store.outputs import Store
from pipeline.store.references import Folder, resolve
from pipeline.tasks.config import OF_TEXTS
from pipeline.training.source import read_model
from pipeline.workflow.stage import Node, Request

if TYPE_CHECKING:
    from pipeline.encoders import Encoder


def encoder_requests(config: Config) -> dict[str, Request]:
    """Return one request per encoder, by role: an export, word vectors, or for a random encoder its
    tokenizer. Baselines (`FLOORS`) request nothing."""
    requests = {}
    for number, name in enumerate(config.encoders, start=1):
        suffix = "" if len(config.encoders) == 1 else f"_{number}"
        own = replace(config, encoder=name)
        if is_random(name):
            requests[f"tokenizer{suffix}"] = Request("tokenizer", _of_twin(own))
        elif name == VECTORS:
            requests[f"encoder{suffix}"] = Request("vectors", own)
        elif name not in FLOORS:
            requests[f"encoder{suffix}"] = Request("export", own)
    return requests


def encoder_keys(config: Config) -> dict[str, Any]:
    """Return fingerprint keys of encoders that no input identifies.

    A random encoder is identified by its model. A baseline reads no output, so its name must be a
    key; otherwise all baselines would share one fingerprint. The key `pieces` separates tasks over
    words from outputs of an earlier version, which tokenized each word alone instead of the whole
    text. Tasks over whole texts were not affected. The key `words` does so for texts with spans:
    an earlier version split them at punctuation, and task.word_split is not hashed at its default.
    """
    keys: dict[str, Any] = {}
    for name in filter(is_random, config.encoders):
        model = random_model(replace(config, encoder=name))
        unread = family_of(model).objective_keys
        own = {key: value for key, value in result_keys(model).items() if key not in unread}
        if own not in keys.values():
            keys[f"model_{len(keys) + 1}" if keys else "model"] = own
    for name in FLOORS:
        if name in config.encoders:
            keys["encoder"] = {"floor": name}
    if config.task.kind in ("span", "tag") or len(config.encoders) > 1:
        keys["pieces"] = {"of": "whole texts"}
    if config.task.reader in OF_TEXTS:
        keys["words"] = {"by": config.task.word_split}
    return keys


def earlier_encoder_keys(config: Config) -> dict[str, Any]:
    """Return `encoder_keys` as earlier versions hashed them: with all options of the model."""
    keys = encoder_keys(config)
    return keys | ({"model": result_keys(config.model)} if RANDOM in config.encoders else {})


def open_encoder(config: Config, inputs: dict[str, Path], seed: int) -> "Encoder":
    """Load the encoder; several encoders become one that concatenates their vectors."""
    from pipeline.encoders import Concatenation, load_encoder, random_encoder

    members = [
        random_encoder(random_model(replace(config, encoder=name)), path, seed)
        if is_random(name)
        else load_encoder(path)
        for name, path in zip(config.encoders, inputs.values(), strict=True)
    ]
    return members[0] if len(members) == 1 else Concatenation(members)


def encoder_label(config: Config) -> str:
    """Return the encoder's name for tables; for a folder or file without its path.

    An untrained encoder is always `random`, since runs of the same architecture share it.
    """
    return " + ".join(map(_label, config.encoders))


def _label(name: str | None) -> str:
    if name is None:
        return "pretrained"
    return RANDOM if is_random(name) else Path(name).name


def encoder_type(node: Node, nodes: Collection[Node]) -> str | None:
    """Return the architecture in transformers of a node's encoder, before it is loaded or made.

    None if it has none: ELMo, vectors, several encoders. `nodes`: those that may make it.
    """
    inputs = {role: node.inputs[role] for role in encoder_requests(node.config)}
    if len(inputs) != 1:
        return None
    [item] = inputs.values()
    makers = {each.output.reference: each for each in nodes}
    if is_random(node.config.encoder):
        return architecture_of(random_model(node.config))
    maker = makers.get(item.reference)
    if maker is None or maker.output.is_done:
        return _stated_architecture(item.path)
    if maker.stage != "export":
        return None
    begun = maker.inputs["pretrain"].path / "config.json"
    return architecture_of(read_model(begun) if begun.exists() else maker.config.model)


def foreign_note(node: Node) -> str:
    """Say in a plan which encoders run through transformers and why; empty if none does."""
    folders = [_encoder_folder(node.inputs[role].path) for role in encoder_requests(node.config)]
    found = [family_of_folder(folder).foreign_setting(folder) for folder in folders]
    settings = ", ".join(setting for setting in found if setting is not None)
    if not settings:
        return ""
    return f"the encoder runs through transformers, with padding: our network has no {settings}"


def _stated_architecture(folder: Path) -> str | None:
    """Return the architecture that a folder's config.json states; BERT's if it states none."""
    path = _encoder_folder(folder) / "config.json"
    return str(read_object(path).get("model_type", "bert")) if path.exists() else None


def _encoder_folder(folder: Path) -> Path:
    """Return the encoder of a fine-tuned model in Sesame's own form; else the folder itself."""
    inner = folder / "encoder"
    return _encoder_folder(inner) if inner.is_dir() else folder


def random_model(config: Config) -> ModelConfig:
    """Return the architecture of `encoder=random`, or that of the run in `encoder=random:<run>`.

    Raises UsageError if that run has not begun to train.
    """
    _, _, reference = config.encoder.partition(":")
    if not reference:
        return config.model
    found = resolve("encoder", reference, "pretrain", Store(Path(config.paths.store)))
    if isinstance(found, Folder):
        model: ModelConfig = family_of_folder(found.path).read_config(found.path)
        return model
    stated = found.output.path / "config.json"
    if not stated.exists():
        raise UsageError(f"encoder={config.encoder}: this run has not begun to train; run it first")
    return read_model(stated)


def _of_twin(config: Config) -> Config:
    """Return the config with the tokenizer of the run in `encoder=random:<run>`."""
    _, _, reference = config.encoder.partition(":")
    if not reference:
        return config
    random_model(config)  # raises an error that names `encoder` if there is no such run
    tokenizer = replace(config.tokenizer, source=None)
    return replace(config, init=replace(config.init, source=reference), tokenizer=tokenizer)
