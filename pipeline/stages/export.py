"""Stage `export`: converts a checkpoint to a folder that other libraries load.

Reads the pretraining and its tokenizer. Writes a Hugging Face folder (BERT: config.json,
model.safetensors) or AllenNLP's pair (ELMo: options.json, weights.hdf5, vocabulary.txt), the
tokenizer's files and README.md. Try it: sesame export encoder=demo@best
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from pipeline.config.schema import Config, ExportConfig
from pipeline.models.config import ModelConfig
from pipeline.models.registry import family_of
from pipeline.stages.tokenizer import upstream
from pipeline.store.models import find_model, models_of
from pipeline.store.outputs import Output, Store, fingerprint
from pipeline.store.references import Folder, resolve
from pipeline.store.runs import Runs
from pipeline.store.verify import refuse_damage
from pipeline.training.source import read_model
from pipeline.workflow.stage import Input, Instance, Node, Planner, Request, Stage, Work


class Export(Stage):
    """The stage that converts a checkpoint to a folder that other libraries load."""

    name = "export"
    format = 2
    sections = ("export",)

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return the pretraining and its tokenizer. Raises `UsageError` if the model fits no
        architecture of transformers."""
        family_of(config.model).check_export(config.model, config.examples.pairs)
        _check_sentences(config.model, config.export)
        return {"pretrain": Request("pretrain", config), "tokenizer": Request("tokenizer", config)}

    def run(self, work: Work) -> dict[str, Any]:
        """Write the folder, load it again, and check that it computes the same as our model."""
        from pipeline.export.allennlp import export_allennlp
        from pipeline.export.card import gather_facts
        from pipeline.export.huggingface import export_huggingface
        from pipeline.export.weights import read_weights
        from pipeline.training.checkpoint import damage

        pretrain = work.inputs["pretrain"]
        chosen = choose_checkpoints(pretrain, work.config.export)
        for checkpoint in chosen:
            if (fault := damage(checkpoint)) is not None:
                raise SesameError(
                    f"{checkpoint}: {fault}; choose another step by export.checkpoint=<step> or "
                    "export.average=[<step>, …]"
                )
        model = read_model(pretrain / "config.json")
        vocab_size = json.loads((pretrain / "config.json").read_text())["vocab_size"]
        facts = gather_facts(pretrain, chosen[-1], work.config.export)
        write: dict[str, Callable[..., dict[str, Any]]] = {
            "huggingface": export_huggingface,
            "allennlp": export_allennlp,
        }
        return write[family_of(model).folder_format](
            read_weights(chosen), model, vocab_size, work.inputs["tokenizer"], work.out, facts
        )

    def resolve(self, graph: Planner, request: Request) -> Node | Input:
        """Return the export, word vectors or user's folder that `encoder` refers to."""
        config, text = request.config, request.config.encoder
        if text is None or text in graph.pretrainings:
            reference, own = _meant_pretraining(graph, text) or ("", config)
            return self._add_own(graph, reference, own, config)
        if (model := _finetuned(graph, text)) is not None:
            return model
        found = resolve("encoder", text, "pretrain", graph.store)
        if isinstance(found, Folder):
            return _vectors(graph, found, config) or _folder(graph, found)
        node = graph.place(
            self.name,
            replace(config, export=replace(config.export, checkpoint=found.checkpoint)),
            text,
            {
                "pretrain": Input(found.output.reference, found.output.path, found.is_step),
                "tokenizer": upstream(graph.store, found, "tokenizer"),
            },
        )
        if not node.output.is_done:
            refuse_damage(found.output, graph.checksums, config.verifies_all)
        if (found.output.is_done or found.is_step) and not node.output.is_done:
            wanted = replace(config.export, checkpoint=found.checkpoint)
            check_finished(found.output.path, wanted)
        return node

    def add_instance(self, graph: Planner, instance: Instance) -> None:
        """Add the export of `encoder`; if that is not set, of every pretraining in the graph."""
        config = instance.config
        if config.encoder is not None or not graph.pretrainings:
            self.resolve(graph, Request(self.name, config))
            return
        for points in graph.pretrainings.values():
            for reference, own in points.items():
                self._add_own(graph, reference, own, config)

    def _add_own(self, graph: Planner, reference: str, own: Config, config: Config) -> Node:
        """Add the export of a pretraining in this graph, with the export settings of `config`."""
        label = graph.nodes[reference].label if reference else ""
        return graph.add(self.name, replace(own, encoder=None, export=config.export), label)


