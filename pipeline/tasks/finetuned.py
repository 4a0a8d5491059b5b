"""A fine-tuned model on disk: encoder, head, labels, scaling and thresholds in one folder.

A model that a class of transformers can express is a Hugging Face folder, with the additional file
`finetuned.json`. Every other model has Sesame's own form:
    finetuned.json      the task, the head's settings, labels, scale and thresholds
    head.safetensors    the head's tensors
    encoder/            the encoder in its own form: Hugging Face, AllenNLP, vectors, or several
Nothing is pickled. `prove_model` loads what was written and compares the answers.
"""

import inspect
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from data_prep.errors import SesameError, UsageError
from data_prep.fields import check, check_types
from data_prep.files import atomic_write, write_atomically
from data_prep.reading.untrusted import read_object
from data_prep.text.words import PUNCTUATION
from pipeline.encoders import (
    ClassHead,
    Encoder,
    SeparateSentences,
    TokenEncoder,
    class_head,
    load_encoder,
)
from pipeline.models.untrusted import read_safetensors, refuse_unusable
from pipeline.store.encoder_files import OF_MODEL
from pipeline.store.models import FILE
from pipeline.tasks.answers import Answers, Floats, Prediction
from pipeline.tasks.batches import TaskData
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.heads import Head
from pipeline.tasks.kinds import find_fault, restore
from pipeline.tasks.model import Model, head_outputs

FORMAT = 2
HEAD = "head.safetensors"
TOLERANCE = 1e-5
# Settings that a model needs to answer. The other settings matter only for training.
TASK_KEYS = (
    "name", "kind", "reader", "text_a", "text_b", "choices", "label", "columns", "aliases",
    "metric", "context", "unanswerable", "stride", "max_question", "max_answer",
)  # fmt: skip
RULE = "word_split"
HEAD_KEYS = (
    "mode",
    "layers",
    "pooling",
    "pair_encoding",
    "head",
    "head_width",
    "crf",
    "dropout",
    "max_seq_length",
)


@dataclass(frozen=True)
class Finetuned:
    """A fine-tuned model: everything that is needed to answer."""

    model: Model
    answers: Answers
    task: TaskConfig
    config: FinetuneConfig

    @property
    def exact(self) -> "Finetuned":
        """The same model on an encoder without stored states."""
        model = Model(self.model.encoder.exact, self.model.head, self.model.frozen)
        return replace(self, model=model)

    def logits(self, examples: Sequence[Example]) -> Floats:
        """Return the head's answers for examples [U, C]; see `heads`."""
        return head_outputs(self.model, self.encode(examples))

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        """Return one prediction per example."""
        if not examples:
            return []
        data = self.encode(examples)
        return self.answers.decode(head_outputs(self.model, data), data)

    def encode(self, examples: Sequence[Example]) -> TaskData:
        """Return the inputs of examples."""
        return self.answers.encode(self.model.encoder, examples, self.config.max_seq_length)

    @property
    def class_head(self) -> ClassHead | None:
        """The class of transformers that computes the same; None if there is none."""
        encoder = self.model.encoder.plain
        if not isinstance(encoder, TokenEncoder) or encoder.model_type is None:
            return None
        found = class_head(encoder.model_type, self.task.kind)
        if found is None:
            return None
        has_layers = isinstance(self.model.head.transform, torch.nn.Module)
        is_same = bool(found.transform) == has_layers
        return found if self.model.head.fits_class and is_same else None


def build(
    encoder: Encoder, answers: Answers, task: TaskConfig, config: FinetuneConfig
) -> Finetuned:
    """Put a new head on an encoder; its weights are drawn from torch's generator."""
    if task.has_pairs and config.pair_encoding == "separate" and encoder.joins_pairs:
        encoder = SeparateSentences(encoder)
    separate = task.has_pairs and not encoder.joins_pairs
    shape = task.kind, answers.outputs, encoder, config, separate
    head = Head(*shape, answers.labels, answers.weights)
    return Finetuned(Model(encoder, head, config.mode == "frozen"), answers, task, config)


