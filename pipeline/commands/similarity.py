"""`sesame similarity encoder=…`: correlate cosines of words or sentences with human judgements."""

from pathlib import Path

from rich import print as show
from rich.markup import escape
from rich.table import Table

from data_prep.errors import UsageError
from pipeline.commands.arguments import Arguments, take_own
from pipeline.config.compose import compose_config, package_path
from pipeline.config.schema import Config
from pipeline.stages.encoder_inputs import encoder_label, open_encoder
from pipeline.stages.prepare_encoder import prepare_encoder
from pipeline.tasks.splits import read_splits

LISTS = ("simlex999.txt", "wordsim353.tsv")  # in the package gensim
OWN = {"pairs": "", "pooling": "mean", "layers": "last"}


def similarity(arguments: Arguments) -> None:
    """Print the correlations: with a task's sentence pairs, the user's word pairs, or two lists."""
    from pipeline.encoders.embed import ALIASES
    from pipeline.encoders.pooling import POOLINGS
    from pipeline.inference.similarity import correlate, measure
    from pipeline.tasks.device import choose_device

    arguments.refuse_words()
    own, overrides = take_own(arguments.overrides, OWN)
    config = compose_config(overrides)
    own["layers"] = ALIASES.get(own["layers"], own["layers"])
    for key, allowed in (("pooling", POOLINGS), ("layers", ("last", "mix"))):
        if own[key] not in allowed:
            raise UsageError(f"{key}={own[key]}: must be one of {', '.join(allowed)}")
    is_task = config.task.train is not None
    if is_task and (config.task.kind != "regress" or config.task.text_b is None):
        raise UsageError(f"task={config.task.name}: needs pairs with a number, as task=stsb has")
    paths = [] if is_task else _lists(own["pairs"])
    inputs = prepare_encoder("similarity", config, overrides)
    encoder = open_encoder(config, inputs, config.finetune.seed).to(choose_device("auto"))
    table = Table(title=escape(encoder_label(config)), title_justify="left")
    for heading in ("pairs", "Spearman", "Pearson", "known"):
        table.add_column(heading, justify="left" if heading == "pairs" else "right")
    how = own["layers"], own["pooling"]
    found = [measure(encoder, path, *how) for path in paths]
    if is_task:
        pairs = _sentence_pairs(config)
        name = str(config.task.name)
        found = [correlate(encoder, name, pairs, len(pairs), *how)]
    for row in found:
        both = f"{row.spearman:.3f}", f"{row.pearson:.3f}"
        table.add_row(escape(row.name), *both, f"{row.used} of {row.pairs}")
    show(table)


def _lists(given: str) -> list[Path]:
    if not given:
        return [Path(package_path("gensim", f"test/test_data/{name}")) for name in LISTS]
    if not Path(given).is_file():
        raise UsageError(f"pairs={given}: there is no such file")
    return [Path(given)]


def _sentence_pairs(config: Config) -> list[tuple[str, str, float]]:
    """Return the pairs of the task's test set, with their numbers."""
    examples = read_splits(config.task, config.finetune.seed).test
    return [(each.texts[0], each.texts[1], float(str(each.gold))) for each in examples]