def _meant_pretraining(graph: Planner, name: str | None) -> tuple[str, Config] | None:
    """Return reference and config of the pretraining in the graph that `encoder=<name>` refers to.

    Without a name it is the only one; None if the graph has none. Raises `UsageError` if there are
    several.
    """
    named = graph.pretrainings if name is None else {name: graph.pretrainings[name]}
    meant = {reference: own for points in named.values() for reference, own in points.items()}
    if len(meant) > 1 and len(named) > 1:
        raise UsageError(
            f"encoder: this experiment has several pretrainings ({', '.join(named)}); name "
            f"one, such as encoder={next(iter(named))}"
        )
    if len(meant) > 1:
        [only] = named
        raise UsageError(
            f"encoder={only}: is a sweep of {len(meant)} pretrainings; give each an instance "
            "of its own name"
        )
    return next(iter(meant.items()), None)


def _finetuned(graph: Planner, text: str) -> Input | None:
    """Return a fine-tuned model as an encoder: `<run>/<task>` or a fingerprint's beginning.

    None for other references, and for a fingerprint that a pretraining has too.
    """
    run, slash, task = text.partition("/")
    names = Runs(graph.store).names()
    is_named = bool(slash and task) and run in names
    if Path(text).exists() or not (is_named or _is_model_fingerprint(graph.store, text, names)):
        return None
    folder = find_model(f"encoder={text}", text, graph.store)
    return Input(f"model/{folder.name}", folder)


def _is_model_fingerprint(store: Store, text: str, names: Sequence[str]) -> bool:
    if text in names or not models_of(text, store):
        return False
    pretrainings = store.outputs("pretrain")
    return not any(output.fingerprint.startswith(text) for output in pretrainings)


def _vectors(graph: Planner, folder: Folder, config: Config) -> Node | None:
    """Add word vectors given as a file, or as a folder with a .npy matrix and a .parquet of words.

    Returns None for any other folder.
    """
    if folder.path.is_dir() and not any(folder.path.glob("*.parquet")):
        return None
    own = replace(config.vectors, source=str(folder.path.resolve()))
    return graph.add("vectors", replace(config, vectors=own))


def _folder(graph: Planner, folder: Folder) -> Input:
    """Return a user's folder as an input, identified by the content of its files."""
    files = sorted(path for path in folder.path.rglob("*") if path.is_file())
    described = graph.checksums.describe(
        (str(path.relative_to(folder.path)), path) for path in files
    )
    return Input(f"folder/{fingerprint(described)}", folder.path.resolve())


def check_finished(pretrain: Path, export: ExportConfig) -> None:
    """Raise `UsageError`, before any work, if the model or a checkpoint cannot be exported."""
    from pipeline.export.card import pairs_of, read_recipe

    choose_checkpoints(pretrain, export)
    model = read_model(pretrain / "config.json")
    family_of(model).check_export(model, pairs_of(read_recipe(pretrain)))
    _check_sentences(model, export)


def _check_sentences(model: ModelConfig, export: ExportConfig) -> None:
    is_huggingface = family_of(model).folder_format == "huggingface"
    if export.sentence_vectors is not None and not is_huggingface:
        raise UsageError(
            f"export.sentence_vectors={export.sentence_vectors}: sentence-transformers has no "
            f"{family_of(model).title}; leave it out, and use sesame embed unit=sentence"
        )


def _last_step(pretrain: Path, found: list[Path]) -> int | None:
    """Return the step at which a finished pretraining ended, else of its newest checkpoint."""
    output = Output(pretrain.parent.name, pretrain.name, pretrain)
    if output.is_done:
        return int(output.manifest()["counts"]["steps"])
    return int(found[-1].name) if found else None


def choose_checkpoints(pretrain: Path, export: ExportConfig) -> list[Path]:
    """Return the checkpoints to average, in order; a single one if `export.average` is empty.

    Raises `UsageError` if one of them is not kept.
    """
    from pipeline.store.checkpoints import CHECKPOINTS, checkpoints

    if not export.average:
        return [choose_checkpoint(pretrain, export.checkpoint)]
    kept = {int(path.name): path for path in checkpoints(pretrain / CHECKPOINTS)}
    steps = sorted(set(export.average))
    if missing := [step for step in steps if step not in kept]:
        raise UsageError(
            f"export.average: step {missing[0]} is not kept in {pretrain} (here: "
            f"{', '.join(map(str, kept)) or 'none'}); trainer.keep_every keeps more of the next run"
        )
    return [kept[step] for step in steps]


def choose_checkpoint(pretrain: Path, which: str) -> Path:
    """Return the checkpoint that is last, best (lowest held-out loss) or of a step.

    Raises `UsageError` if there is no such checkpoint.
    """
    from pipeline.export.card import evaluations
    from pipeline.store.checkpoints import CHECKPOINTS, checkpoints

    found = checkpoints(pretrain / CHECKPOINTS)
    if which == "last":
        chosen = [path for path in found if int(path.name) == _last_step(pretrain, found)]
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
