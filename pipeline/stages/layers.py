"""Stage `layers`: scores every choice of hidden states on a task, as in BERT's paper.

Reads the task's files and an encoder. Writes layers.json: the development and the test score per
choice of layers and seed, with a frozen encoder under a two-layer BiLSTM of the paper's width, and
for CoNLL-2003 the published development scores. Without a test file the test score is that of the
split that is named.
Try it: sesame layers experiment=demo encoder=demo task=mentions
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.markup import escape
from rich.table import Table

from data_prep.errors import UsageError
from data_prep.fields import result_keys
from data_prep.files import write_atomically
from pipeline.config.schema import FLOORS, Config
from pipeline.report.published import published_layers
from pipeline.stages.encoder_inputs import (
    earlier_encoder_keys,
    encoder_keys,
    encoder_label,
    encoder_requests,
    foreign_note,
    open_encoder,
)
from pipeline.tasks.config import FinetuneConfig
from pipeline.tasks.splits import read_splits, task_files
from pipeline.workflow.stage import Node, Request, Stage, UserFiles, Work

LEGEND = (
    "published: CoNLL-2003 dev F1 of BERT base (Devlin et al. 2019, table 7), whose weighted sums "
    "stand beside our plain sums"
)
EPOCH = "the epoch of every head was chosen on dev"


class Layers(Stage):
    """The stage that scores every choice of an encoder's layers."""

    name = "layers"
    format = 5
    sections = ("task", "finetune", "layers")

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return the encoder. Raises `UsageError` for baselines and suites."""
        if FLOORS.keys() & set(config.encoders) or config.task.members:
            raise UsageError(
                f"encoder={encoder_label(config)}, task={config.task.name}: layers takes one task, "
                "and an encoder with layers"
            )
        return encoder_requests(config)

    def keys(self, config: Config) -> dict[str, Any]:
        """Return the settings of the task, the head and its training."""
        task = result_keys(config.task)
        del task["averaged"]  # of suites only
        return self._with_task(config, task) | encoder_keys(config)

    def earlier_keys(self, config: Config) -> dict[str, Any]:
        """Return the keys with all settings of the task and of a random encoder's model."""
        return self._with_task(config, result_keys(config.task)) | earlier_encoder_keys(config)

    def _with_task(self, config: Config, task: dict[str, Any]) -> dict[str, Any]:
        return {
            "task": task,
            "finetune": result_keys(head_config(config)),
            "layers": result_keys(config.layers),
        }

    def files(self, config: Config) -> UserFiles:
        """Return the task's data files."""
        return UserFiles(task_files(config.task))

    def run(self, work: Work) -> dict[str, Any]:
        """Train one head per choice and seed; a rerun continues after the last finished head."""
        from pipeline.stages.tracked import followed
        from pipeline.tasks.layer_table import fill_table

        config = work.config
        splits = read_splits(config.task, config.finetune.seed)
        encoder = open_encoder(config, work.inputs, config.finetune.seed)
        own, seeds = head_config(config), config.layers.seeds
        with followed(work) as dashboards:
            scores = fill_table(
                encoder, splits, config.task, own, seeds, work.out, dashboards.after_head
            )
        found = {
            "task": config.task.name,
            "metric": config.task.metric,
            "encoder": encoder_label(config),
            "width": config.layers.width,
            "train_examples": len(splits.train),
            "dev_examples": len(splits.dev),
            "test_examples": len(splits.test),
            "choices": {
                choice: {
                    split: [by_seed[seed][split] for seed in sorted(by_seed, key=int)]
                    for split in ("dev", "test")
                }
                for choice, by_seed in scores.items()
            },
            "split": config.task.scored_split,
            "published": published_layers(str(config.task.name), config.task.metric),
        }
        write_atomically(work.out / "layers.json", json.dumps(found, indent=1))
        return found

    def tidy(self, out: Path, inputs: Mapping[str, Path]) -> None:
        """Remove the scores of single heads, which stand in layers.json too."""
        from pipeline.tasks.layer_table import RESULTS

        (out / RESULTS).unlink(missing_ok=True)

    def foretell(self, node: Node, nodes: Collection[Node]) -> str:
        """Return which encoders run through transformers, and why."""
        return foreign_note(node)

    def how_far(self, out: Path) -> str:
        """Return the number of trained heads as text."""
        path = out / ".results.json"  # RESULTS; importing its module would import torch
        done = sum(map(len, json.loads(path.read_text()).values())) if path.exists() else 0
        return f"heads trained: {done}"

    def closing(self, out: Path) -> Table:
        """Return the scores as a table."""
        found = json.loads((out / "layers.json").read_text())
        table = Table(
            title=escape(
                f"{found['task']}, {found['metric']}: {found['encoder']}, frozen, under a BiLSTM "
                f"of width {found['width']}"
            ),
            title_justify="left",
            caption=f"{LEGEND}; {EPOCH}" if found["published"] else EPOCH,
        )
        scored = [] if found["split"] == "dev" else [found["split"]]
        printed = ["published dev"] if found["published"] else []
        for heading in ("layers", "dev", *printed, *scored, "seeds"):
            table.add_column(heading, justify="left" if heading == "layers" else "right")
        for choice, scores in found["choices"].items():
            published = found["published"].get(choice)
            table.add_row(
                choice,
                _mean(scores["dev"]),
                *(["" if published is None else f"{published:.1f}"] if printed else []),
                *([_mean(scores["test"])] if scored else []),
                str(len(scores["dev"])),
            )
        return table


def _mean(values: list[float]) -> str:
    deviation = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):.1f}{deviation}"


def head_config(config: Config) -> FinetuneConfig:
    """Return the fine-tuning config of the paper's head. The table sets choice and seed itself."""
    return replace(
        config.finetune,
        mode="frozen",
        head="bilstm",
        head_width=config.layers.width,
        layers="last",
        layer_decay=1.0,
        lr=config.layers.lr,
        head_lr=None,
        precision="fp32",  # a frozen encoder's states are computed and read in this process
        eval_every=None,
        epochs=config.layers.epochs,
        patience=config.layers.patience,
    )
