"""Predict the entities of a folder of texts, and write a folder that brat opens.

Every .txt file gets a copy and an .ann file, at the same place below the output folder. The copy is
written last, so that an interrupted prediction goes on after the last copy. A text that is not what
its copy says was changed since, and is predicted again. Until the end `.predictions.json` says
which model and input the output folder belongs to.
"""

import filecmp
import json
from pathlib import Path

from data_prep.errors import UsageError
from data_prep.files import atomic_write, read_json_object, write_atomically
from data_prep.progress import console
from pipeline.inference.forms import convert
from pipeline.inference.models import FinetunedModel
from pipeline.inference.predicting import Tally, model_identity, predict_file

STATE = ".predictions.json"


def predict_folder(model: FinetunedModel, source: Path, output: Path) -> Tally:
    """Answer all .txt files below `source`; return the counts.

    Raises UsageError if the model does not tag, if there are no texts, if the output would lie
    among the input's own annotations, or if it has files that this prediction did not write.
    """
    if model.kind != "tag":
        raise UsageError(f"input={source}: a folder of texts is for models that tag; name a file")
    if output.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"output={output}: lies in the input; name another folder")
    texts = sorted(source.rglob("*.txt"))
    if not texts:
        raise UsageError(f"input={source}: has no .txt files")
    copies = [output / text.relative_to(source) for text in texts]
    _begin(model, source, output)
    _refuse_others(output, copies)
    total = Tally()
    for text, made in zip(texts, copies, strict=True):
        if made.exists() and not filecmp.cmp(text, made, shallow=False):
            said = f"{text}: was changed, so it is predicted again"
            console.print(said, markup=False, soft_wrap=True)
            made.unlink()
        if made.exists():
            with text.open("rb") as lines_before:
                total.skipped += sum(1 for _ in lines_before)
            continue
        lines = made.with_suffix(".jsonl")
        tally = predict_file(model, str(text), lines)
        convert(lines, made.with_suffix(".ann"), text)
        lines.unlink()
        with atomic_write(made) as copy:
            copy.write(text.read_bytes())
        total.items += tally.items
        total.skipped += tally.skipped
        total.cut += tally.cut
    (output / STATE).unlink()
    return total


def _begin(model: FinetunedModel, source: Path, output: Path) -> None:
    """Create the output folder, or go on with one of the same model and input.

    Annotations that are there already may have been corrected by hand, so none is replaced.
    """
    own = {"input": str(source.resolve()), "model": model_identity(model)}
    state = output / STATE
    has_files = output.is_dir() and any(output.iterdir())
    if has_files and (not state.exists() or read_json_object(state) != own):
        raise UsageError(f"output={output}: has files already; choose another folder, or remove it")
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(state, json.dumps(own))


def _refuse_others(output: Path, copies: list[Path]) -> None:
    """Raise UsageError for the copy of a text that is not in the input any more."""
    others = set(output.rglob("*.txt")) - set(copies)
    if others:
        raise UsageError(
            f"output={output}: {min(others)} was predicted before, but its text is not in the "
            "input any more; remove it and its .ann file, or choose another folder"
        )
