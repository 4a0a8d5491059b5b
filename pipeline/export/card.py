"""The model card of an export: the model, its data, its scores and how to load it.

A card holds numbers, settings and file types only. It never holds text or names of files.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.examples.config import ExamplesConfig
from data_prep.reading.source_files import FORMAT
from pipeline.config.schema import ExportConfig
from pipeline.export.sentence_transformers import TAG, USE
from pipeline.models.bert.architectures import Architecture
from pipeline.models.bert.config import BertConfig
from pipeline.store.outputs import Store
from pipeline.training.checkpoint import read_state
from pipeline.workflow.stage import STAGE_ORDER

UNKNOWN = ExportConfig.license
ABOUT = """\
# {title}, {layers} layers of {hidden}

A {title} encoder of {layers} layers, {hidden} wide, with {heads} attention heads and a {kind}
vocabulary of {vocab_size:,} pieces; it reads up to {max_positions} pieces at once. Pretrained by
Sesame on masked pieces{pairs}.

## Use

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
model = AutoModelForMaskedLM.from_pretrained("path/to/this/folder")
```
{sentences}
`AutoModel` gives the encoder alone{both}. It is meant to be fine-tuned for classification, tagging
and search in the language and domain of its corpus.
"""

RECORD = """\

## Limitations

It repeats what its corpus says, errors and prejudices included, knows nothing of what is not in it,
and was not made to generate text. What it finds probable can give away rare strings of the text it
was trained on: weigh that before you share a model of confidential text.

## Data

{data}

## Scores

On text held out from training, at this checkpoint:

{scores}

## Training

- optimizer steps: {step:,}{average}
- {units} seen: {tokens:,}

```json
{recipe}
```

## Licence

{licence}
"""
UNSTATED = (
    "Not stated: it follows from the corpus. State it before you share the model, by "
    "`export.license=<identifier>`."
)


@dataclass(frozen=True)
class Facts:
    """Facts about a pretrained model besides its weights: numbers and settings only."""

    step: int
    tokens: int  # tokens seen in training
    scores: dict[str, float] = field(default_factory=dict)  # on held-out text
    data: list[str] = field(default_factory=list)  # lines about the training data
    recipe: dict[str, Any] = field(default_factory=dict)  # result keys by section
    export: ExportConfig = field(default_factory=ExportConfig)


def gather_facts(pretrain: Path, checkpoint: Path, export: ExportConfig) -> Facts:
    """Read the facts from a pretraining's folder and from the manifests of its inputs."""
    state = read_state(checkpoint)
    return Facts(
        state.step,
        state.tokens,
        {} if export.average else evaluations(pretrain).get(state.step, {}),
        [line for manifest in _manifests(pretrain) for line in _data(manifest)],
        read_recipe(pretrain),
        export,
    )


def _average(export: ExportConfig) -> str:
    steps = ", ".join(f"{step:,}" for step in sorted(set(export.average)))
    return f"; the weights are the mean of those after steps {steps}" if steps else ""


def read_recipe(pretrain: Path) -> dict[str, Any]:
    """Return the result keys of a pretraining and of all stages before it, by section."""
    recipe: dict[str, Any] = {}
    for manifest in _manifests(pretrain):
        recipe |= manifest["config"]
    recipe.pop("corpus", None)  # its conditions may name persons and places
    return recipe


def pairs_of(recipe: dict[str, Any]) -> str:
    """Return examples.pairs of a recipe."""
    pairs: str = recipe.get("examples", {}).get("pairs", ExamplesConfig.pairs)
    return pairs


def _manifests(pretrain: Path) -> list[dict[str, Any]]:
    """Return the manifests of the pretraining and of all stages before it, in stage order.

    Those of an initial model (init.source) are left out.
    """
    store = Store(pretrain.parents[1])
    found: dict[str, dict[str, Any]] = {}
    waiting = [f"{pretrain.parent.name}/{pretrain.name}"]
    while waiting:
        output = store.from_reference(waiting.pop())
        if output.reference in found or not (output.is_done or output.is_begun):
            continue
        # An unfinished pretraining has no counts yet; the card shows none of them.
        manifest = output.manifest() if output.is_done else {**output.request(), "counts": {}}
        found[output.reference] = manifest
        waiting += [item for role, item in manifest["upstream"].items() if role != "init"]
    return sorted(found.values(), key=lambda manifest: STAGE_ORDER.index(manifest["stage"]))


def _data(manifest: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the card about one stage's output."""
    counts = manifest["counts"]
    match manifest["stage"]:
        case "shard":
            kinds = Counter(_kind(name) for name in manifest["files_read"] if FORMAT.search(name))
            read, kept = counts["documents"]["read"], counts["documents"]["kept"]
            yield f"files: {', '.join(f'{n:,} of {kind}' for kind, n in sorted(kinds.items()))}"
            yield f"documents: {kept:,} kept of {read:,}"
            for split, name in (("train", "training"), ("heldout", "held out")):
                words, sentences = counts["words"][split], counts["sentences"][split]
                yield f"{name}: {words:,} words in {sentences:,} sentences"
        case "tokenizer":
            yield f"tokenizer: {counts['kind']}, {counts['vocab_size']:,} entries"
        case "examples":
            train, length = counts["train"], manifest["config"]["examples"]["max_seq_length"]
            tokens, rows = train["tokens"], train["rows"]
            yield f"examples: {tokens:,} tokens in {rows:,} rows of up to {length:,}"
        case "pretrain" if source := manifest["upstream"].get("init"):
            yield f"goes on from: {source}, which has data and a card of its own"


def _kind(name: str) -> str:
    """Return the ending of a corpus file, with that of its compression."""
    found = FORMAT.search(name)
    assert found is not None, "names of other files are left out"
    return f".{(found[1] or found[3]).lower()}{(found[2] or '').lower()}"


def evaluations(pretrain: Path) -> dict[int, dict[str, float]]:
    """Return held-out losses and accuracies by step, skipping losses that were not finite.

    Losses by source and language are left out: the names of sources are the user's.
    """
    text = (pretrain / "metrics.jsonl").read_text()
    whole = text[: text.rfind("\n") + 1]  # the last line may still be incomplete
    lines = map(json.loads, whole.splitlines())
    return {
        line["step"]: {
            key: value
            for key, value in line.items()
            if key.startswith("heldout_") and "/" not in key
            if value is not None  # as without sentence pairs
        }
        for line in lines
        if line.get("heldout_loss") is not None
    }


def model_card(
    architecture: Architecture, config: BertConfig, vocab_size: int, kind: str, facts: Facts
) -> str:
    """Return the README.md of an exported BERT."""
    about = ABOUT.format(
        title=architecture.title,
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads,
        kind=kind,
        vocab_size=vocab_size,
        max_positions=config.max_positions,
        pairs={"nsp": " and next sentences", "sop": " and sentence order"}.get(
            pairs_of(facts.recipe), ""
        ),
        sentences="" if facts.export.sentence_vectors is None else USE,
        both=", `AutoModelForPreTraining` both heads" if architecture.has_pairs else "",
    )
    hub = {"library_name": "transformers", "pipeline_tag": "fill-mask"}
    return front_matter(hub, architecture.model_type, facts) + about + record(facts, "pieces")


def front_matter(hub: dict[str, str], tag: str, facts: Facts) -> str:
    """Return the card's YAML header for the Hub; values are quoted, as YAML reads `no` as false."""
    stated: dict[str, Any] = hub | {"license": facts.export.license}
    if facts.export.language is not None:
        stated["language"] = facts.export.language
    lines = [f"{key}: {json.dumps(value)}" for key, value in stated.items()]
    tags = [tag, "sesame"] + ([TAG] if facts.export.sentence_vectors is not None else [])
    return "\n".join(["---", *lines, "tags:", *(f"- {each}" for each in tags), "---", "", ""])


def record(facts: Facts, units: str) -> str:
    """Return the part of a card that all models share."""
    scores = [f"- {_title(key)}: {value:.4g}" for key, value in facts.scores.items()]
    return RECORD.format(
        data="\n".join(f"- {line}" for line in facts.data) or "Not recorded.",
        scores="\n".join(scores) or "Not measured.",
        step=facts.step,
        average=_average(facts.export),
        units=units,
        tokens=facts.tokens,
        recipe=json.dumps(facts.recipe, indent=1, sort_keys=True),
        licence=UNSTATED if facts.export.license == UNKNOWN else facts.export.license,
    )


def _title(key: str) -> str:
    return key.removeprefix("heldout_").replace("mlm", "masked-LM").replace("_", " ")
