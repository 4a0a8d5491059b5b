"""`sesame onnx`: export a fine-tuned model or an encoder to ONNX, verified by onnxruntime."""

from pathlib import Path

from data_prep.errors import UsageError
from data_prep.progress import console
from pipeline.commands.arguments import Arguments, take_own
from pipeline.commands.source_folder import named_source, source_folder


def export_onnx(arguments: Arguments) -> None:
    """Write the file; print how near its answers are, and where it is."""
    arguments.refuse_words()
    own, overrides = take_own(arguments.overrides, {"model": "", "out": "model.onnx"})
    out = Path(own["out"])
    if out.suffix != ".onnx":
        raise UsageError(f"out={out}: must end in .onnx")
    if out.is_dir():
        raise UsageError(f"out={out}: is a folder; name a file")
    named_source(own["model"], overrides)

    from pipeline.export.onnx_file import write_onnx

    folder = source_folder(own["model"], arguments, overrides)
    out.parent.mkdir(parents=True, exist_ok=True)
    difference = write_onnx(folder, out)
    console.print(f"onnxruntime gives the same answers to {difference:.1g}", markup=False)
    print(out)
