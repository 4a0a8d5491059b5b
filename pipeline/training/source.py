"""The model of `init.source`: whether the configured one is of its architecture; torch-free."""

import json
from dataclasses import fields

from data_prep.errors import UsageError
from pipeline.models.config import BertConfig
from pipeline.models.stated import read_stated
from pipeline.references import Folder, resolve
from pipeline.store import Store

FREE_TO_CHANGE = ("dropout", "attention_dropout", "init_std")  # when going on from a model


def check_source(reference: str, model: BertConfig, store: Store) -> None:
    """Refuse, before any work, to go on from a model of another architecture."""
    found = resolve("init.source", reference, "pretrain", store)
    if isinstance(found, Folder):
        check_architecture(model, read_stated(found.path).config)
        return
    stated = found.output.path / "config.json"
    if stated.exists():  # else it has never begun, which the graph will say
        check_architecture(model, BertConfig(**json.loads(stated.read_text())["model"]))


def check_architecture(ours: BertConfig, theirs: BertConfig) -> None:
    """Refuse a difference that weights cannot be carried over."""
    differing = {
        item.name: getattr(theirs, item.name)
        for item in fields(BertConfig)
        if item.name not in FREE_TO_CHANGE
        and getattr(theirs, item.name) != getattr(ours, item.name)
    }
    if differing:
        given = ", ".join(f"model.{name}={_text(getattr(ours, name))}" for name in differing)
        wanted = " ".join(f"model.{name}={_text(value)}" for name, value in differing.items())
        raise UsageError(f"{given}: the model of init.source is another; set {wanted}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
