"""The model card of an export: what it is, what it was made from, how to load it; no text."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.config import ExamplesConfig
from pipeline.models.config import BertConfig
from pipeline.store import Store
from pipeline.training.checkpoint import read_state

CARD = """\
---
library_name: transformers
pipeline_tag: fill-mask
license: unknown
tags:
- bert
- fill-mask
- sesame
---

# BERT, {layers} layers of {hidden}

A BERT encoder of {layers} layers, {hidden} wide, with {heads} attention heads and a {kind}
vocabulary of {vocab_size:,} pieces; it reads up to {max_positions} pieces at once. Pretrained by
Sesame on masked pieces{pairs}.

## Use

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
model = AutoModelForMaskedLM.from_pretrained("path/to/this/folder")
```

`AutoModel` gives the encoder alone, `AutoModelForPreTraining` both heads. It is meant to be
fine-tuned for classification, tagging and search in the language and domain of its corpus. It
repeats what its corpus says, errors and prejudices included, and was not made to generate text.
"""

RECORD = """\

## Data

{data}

## Training

{training}

Recipe:

```json
{recipe}
```

## Licence

Not stated: it follows from the corpus. State it here, and at the top, before you share the model.
"""


@dataclass(frozen=True)
class Facts:
    """What is known about a pretrained model beside its weights: numbers and settings only."""

    step: int
    tokens: int  # pieces seen in training
    held_out: dict[str, float] = field(default_factory=dict)
    data: dict[str, dict[str, int]] = field(default_factory=dict)  # counts by stage
    recipe: dict[str, Any] = field(default_factory=dict)  # result keys by section

    @property
    def pairs(self) -> str:
        """How the segments it was trained on were paired."""
        pairs: str = self.recipe.get("examples", {}).get("pairs", ExamplesConfig.pairs)
        return pairs


def gather_facts(pretrain: Path, checkpoint: Path) -> Facts:
    """Facts from a pretraining's folder and from the manifests of what it was made from."""
    state = read_state(checkpoint)
    store = Store(pretrain.parents[1])
    data: dict[str, dict[str, int]] = {}
    recipe: dict[str, Any] = {}
    waiting = [store.output(pretrain.parent.name, pretrain.name)]
    while waiting:
        output = waiting.pop(0)
        if not output.is_done or output.reference in data:
            continue
        manifest = output.manifest()
        data[output.reference] = dict(_numbers(manifest["counts"]))
        # Nearest first: a model gone on from has a recipe of its own.
        recipe = {
            key: value for key, value in manifest["config"].items() if key != "corpus"
        } | recipe
        waiting += [store.from_reference(reference) for reference in manifest["upstream"].values()]
    recipe.pop("corpus", None)
    made_from = {name: counts for name, counts in data.items() if not name.startswith("pretrain/")}
    evaluated = evaluations(pretrain).get(state.step, {})
    return Facts(state.step, state.tokens, evaluated, made_from, recipe)


def evaluations(pretrain: Path) -> dict[int, dict[str, float]]:
    """Held-out losses and accuracies by step."""
    lines = map(json.loads, (pretrain / "metrics.jsonl").read_text().splitlines())
    return {
        line["step"]: {
            key: value
            for key, value in line.items()
            if key.startswith("heldout_") and value is not None  # no pairs, no figure of them
        }
        for line in lines
        if "heldout_loss" in line
    }


def _numbers(counts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    for key, value in counts.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{key} ")
        elif isinstance(value, int):
            yield f"{prefix}{key}", value


def model_card(config: BertConfig, vocab_size: int, kind: str, facts: Facts) -> str:
    """README.md of the exported folder."""
    about = CARD.format(
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads,
        kind=kind,
        vocab_size=vocab_size,
        max_positions=config.max_positions,
        pairs={"nsp": " and next sentences", "sop": " and sentence order"}.get(facts.pairs, ""),
    )
    return about + record(facts)


def record(facts: Facts) -> str:
    """The part of a card that is the same for all models: data, training, recipe, licence."""
    training = [f"- optimizer steps: {facts.step:,}", f"- pieces seen: {facts.tokens:,}"]
    training += [f"- {_title(key)}: {value:.4g}" for key, value in facts.held_out.items()]
    data = [
        f"- {output.partition('/')[0]}, {_title(key)}: {value:,}"
        for output, counts in facts.data.items()
        for key, value in counts.items()
    ]
    return RECORD.format(
        data="\n".join(data) or "Not recorded.",
        training="\n".join(training),
        recipe=json.dumps(facts.recipe, indent=1, sort_keys=True),
    )


def _title(key: str) -> str:
    return key.replace("_", " ")
