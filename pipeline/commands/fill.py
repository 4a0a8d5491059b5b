"""`sesame fill`: predict the tokens for the blanks of a text with a BERT."""

from rich import print as show
from rich.markup import escape
from rich.table import Table

from data_prep.errors import UsageError
from pipeline.commands.arguments import Arguments, take_own
from pipeline.config.compose import compose_config
from pipeline.config.schema import is_random
from pipeline.stages.encoder_inputs import encoder_label
from pipeline.stages.prepare_encoder import each_encoder, prepare_encoder

OWN = {"text": "", "top": "5"}
QUOTES = "\"'"


def fill(arguments: Arguments) -> None:
    """Print the most probable tokens for each blank, by every encoder."""
    own, overrides = take_own(arguments.overrides, OWN)
    text = _text(own["text"], arguments.words)
    if not own["top"].isdigit() or int(own["top"]) < 1:
        raise UsageError(f"top={own['top']}: must be a number of guesses, such as 5")
    config = compose_config(overrides)
    if any(map(is_random, config.encoders)):
        raise UsageError("encoder=random: an untrained encoder predicts nothing; name a run")
    each = each_encoder(config)
    inputs = [prepare_encoder(arguments.command, one, overrides) for one in each]

    from pipeline.inference.fill import read_filler

    for one, paths in zip(each, inputs, strict=True):
        blanks = read_filler(paths["encoder"]).fill(text, int(own["top"]))
        table = Table(title=escape(encoder_label(one)), title_justify="left")
        for number in range(1, len(blanks) + 1):
            table.add_column("piece" if len(blanks) == 1 else f"blank {number}")
            table.add_column("", justify="right")
        for guesses in zip(*blanks, strict=True):
            cells = [(escape(guess.piece), f"{100 * guess.probability:.1f} %") for guess in guesses]
            table.add_row(*(cell for pair in cells for cell in pair))
        show(table)


def _text(given: str, words: list[str]) -> str:
    """Return the text, given as text=… or as plain words, without surrounding quotes."""
    if given and words:
        raise UsageError(f"{words[0]}: not an override; quote the whole text: 'text=…'")
    text = given or " ".join(words)
    if len(text) > 1 and text[0] in QUOTES and text[-1] == text[0]:
        text = text[1:-1]
    if not text:
        raise UsageError("text: give a text with a blank, such as 'text=The film was [MASK].'")
    return text
