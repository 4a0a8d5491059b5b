"""`sesame senses`: write a page that shows how encoders separate the senses of a word."""

from pathlib import Path

from rich import print as show
from rich.markup import escape
from rich.table import Table

from data_prep.errors import SesameError, UsageError
from data_prep.progress import console
from pipeline.commands.arguments import Arguments, take_own
from pipeline.config.compose import compose_raw, typed
from pipeline.config.schema import Config
from pipeline.inference.senses.occurrences import Occurrence, corpus_occurrences, read_occurrences
from pipeline.stages.encoder_inputs import encoder_label, open_encoder
from pipeline.stages.prepare_encoder import each_encoder, prepare_encoder
from pipeline.store.outputs import Store

OWN = {"word": "", "sentences": "", "count": "200", "output": "senses"}


def senses(arguments: Arguments) -> None:
    """Write the page; print each encoder's result."""
    arguments.refuse_words()
    own, overrides = take_own(arguments.overrides, OWN)
    _check(own)
    raw = compose_raw(overrides)
    config = typed(raw)
    each = each_encoder(config)
    inputs = [prepare_encoder(arguments.command, one, overrides) for one in each]
    found, source = _find(own, inputs, Store(Path(config.paths.store)))
    console.print(f"{len(found):,} occurrences in {source}", markup=False)

    from pipeline.inference.senses import compare
    from pipeline.inference.senses.page import verdict, write_senses
    from pipeline.tasks.device import choose_device

    device = choose_device("auto")
    encoders = {
        name: open_encoder(one, paths, one.finetune.seed).to(device)
        for name, one, paths in zip(_names(each), each, inputs, strict=True)
    }
    seen = compare(own["word"], found, encoders)
    out = Path(own["output"])
    write_senses(seen, source, _may_show(config, own["sentences"], raw.share.text), out)
    table = Table(title=escape(f"Senses of {seen.word}"), title_justify="left", show_header=False)
    for view in seen.views:
        table.add_row(escape(view.encoder), f"layer {view.best}", verdict(seen, view))
    show(table)
    print(out / "index.html")


def _check(own: dict[str, str]) -> None:
    """Raise a UsageError for wrong values before anything is read."""
    if not own["word"].strip():
        raise UsageError("word: name the word to look at, such as word=bank")
    if own["sentences"] and not Path(own["sentences"]).is_file():
        raise UsageError(f"sentences={own['sentences']}: there is no such file")
    if not own["count"].isdigit() or int(own["count"]) < 1:
        raise UsageError(f"count={own['count']}: must be a number of occurrences, such as 200")
    out = Path(own["output"])
    if out.is_file() or not out.parent.is_dir():
        raise UsageError(f"output={out}: must be a new or existing folder inside an existing one")


def _find(
    own: dict[str, str], inputs: list[dict[str, Path]], store: Store
) -> tuple[list[Occurrence], str]:
    """Return the occurrences and the name of their source."""
    word, most = own["word"], int(own["count"])
    if own["sentences"]:
        path = Path(own["sentences"])
        found, source = read_occurrences(path, word, most), path.name
    else:
        found, source = corpus_occurrences(_corpus(inputs, store), word, most), "the corpus"
    if not found:
        raise SesameError(f"word={word}: does not occur in {source}; give sentences= that have it")
    return found, source


def _names(each: list[Config]) -> list[str]:
    """Return the encoders' names; equal names get a number."""
    labels = [encoder_label(one) for one in each]
    return [
        label if labels.count(label) == 1 else f"{label} ({number})"
        for number, label in enumerate(labels, start=1)
    ]


def _corpus(inputs: list[dict[str, Path]], store: Store) -> Path:
    """Return the document shards of the first encoder that was made from a corpus here."""
    waiting = [
        store.output(path.parent.name, path.name) for paths in inputs for path in paths.values()
    ]
    while waiting:
        output = waiting.pop(0)
        if not output.is_done:  # removed by `sesame clean`, or not an output of this store
            continue
        if output.stage == "shard":
            return output.path
        waiting += map(store.from_reference, output.request()["upstream"].values())
    raise UsageError(
        "sentences: no encoder here has a corpus in this store; give a file, one sentence per line"
    )


def _may_show(config: Config, sentences: str, set_by_user: bool | None) -> bool:
    """Return True if the page may show text.

    For a file of sentences only the user's own share.text counts, not the default of the corpus.
    """
    return bool(set_by_user if sentences else config.share.text)
