"""Every kind of answer has the same steps in this process and in micro-batches on a rank."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config.schema import Config
from pipeline.tasks.config import TaskConfig
from tests.pipeline.stages.test_finetune_loops import (
    TUNING,
    WITHOUT_DROPOUT,
    WORDS,
    losses,
    rank_in_this_process,
    run,
    tokenizer,
)

__all__ = ["rank_in_this_process", "tokenizer"]  # fixtures

KINDS: dict[str, dict[str, Any]] = {
    "choice": {"kind": "choice", "text_a": "a", "choices": ["ends"]},
    "multilabel": {"kind": "multilabel", "text_a": "a", "metric": "micro_f1"},
    "weighted": {"text_a": "a", "class_weights": {"0": 3.0}},
    "balanced": {"text_a": "a", "class_weights": "balanced"},
    "spans": {"kind": "tag", "reader": "spans", "metric": "entity_f1"},
    "context": {"kind": "tag", "reader": "conll", "metric": "entity_f1", "context": "document"},
}


def row(name: str, rng: np.random.Generator) -> str:
    words = [str(word) for word in rng.choice(WORDS, size=rng.integers(1, 8))]
    if name == "context":
        tagged = "".join(f"{word} {'B-X' if word < 'w3' else 'O'}\n" for word in words)
        return f"{'-DOCSTART- O' if rng.random() < 0.3 else ''}\n\n{tagged}"
    text = " ".join(words)
    if name == "spans":
        spans = [{"start": 0, "end": len(words[0]), "label": "X"}]
        return json.dumps({"text": text, "spans": spans})
    labels: dict[str, Any] = {
        "choice": int(rng.integers(2)),
        "multilabel": [word for word in WORDS[:3] if word in words],
    }
    ends = words if len(words) > 1 else ["w0", "w1"]
    return json.dumps({"a": text, "ends": ends, "label": labels.get(name, len(words) % 2)})


@pytest.mark.usefixtures("rank_in_this_process")
@pytest.mark.parametrize("name", list(KINDS))
def test_micro_batches_take_the_steps_of_the_plain_loop(
    name: str, tokenizer: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    file = "all.conll" if name == "context" else "all.jsonl"
    (tmp_path / file).write_text("-DOCSTART- O\n" * (name == "context"))
    with (tmp_path / file).open("a") as stream:
        stream.writelines(row(name, rng) + "\n" for _ in range(60))
    task = TaskConfig(name="toy", data_dir=str(tmp_path), train=file, dev=file, **KINDS[name])
    task.check()
    found = []
    for engine, size in (("plain", None), ("ranks", 3)):
        tuning = replace(TUNING, dropout=0.0, engine=engine, micro_batch_size=size, eval_every=1)
        config = Config(
            encoder="random", model=WITHOUT_DROPOUT, task=task, finetune=tuning, keep=False
        )
        found.append(run(config, tokenizer, tmp_path / engine))
    (plain, told), (ranks, _) = found
    assert losses(ranks) == pytest.approx(losses(plain), abs=2e-4)
    assert len(losses(plain)) == 2 * 4  # 60 examples in batches of 16
    assert 0 <= told["score"] <= 1
