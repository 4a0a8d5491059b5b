"""`sesame similarity encoder=…`: correlate cosines of words with human judgements."""

from pathlib import Path

from rich import print as show
from rich.markup import escape
from rich.table import Table

from data_prep.errors import UsageError
from pipeline.commands.arguments import Arguments
from pipeline.config.compose import compose_config, package_path
from pipeline.stages.encoder_inputs import encoder_label, open_encoder
from pipeline.stages.prepare_encoder import prepare_encoder

LISTS = ("simlex999.txt", "wordsim353.tsv")  # in the package gensim


def similarity(arguments: Arguments) -> None:
    """Print the correlations with SimLex-999 and WordSim-353, or with the user's own pairs."""
    given = [
        word.removeprefix("pairs=") for word in arguments.overrides if word.startswith("pairs=")
    ]
    overrides = [word for word in arguments.overrides if not word.startswith("pairs=")]
    config = compose_config(overrides)
    paths = [Path(name) for name in given] or [
        Path(package_path("gensim", f"test/test_data/{name}")) for name in LISTS
    ]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"pairs={path}: there is no such file")
    inputs = prepare_encoder("similarity", config, overrides)

    from pipeline.inference.similarity import measure

    encoder = open_encoder(config, inputs, config.finetune.seed)
    table = Table(title=escape(encoder_label(config)), title_justify="left")
    for heading in ("pairs", "Spearman", "known"):
        table.add_column(heading, justify="left" if heading == "pairs" else "right")
    for path in paths:
        found = measure(encoder, path)
        table.add_row(found.name, f"{found.spearman:.3f}", f"{found.used} of {found.pairs}")
    show(table)
