"""`sesame embed`: write the vectors of a file of sentences: of their words, or of each sentence."""

import math
from pathlib import Path

from data_prep.errors import UsageError
from data_prep.progress import console
from pipeline.commands.arguments import Arguments, take_own
from pipeline.config.compose import compose_config
from pipeline.config.schema import is_random
from pipeline.stages.encoder_inputs import open_encoder
from pipeline.stages.prepare_encoder import prepare_encoder

OUTPUTS = (".safetensors", ".npy")
OWN = {
    "input": "", "output": "vectors.safetensors", "unit": "word", "pooling": "", "layers": "",
    "weights": "", "gamma": "",
}  # fmt: skip
LAYERS = {"word": "all", "sentence": "last"}  # the default by unit


def embed(arguments: Arguments) -> None:
    """Write the vectors; print how many and where."""
    from pipeline.encoders.embed import Layers, embed_file
    from pipeline.encoders.sentences import embed_sentence_file
    from pipeline.tasks.device import choose_device

    arguments.refuse_words()
    own, overrides = take_own(arguments.overrides, OWN)
    source, out = Path(own["input"]), Path(own["output"])
    if not own["input"] or not source.is_file():
        raise UsageError(f"input={own['input']}: give a file with one sentence per line")
    if out.suffix not in OUTPUTS:
        raise UsageError(f"output={out}: must end in {' or '.join(OUTPUTS)}")
    if out.is_dir():
        raise UsageError(f"output={out}: is a folder; name a file")
    if not out.parent.is_dir():
        raise UsageError(f"output={out}: there is no folder {out.parent}")
    _check_unit(own)
    own["layers"] = own["layers"] or LAYERS[own["unit"]]
    if own["layers"] != "mix" and (own["weights"] or own["gamma"]):
        raise UsageError(f"layers={own['layers']}: weights and gamma need layers=mix")
    weights = _numbers("weights", own["weights"])
    (gamma,) = _numbers("gamma", own["gamma"] or "1")

    layers = Layers(own["layers"], weights, gamma)
    config = compose_config(overrides)
    if any(map(is_random, config.encoders)):
        raise UsageError("encoder=random: an untrained encoder has no useful vectors; name a run")
    inputs = prepare_encoder(arguments.command, config, overrides)

    encoder = open_encoder(config, inputs, config.finetune.seed).to(choose_device("auto"))
    if own["unit"] == "word":
        told = f"{embed_file(encoder, source, out, layers):,} words"
    else:
        pooling = own["pooling"] or "mean"
        sentences, cut = embed_sentence_file(encoder, source, out, layers, pooling)
        told = f"{sentences:,} sentences" + (f", {cut:,} truncated" if cut else "")
    console.print(
        f"{told}: layers={own['layers']} of {encoder.states}, {encoder.hidden} numbers per vector"
    )
    print(out)


def _check_unit(own: dict[str, str]) -> None:
    from pipeline.encoders.pooling import POOLINGS

    if own["unit"] not in LAYERS:
        raise UsageError(f"unit={own['unit']}: must be one of {', '.join(LAYERS)}")
    if own["pooling"] and own["unit"] == "word":
        raise UsageError(f"pooling={own['pooling']}: needs unit=sentence")
    if own["pooling"] not in ("", *POOLINGS):
        raise UsageError(f"pooling={own['pooling']}: must be one of {', '.join(POOLINGS)}")


def _numbers(key: str, text: str) -> tuple[float, ...]:
    """Parse comma-separated numbers, with or without brackets."""
    try:
        numbers = tuple(float(part) for part in text.strip("[]").split(",") if part.strip())
    except ValueError:
        numbers = (math.nan,)
    if not all(map(math.isfinite, numbers)) or (key == "gamma" and len(numbers) != 1):
        raise UsageError(f"{key}={text}: must be numbers, such as 0.2,0.3,0.5 for three weights")
    return numbers
