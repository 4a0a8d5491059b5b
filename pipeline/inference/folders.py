"""Predict the entities of a folder of texts, and write a folder that brat opens.

Every .txt file gets a copy and an .ann file, at the same place below the output folder.
"""

from pathlib import Path

from data_prep.errors import UsageError
from data_prep.files import atomic_write
from pipeline.inference.forms import convert
from pipeline.inference.models import FinetunedModel
from pipeline.inference.predicting import Tally, predict_file


def predict_folder(model: FinetunedModel, source: Path, output: Path) -> Tally:
    """Answer all .txt files below `source`; return the counts.

    Raises UsageError if the model does not tag, if there are no texts, or if the output would lie
    among the input's own annotations.
    """
    if model.kind != "tag":
        raise UsageError(f"input={source}: a folder of texts is for models that tag; name a file")
    if output.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"output={output}: lies in the input; name another folder")
    texts = sorted(source.rglob("*.txt"))
    if not texts:
        raise UsageError(f"input={source}: has no .txt files")
    total = Tally()
    for text in texts:
        made = output / text.relative_to(source)
        lines = made.with_suffix(".jsonl")
        tally = predict_file(model, str(text), lines)
        convert(lines, made.with_suffix(".ann"), text)
        lines.unlink()
        with atomic_write(made) as copy:
            copy.write(text.read_bytes())
        total.items += tally.items
        total.skipped += tally.skipped
    return total
