"""Export an encoder or a fine-tuned model to ONNX, through its class in transformers.

Batch size, length and the number of choices are dynamic. Every export is verified: onnxruntime
gives the class's answers for several of them. Needs the extra `onnx`.
Try it: sesame onnx model=mine/ner out=ner.onnx

B inputs, K choices per input (multiple choice only), L units of the longest
"""

import inspect
import logging
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from data_prep.errors import SesameError, UsageError
from data_prep.files import atomic_write
from data_prep.reading.untrusted import read_object
from pipeline.store.models import FILE
from pipeline.tasks.expected_form import OURS

TOLERANCE = 1e-4
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
AXES = {"batch": (1, 1 << 16), "choices": (1, 1 << 10)}  # least and most
PROBES = ((1, 1, 2), (3, 4, 9), (2, 2, 24))  # batch size, choices and length
TRACED = (2, 3, 5)
OUTPUTS = {"ForQuestionAnswering": ("start_logits", "end_logits"), "For": ("logits",)}
ENCODER_OUTPUTS = ("last_hidden_state",)


class _Outputs(nn.Module):
    """A model of transformers as a function of tensors: named inputs, a tuple of outputs.

    has_choices: inputs are [B, K, L] instead of [B, L]. is_per_unit: outputs are [B, L, …].
    """

    def __init__(
        self, model: Any, inputs: Sequence[str], outputs: Sequence[str], form: str
    ) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs
        self.has_choices = form.endswith("ForMultipleChoice")
        self.is_per_unit = not self.has_choices and not form.endswith("ForSequenceClassification")

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        answer = self.model(**dict(zip(self.inputs, tensors, strict=True)))
        return tuple(getattr(answer, name) for name in self.outputs)


def write_onnx(folder: Path, out: Path) -> float:
    """Write the model of a Hugging Face folder; return the largest difference from its class.

    Raises UsageError if the folder has no class, or the extra is missing, and SesameError if
    answers differ by more than TOLERANCE, relative to the largest answer.
    """
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise UsageError(
            f"onnx: {missing[0]} is not installed; pip install 'sesame-encoders[onnx]'"
        )
    network = _load(folder).eval()
    longest = network.model.config.max_position_embeddings
    content = _traced(network, longest)
    difference = _compare(network, content)
    if not difference <= TOLERANCE:  # written so that NaN fails
        raise SesameError(
            f"{out}: onnxruntime's answers differ from ours by {difference:.2g}, more than "
            f"{TOLERANCE:g}: the export is not valid"
        )
    with atomic_write(out) as stream:
        stream.write(content)
    return difference


def _load(folder: Path) -> _Outputs:
    """Load a folder by its class; a fine-tuned model's has its head, an encoder's has none."""
    import transformers
    from transformers.utils import logging as messages

    messages.disable_progress_bar()
    messages.set_verbosity_error()
    stated = folder / FILE
    form = read_object(stated)["form"] if stated.exists() else "AutoModel"
    if form == OURS or not (folder / "config.json").exists():
        raise UsageError(
            f"{folder}: has no class in transformers, so it cannot be exported to ONNX; the plan "
            "of its fine-tuning says why"
        )
    offline = {"local_files_only": True, "use_safetensors": True}
    model = getattr(transformers, form).from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, **offline
    )
    words = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    taken = inspect.signature(model.forward).parameters
    inputs = [name for name in words.model_input_names if name in taken]
    named = next((names for end, names in OUTPUTS.items() if end in form), ENCODER_OUTPUTS)
    return _Outputs(model, inputs, named, form)


def _traced(network: _Outputs, longest: int) -> bytes:
    """Return the content of the ONNX file for inputs of up to `longest` units."""
    limits = AXES | {"length": (2, longest)}
    named = [axis for axis in limits if axis != "choices" or network.has_choices]
    axes = {
        place: torch.export.Dim(axis, min=limits[axis][0], max=limits[axis][1])
        for place, axis in enumerate(named)
    }
    inputs = _inputs(network, *TRACED)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the exporter's own parts
        program = torch.onnx.export(
            network,
            inputs,
            input_names=list(network.inputs),
            output_names=list(network.outputs),
            dynamic_shapes=((axes,) * len(inputs),),  # of the one variadic argument
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content


@torch.no_grad()
def _compare(network: _Outputs, content: bytes) -> float:
    """Return the largest difference of answers, relative to the largest one, at real units."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    worst = 0.0
    for probe in PROBES:
        inputs = _inputs(network, *probe)
        told = {name: tensor.numpy() for name, tensor in zip(network.inputs, inputs, strict=True)}
        for ours, theirs in zip(network(*inputs), session.run(None, told), strict=True):
            gap = np.abs(ours.numpy() - theirs)
            if network.is_per_unit:
                gap = gap[told["attention_mask"].astype(bool)]
            worst = max(worst, float(gap.max() / max(1.0, float(ours.abs().max()))))
    return worst


def _inputs(network: _Outputs, size: int, choices: int, length: int) -> tuple[Tensor, ...]:
    """Return random inputs [B, L] or [B, K, L] whose rows have different lengths."""
    rng = torch.Generator().manual_seed(size * length)
    vocabulary = network.model.config.vocab_size
    rows = (size, choices) if network.has_choices else (size,)
    tokens = torch.randint(vocabulary, (*rows, length), generator=rng)
    lengths = torch.randint(2, length + 1, (*rows, 1), generator=rng)
    is_real = torch.arange(length) < lengths
    pad = network.model.config.pad_token_id or 0
    made = {
        "input_ids": tokens.where(is_real, torch.tensor(pad)),
        "attention_mask": is_real.long(),
        "token_type_ids": torch.zeros_like(tokens),
    }
    return tuple(made[name] for name in network.inputs)
