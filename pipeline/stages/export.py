"""A checkpoint of a pretraining to a folder that others load.

Reads the pretraining and its tokenizer. Writes a Hugging Face folder (BERT: config.json,
model.safetensors) or AllenNLP's pair (ELMo: options.json, weights.hdf5, vocabulary.txt), the
tokenizer's files and README.md. Try: sesame export encoder=demo@best
"""

import json
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from pipeline.config.schema import Config
from pipeline.models.architectures import fitting
from pipeline.models.config import BertConfig, ElmoConfig
from pipeline.training.source import read_model
from pipeline.workflow.stage import Request, Work

FORMAT = 2
SECTIONS = ("export",)


def inputs(config: Config) -> dict[str, Request]:
    """The pretraining and its vocabulary; a model that nobody could load is refused untrained."""
    if isinstance(config.model, BertConfig):
        fitting(config.model, config.examples.pairs)
    return {"pretrain": Request("pretrain", config), "tokenizer": Request("tokenizer", config)}


def check_finished(pretrain: Path, checkpoint: str) -> None:
    """Refuse, before any work, a pretraining that cannot be exported or a checkpoint it lacks."""
    from pipeline.export.card import pairs_of, read_recipe

    choose_checkpoint(pretrain, checkpoint)
    model = read_model(pretrain / "config.json")
    if isinstance(model, BertConfig):
        fitting(model, pairs_of(read_recipe(pretrain)))


def run(work: Work) -> dict[str, Any]:
    """Write the folder and prove that a reader of it computes what we do."""
    from pipeline.export.bert import export_checkpoint
    from pipeline.export.card import gather_facts
    from pipeline.export.elmo import export_elmo
    from pipeline.training.checkpoint import damage

    pretrain = work.inputs["pretrain"]
    checkpoint = choose_checkpoint(pretrain, work.config.export.checkpoint)
    if (fault := damage(checkpoint)) is not None:
        raise SesameError(f"{checkpoint}: {fault}; choose another step by export.checkpoint=<step>")
    model = read_model(pretrain / "config.json")
    vocab_size = json.loads((pretrain / "config.json").read_text())["vocab_size"]
    facts = gather_facts(pretrain, checkpoint, work.config.export)
    others = (vocab_size, work.inputs["tokenizer"], work.out, facts)
    if isinstance(model, ElmoConfig):
        return export_elmo(checkpoint, model, *others)
    assert isinstance(model, BertConfig)
    return export_checkpoint(checkpoint, model, *others)


def choose_checkpoint(pretrain: Path, which: str) -> Path:
    """The checkpoint named last, best (lowest held-out loss) or by its step."""
    from pipeline.export.card import evaluations
    from pipeline.store.checkpoints import CHECKPOINTS, checkpoints

    found = checkpoints(pretrain / CHECKPOINTS)
    if which == "last":
        chosen = found[-1:]
    elif which == "best":
        losses = {step: values["heldout_loss"] for step, values in evaluations(pretrain).items()}
        evaluated = [path for path in found if int(path.name) in losses]
        chosen = sorted(evaluated, key=lambda path: losses[int(path.name)])[:1]
    else:
        chosen = [path for path in found if which.isdigit() and int(path.name) == int(which)]
    if not chosen:
        steps = ", ".join(str(int(path.name)) for path in found) or "none"
        raise UsageError(
            f"export.checkpoint={which}: must be last, best or a step that is kept in {pretrain} "
            f"(here: {steps}); best needs one that was evaluated"
        )
    return chosen[0]