def save_model(finetuned: Finetuned, folder: Path) -> str:
    """Write the model into an empty folder and return its form.

    The form is the name of transformers' class, or `sesame`.
    """
    encoder = finetuned.model.encoder.plain
    found = finetuned.class_head
    head, answers = _with_scale(finetuned)
    if found is not None:
        assert isinstance(encoder, TokenEncoder)
        stated = _stated(finetuned)
        encoder.save_with(folder, _to_class(head, found), stated, found.name)
    else:
        (folder / OF_MODEL).mkdir()
        encoder.save(folder / OF_MODEL)
        with atomic_write(folder / HEAD) as stream:
            stream.write(save({name: tensor.contiguous() for name, tensor in head.items()}))
    form = "sesame" if found is None else found.name
    task, config = asdict(finetuned.task), asdict(finetuned.config)
    content = {
        "format": FORMAT,
        "form": form,
        "task": {key: task[key] for key in TASK_KEYS} | _text_rule(finetuned.task),
        "finetune": {key: config[key] for key in HEAD_KEYS}
        | {"pooling": finetuned.model.head.pooling},
        "answers": answers,
    }
    write_atomically(folder / FILE, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return form


def load_finetuned(folder: Path) -> Finetuned:
    """Read a model that `save_model` wrote. Raises a SesameError if the folder is not complete."""
    path = folder / FILE
    if not path.exists():
        raise SesameError(f"{folder}: has no {FILE}, so it is no fine-tuned model of Sesame")
    content = read_object(path)
    if content.get("format") != FORMAT:
        raise SesameError(
            f"{path}: format {content.get('format')!s:.20}, but this version of Sesame reads "
            f"{FORMAT}; use the version that wrote it, or fine-tune again"
        )
    for key in ("task", "finetune", "answers"):
        if not isinstance(content.get(key), dict):
            raise SesameError(f"{path}: {key} is missing or no object; copy the folder again")
    try:
        rule = content["task"].get(RULE, PUNCTUATION)
        task = TaskConfig(**{key: content["task"][key] for key in TASK_KEYS} | {RULE: rule})
        config = FinetuneConfig(**{key: content["finetune"][key] for key in HEAD_KEYS})
        for own, prefix in ((task, "task."), (config, "finetune.")):
            check_types(own, prefix)
            check(own, prefix)
        is_own = content["form"] == "sesame"
    except KeyError as error:
        raise SesameError(f"{path}: {error.args[0]} is missing; copy the folder again") from error
    except UsageError as error:
        raise SesameError(f"{path}: {error}; copy the folder again") from error
    fault = find_fault(task.kind, content["answers"])
    if fault:
        raise SesameError(f"{path}: answers.{fault}; copy the folder again")
    answers = restore(task, content["answers"])
    with torch.random.fork_rng(devices=[]):
        encoder = load_encoder(folder / OF_MODEL if is_own else folder)
        finetuned = build(encoder, answers, task, config)
    weights = folder / (HEAD if is_own else "model.safetensors")
    tensors = read_safetensors(weights)
    if not is_own:
        found = finetuned.class_head
        if found is None or found.name != content["form"]:
            raise SesameError(f"{path}: form {content['form']!s:.40} does not fit the encoder")
        tensors = _from_class(tensors, found)
    wanted = finetuned.model.head.state_dict()
    for name, tensor in wanted.items():
        if name not in tensors or tensors[name].shape != tensor.shape:
            raise SesameError(f"{weights}: its tensor for {name} is missing or of another shape")
        refuse_unusable(weights, name, tensors[name])
    finetuned.model.head.load_state_dict({name: tensors[name] for name in wanted})
    finetuned.model.eval()
    return finetuned


def _text_rule(task: TaskConfig) -> dict[str, str]:
    """Return how texts are split into words; models that do not say it split at punctuation."""
    return {} if task.text_rule == PUNCTUATION else {RULE: task.text_rule}


def _with_scale(finetuned: Finetuned) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the head's tensors and `fitted`; a number's scale becomes part of the last layer.

    So a saved regression gives numbers on the scale of the gold numbers without any file of ours.
    """
    head = {key: value.detach().cpu() for key, value in finetuned.model.head.state_dict().items()}
    fitted = finetuned.answers.fitted()
    if finetuned.task.kind == "regress":
        mean, deviation = fitted["mean"], fitted["deviation"]
        head["output.weight"] = head["output.weight"] * deviation
        head["output.bias"] = head["output.bias"] * deviation + mean
        fitted = fitted | {"mean": 0.0, "deviation": 1.0}
    return head, fitted


def _stated(finetuned: Finetuned) -> dict[str, Any]:
    """Return what a class's config.json says besides the encoder: labels, problem, dropout."""
    kind, dropout = finetuned.task.kind, finetuned.config.dropout
    stated: dict[str, Any] = {"classifier_dropout": dropout}
    if kind == "regress":
        return stated | {
            "problem_type": "regression",
            "id2label": {0: "score"},
            "label2id": {"score": 0},
        }
    if kind == "span":
        return stated
    if kind == "choice":
        assert finetuned.class_head is not None
        return stated | {"summary_last_dropout": dropout} | finetuned.class_head.stated
    labels = finetuned.answers.labels
    if kind in ("classify", "multilabel"):
        how = "single" if kind == "classify" else "multi"
        stated["problem_type"] = f"{how}_label_classification"
    return stated | {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def _to_class(head: dict[str, Tensor], found: ClassHead) -> dict[str, Tensor]:
    names = {"output": found.output, **found.transform}
    return {_renamed(key, names): value.contiguous() for key, value in head.items()}


def _from_class(tensors: dict[str, Tensor], found: ClassHead) -> dict[str, Tensor]:
    names = {found.output: "output"} | {theirs: ours for ours, theirs in found.transform.items()}
    return {
        _renamed(key, names): value.float()
        for key, value in tensors.items()
        if key.rpartition(".")[0] in names
    }


def _renamed(key: str, names: dict[str, str]) -> str:
    module, _, kind = key.rpartition(".")
    return f"{names[module]}.{kind}"


@torch.no_grad()
def prove_model(finetuned: Finetuned, folder: Path, examples: Sequence[Example]) -> None:
    """Compare the answers of the saved folder with ours, also in transformers if a class has them.

    Raises a SesameError if they differ by more than TOLERANCE, relative to the largest answer.
    """
    again = load_finetuned(folder)
    ours, theirs = _scaled(finetuned.exact, examples), again.logits(examples)
    _compare(folder, "read again", ours, theirs)
    if again.class_head is not None:
        _compare(folder, again.class_head.name, ours, class_logits(again, folder, examples))


def _scaled(finetuned: Finetuned, examples: Sequence[Example]) -> Floats:
    logits = finetuned.logits(examples)
    if finetuned.task.kind != "regress":
        return logits
    fitted = finetuned.answers.fitted()
    scaled: Floats = (logits * fitted["deviation"] + fitted["mean"]).astype(np.float32)
    return scaled


@torch.no_grad()
def class_logits(finetuned: Finetuned, folder: Path, examples: Sequence[Example]) -> Floats:
    """Return the answers of transformers' class in `folder`, in the order of our head's rows."""
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    found = finetuned.class_head
    assert found is not None
    theirs = getattr(transformers, found.name).from_pretrained(folder, local_files_only=True).eval()
    data = finetuned.encode(examples)
    rows = []
    for number in range(len(data.inputs.lengths)):
        batch = data.inputs.batch(np.array([number]))
        told = {"input_ids": batch.tokens_N[None]}
        if "token_type_ids" in inspect.signature(theirs.forward).parameters:
            told["token_type_ids"] = batch.segments_N[None]
        if finetuned.task.kind == "choice":  # [examples, choices, units]
            told = {key: value[None] for key, value in told.items()}
        answer = theirs(**told)
        if finetuned.task.kind == "span":
            rows.append(torch.stack([answer.start_logits[0], answer.end_logits[0]], 1))
        elif finetuned.task.kind == "tag":
            rows.append(answer.logits[0][batch.word_starts_W])
        else:
            rows.append(answer.logits)
    stacked: Floats = torch.cat(rows).numpy()
    return stacked


def _compare(folder: Path, what: str, ours: Floats, theirs: Floats) -> None:
    difference = float(np.abs(ours - theirs).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(ours).max()))
    if not difference <= allowed:  # written so that NaN fails
        raise SesameError(
            f"{folder}: answers of the saved model ({what}) differ from ours by {difference:.2g}; "
            "the model is not valid: please report this"
        )
