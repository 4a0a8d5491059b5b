"""Stage `model`: the fine-tuned model of a task, ready to be used.

Reads fine-tunings that differ by their seed only. Takes the one with the best development score and
writes its encoder, head, labels, scale and thresholds (pipeline.tasks.finetuned) with a card. A
fine-tuning leaves its model in the hidden folder `.model`, which this stage takes over; if it is
not there any more, the same training is done again.
Try it: sesame finetune encoder=demo task=mentions; sesame predict model=demo/mentions input=a.txt
"""

import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.files import write_atomically
from data_prep.progress import console
from pipeline.config.schema import Config
from pipeline.stages.encoder_inputs import encoder_requests, encoder_type, foreign_note
from pipeline.stages.tracked import TRAINING
from pipeline.stages.tuning import KEPT, keeps_model, steps_done, train
from pipeline.store.models import FILE
from pipeline.store.outputs import MANIFEST, canonical
from pipeline.tasks.expected_form import described, expected_form
from pipeline.tasks.model_card import model_card
from pipeline.tasks.summary import chosen_on_scored
from pipeline.workflow.stage import Node, Planner, Request, Stage, Work, as_input

TUNED = "finetune"  # beginning of the roles of fine-tunings


def add_models(graph: Planner) -> list[Node]:
    """Add the models of all fine-tunings in a graph; seeds of one setting share a model."""
    groups: dict[str, list[Node]] = {}
    for node in list(graph.nodes.values()):
        if node.stage == TUNED and keeps_model(node.config):
            keys = {**node.request["config"]["finetune"], "seed": None}
            shared = {**node.request, "config": {**node.request["config"], "finetune": keys}}
            groups.setdefault(canonical(shared), []).append(node)
    return [_add(graph, nodes) for nodes in groups.values()]


def _add(graph: Planner, nodes: list[Node]) -> Node:
    inputs = {f"{TUNED}_{node.config.finetune.seed}": as_input(node) for node in nodes}
    settings = nodes[0].label.split(", ")
    label = ", ".join(each for each in settings if not each.startswith("finetune.seed="))
    return graph.place("model", nodes[0].config, label, inputs | nodes[0].inputs)


class Model(Stage):
    """The stage that keeps the best of several fine-tuned models."""

    name = "model"
    format = 3
    sections = ()
    runs_beside = True

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return the fine-tuning, and the encoder in case it must be trained again."""
        tuned = {f"{TUNED}_{config.finetune.seed}": Request("finetune", config)}
        return tuned | encoder_requests(config)

    def foretell(self, node: Node, nodes: Collection[Node]) -> str:
        """Return the form of the model: a class of transformers, or ours and why.

        Also says if transformers computes the encoder.
        """
        model_type = encoder_type(node, nodes)
        form = described(*expected_form(model_type, node.config.task, node.config.finetune))
        return "; ".join(filter(None, (form, foreign_note(node))))

    def run(self, work: Work) -> dict[str, Any]:
        """Write the model of the best seed; return its task, form and scores."""
        tuned = {role: path for role, path in work.inputs.items() if role.startswith(TUNED)}
        scores = {
            role: json.loads((path / "scores.json").read_text()) for role, path in tuned.items()
        }
        best = best_by_development(scores)
        kept = tuned[best] / KEPT
        if kept.is_dir():
            shutil.copytree(kept, work.out, dirs_exist_ok=True)
        else:
            console.print(
                f"model: seed {scores[best]['seed']} was not kept, so it is trained again",
                markup=False,
            )
            _train_again(work, scores[best]["seed"])
        stated = json.loads((work.out / FILE).read_text())
        facts = gather(scores.values(), scores[best]["seed"])
        made = json.loads((tuned[best] / MANIFEST).read_text())
        recipe = {key: value for key, value in made["config"]["finetune"].items() if key != "seed"}
        write_atomically(work.out / "README.md", model_card(stated, facts, recipe))
        return facts | {"form": stated["form"]}

    def how_far(self, out: Path) -> str:
        """Return the step of a training that is done again."""
        return steps_done(out)

    def tidy(self, out: Path, inputs: Mapping[str, Path]) -> None:
        """Remove the models that the fine-tunings left, and checkpoints of one done again."""
        for role, path in inputs.items():
            if role.startswith(TUNED):
                shutil.rmtree(path / KEPT, ignore_errors=True)
        shutil.rmtree(out / TRAINING, ignore_errors=True)


def best_by_development(scores: Mapping[str, dict[str, Any]]) -> str:
    """Return the role with the best development score; among equal ones the smallest seed.

    scores: the content of scores.json, by role.
    """
    return min(scores, key=lambda role: (-scores[role]["dev_score"], scores[role]["seed"]))


def gather(found: Iterable[dict[str, Any]], seed: int) -> dict[str, Any]:
    """Return task, counts and the scores of all seeds; numbers and names of settings only."""
    every = sorted(found, key=lambda scores: int(scores["seed"]))
    first = every[0]
    return {
        "task": first["task"],
        "kind": first["kind"],
        "metric": first["metric"],
        "encoder": first["encoder"],
        "seed": seed,
        "seeds": [scores["seed"] for scores in every],
        "dev_scores": [scores["dev_score"] for scores in every],
        "test_scores": [scores["score"] for scores in every],
        "split": first["split"],
        "chosen_on_scored": any(map(chosen_on_scored, every)),
        "examples": {name: first[f"{name}_examples"] for name in ("train", "dev", "test")},
    }


def _train_again(work: Work, seed: int) -> None:
    config = replace(work.config, finetune=replace(work.config.finetune, seed=seed), keep=True)
    encoders = {role: path for role, path in work.inputs.items() if not role.startswith(TUNED)}
    train(replace(work, config=config, inputs=encoders))
    made = work.out / KEPT
    for path in sorted(made.iterdir()):
        os.replace(path, work.out / path.name)
    made.rmdir()
