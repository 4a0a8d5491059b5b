"""`sesame publish`: prepare a model or an encoder for the Hugging Face Hub; upload it if asked."""

from dataclasses import replace
from pathlib import Path

from data_prep.errors import UsageError
from data_prep.progress import console
from pipeline.commands.arguments import Arguments, take_own
from pipeline.commands.store import open_store
from pipeline.config.compose import compose_config
from pipeline.export.publish import Statement, open_hub, prepare, upload
from pipeline.stages.prepare_encoder import prepare_encoder
from pipeline.store.models import find_model

OWN = {
    "model": "", "licence": "", "language": "", "datasets": "", "base_model": "", "data": "",
    "out": "", "repo": "",
}  # fmt: skip


def publish(arguments: Arguments) -> None:
    """Write the folder; print where. With --upload, upload it."""
    arguments.refuse_words()
    own, overrides = take_own(arguments.overrides, OWN)
    is_uploaded = "--upload" in arguments.options
    named = own["model"] or _encoder(overrides)
    if not named or (own["model"] and _encoder(overrides)):
        raise UsageError("publish: name model=<run>/<task> or encoder=<run or folder>")
    if is_uploaded != bool(own["repo"]):
        raise UsageError("publish: --upload and repo=<owner>/<name> go together")
    statement = Statement(
        own["licence"],
        _list(own["language"]),
        _list(own["datasets"]),
        own["base_model"],
        _read(own["data"]),
    )
    statement.check()
    hub = open_hub() if is_uploaded else None
    out = Path(own["out"] or f"published/{named.strip('./').replace('/', '-')}")
    prepare(_source(own["model"], arguments, overrides), out, statement, Path(named).name)
    console.print("read its README.md before others do", markup=False)
    print(out)
    if hub is not None:
        upload(out, own["repo"], hub)
        console.print(f"uploaded to {own['repo']}; a new repository is private", markup=False)


def _source(model: str, arguments: Arguments, overrides: list[str]) -> Path:
    """Return the folder of the model, or of the encoder, which is exported if it is not yet."""
    if model:
        store = open_store(replace(arguments, overrides=overrides))
        return find_model(f"model={model}", model, store)
    config = compose_config(overrides)
    folders = list(prepare_encoder("publish", config, overrides).values())
    if len(folders) > 1:
        raise UsageError(f"encoder={config.encoder}: publish one encoder at a time")
    return folders[0]


def _encoder(overrides: list[str]) -> str:
    keys = [word.removeprefix("encoder=") for word in overrides if word.startswith("encoder=")]
    return keys[-1] if keys else ""


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.strip("[]").split(",") if part.strip())


def _read(path: str) -> str:
    if not path:
        return ""
    if not Path(path).is_file():
        raise UsageError(f"data={path}: give a file with a statement about the training data")
    return Path(path).read_text()
