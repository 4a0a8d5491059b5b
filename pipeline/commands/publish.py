"""`sesame publish`: prepare a model or an encoder for the Hugging Face Hub; upload it if asked."""

from pathlib import Path

from data_prep.errors import UsageError
from data_prep.progress import console
from pipeline.commands.arguments import Arguments, take_own
from pipeline.commands.source_folder import named_source, source_folder
from pipeline.export.hub import open_hub, upload
from pipeline.export.publish import Statement, prepare

OWN = {
    "model": "", "licence": "", "language": "", "datasets": "", "base_model": "", "data": "",
    "out": "", "repo": "",
}  # fmt: skip
SHOWN = 10  # names of files that are left out


def publish(arguments: Arguments) -> None:
    """Write the folder; print where. With --upload, upload it."""
    arguments.refuse_words()
    own, overrides = take_own(arguments.overrides, OWN)
    is_uploaded = "--upload" in arguments.options
    named = named_source(own["model"], overrides)
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
    source = source_folder(own["model"], arguments, overrides)
    left_out = prepare(source, out, statement, Path(named).name)
    if left_out:
        more = ", …" if len(left_out) > SHOWN else ""
        told = f"left out, since no user of the model needs it: {', '.join(left_out[:SHOWN])}{more}"
        console.print(told, markup=False, soft_wrap=True)
    console.print("read its README.md before others do", markup=False)
    print(out)
    if hub is not None:
        upload(out, own["repo"], hub)
        console.print(f"uploaded to {own['repo']}; a new repository is private", markup=False)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.strip("[]").split(",") if part.strip())


def _read(path: str) -> str:
    if not path:
        return ""
    if not Path(path).is_file():
        raise UsageError(f"data={path}: give a file with a statement about the training data")
    try:
        return Path(path).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"data={path}: not UTF-8 at byte {error.start}; convert it") from error
