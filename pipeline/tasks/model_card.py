"""The model card of a fine-tuned model: task, counts, scores over seeds, and how to use it.

A card holds numbers and settings only: no text, and no names of files.
"""

import json
from statistics import fmean, stdev
from typing import Any

CARD = """\
---
library_name: {library}
tags:
- sesame
---

# {task}: {encoder}

{about}

## Use

```python
from pipeline import load_model

model = load_model("path/to/this/folder")
model.predict([{example}])
```

On the command line: `sesame predict model=path/to/this/folder input=file.jsonl`.{transformers}

## Scores

{metric} by seed. This is seed {seed}, which has the best score on the development set.

{table}

{scored}: mean {mean:.1f}{deviation} over {seeds}.{caution}

## Making

- {train:,} training, {dev:,} development and {test:,} test examples
- settings: `{settings}`

A model repeats the errors and prejudices of the texts and labels it was trained on. What a
vocabulary or the names of labels give away, this folder gives away.
"""
NO_TEST_SET = (
    " The task has no test file: the development set was scored, on which the epoch or the "
    "threshold was chosen. So these scores are too high."
)
SPLITS = {
    "test": "test",
    "dev": "development",
    "part of train": "part of the training file, held out",
}
ABOUT = {
    "classify": "Assigns one of {labels} labels to a text or a pair of texts.",
    "regress": "Gives a number for a text or a pair of texts.",
    "tag": "Tags every word with one of {labels} tags.",
    "span": "Finds the answer to a question in a passage.",
    "multilabel": "Assigns any number of {labels} labels to a text or a pair of texts.",
    "choice": "Chooses the best of several answers or continuations of a text.",
}
OF_TEXTS = '"a text", "another text"'
OF_PAIRS = '("a text", "the other text of the pair")'
EXAMPLES = {  # by kind of task, where it is not one text or a pair
    "tag": '"A sentence with names."',
    "span": '("a question", "the passage with its answer")',
    "choice": '("a context", ["one choice", "another choice"])',
}


def model_card(stated: dict[str, Any], facts: dict[str, Any], recipe: dict[str, Any]) -> str:
    """Return the README.md of a saved model.

    stated: its `finetuned.json`. facts: see `pipeline.stages.model.gather`. recipe: the settings of
    the fine-tuning.
    """
    form, kind = stated["form"], stated["task"]["kind"]
    tests = [100 * score for score in facts["test_scores"]]
    is_class = form != "sesame"
    return CARD.format(
        library="transformers" if is_class else "sesame",
        task=facts["task"],
        encoder=facts["encoder"],
        about=ABOUT[kind].format(labels=len(stated["answers"].get("labels", []))),
        example=EXAMPLES.get(kind, OF_TEXTS if stated["task"].get("text_b") is None else OF_PAIRS),
        transformers=f" In transformers: `{form}.from_pretrained(…)`." if is_class else "",
        metric=facts["metric"],
        seed=facts["seed"],
        table=_table(facts),
        scored=SPLITS[facts["split"]].capitalize(),
        mean=fmean(tests),
        deviation=f", deviation {stdev(tests):.1f}" if len(tests) > 1 else "",
        caution=NO_TEST_SET if facts["chosen_on_scored"] else "",
        seeds="one seed" if len(tests) == 1 else f"{len(tests)} seeds",
        settings=json.dumps(recipe | stated["finetune"], sort_keys=True),
        **facts["examples"],
    )


def _table(facts: dict[str, Any]) -> str:
    """Return the scores by seed, under the names of the splits.

    Where the development set is scored, it has one column; two, if the score by which the seed was
    chosen is another one: that of fewer examples (task.dev_examples), or without the threshold.
    """
    columns = {
        "seed": [str(seed) for seed in facts["seeds"]],
        "development": [f"{100 * score:.1f}" for score in facts["dev_scores"]],
    }
    scored = [f"{100 * score:.1f}" for score in facts["test_scores"]]
    if facts["split"] != "dev":
        columns[SPLITS[facts["split"]]] = scored
    elif scored != columns["development"]:
        columns["development, to choose"] = columns.pop("development")
        columns["development, scored"] = scored
    rows = [list(columns), ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
