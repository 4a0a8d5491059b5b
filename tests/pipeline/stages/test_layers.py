"""The table of layer choices: hidden states once, every choice that exists, kills survived."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.table import Table

from data_prep.errors import UsageError
from data_prep.vectors.table import VectorTable
from pipeline.config.schema import Config
from pipeline.encoders.stored import stored_states
from pipeline.stages.layers import Layers, head_config
from pipeline.tasks import layer_table, plain_loop
from pipeline.tasks.config import LAYERS, FinetuneConfig, LayersConfig, TaskConfig
from pipeline.tasks.heads import LayerChoice, needed_states
from pipeline.tasks.layer_table import RESULTS, STATES, fill_table, time_left
from pipeline.tasks.splits import read_splits
from pipeline.training.exits import Interrupted
from pipeline.training.stopping import StopRequest
from pipeline.workflow.stage import Work
from tests.pipeline.encoders.two_layers import TwoLayers

TASK = TaskConfig(
    name="toy", kind="tag", reader="conll", metric="entity_f1", train="train.conll",
    train_examples=20, dev_examples=5, test_examples=5,
)  # fmt: skip


@pytest.fixture
def task(tmp_path: Path) -> TaskConfig:
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(60):
        for word in rng.choice(["a", "b", "c"], size=rng.integers(1, 5)):
            lines.append(f"{word}\t{'B-X' if word == 'a' else 'O'}")
        lines.append("")
    (tmp_path / "train.conll").write_text("\n".join(lines) + "\n")
    return replace(TASK, data_dir=str(tmp_path))


def test_every_choice_reads_the_states_it_says() -> None:
    """The others are NaN, which would show."""
    for choice in (*LAYERS, "3"):
        needed = needed_states(choice, 6)
        states = [torch.full((2, 4), 1.0 if n in needed else float("nan")) for n in range(6)]
        assert LayerChoice(choice, 6, 4)(states).isfinite().all(), choice
        for missing in needed:
            rest = [x if n != missing else x * float("nan") for n, x in enumerate(states)]
            assert LayerChoice(choice, 6, 4)(rest).isnan().any(), choice


def test_the_time_left_is_that_of_the_heads_so_far() -> None:
    assert time_left(30, 3, 6) == "; about 30 s left"
    assert time_left(600, 1, 21) == "; about 200 min left"
    assert time_left(600, 21, 21) == ""


def test_states_are_computed_once_and_finished_heads_survive(
    task: TaskConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FinetuneConfig(lr=1e-2, epochs=1, mode="frozen", head="bilstm", head_width=16,
                            accelerator="cpu")  # fmt: skip
    splits = read_splits(task, 0)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    encoder = TwoLayers()
    scores = fill_table(encoder, splits, task, config, 2, whole)
    words = sum(len(e.texts) for part in (splits.train, splits.dev, splits.test) for e in part)
    assert encoder.computed == words
    assert list(scores) == ["embeddings", "last", "second_to_last", "sum_all", "mix"]
    assert all(one.keys() == {"dev", "test"} for own in scores.values() for one in own.values())
    assert all(list(by_seed) == ["1", "2"] for by_seed in scores.values())
    assert [path.name for path in whole.iterdir()] == [RESULTS]

    done = 0

    def interrupted(*arguments):
        nonlocal done
        done += 1
        if done == 5:
            raise KeyboardInterrupt
        return finetune(*arguments)

    finetune = layer_table.finetune
    monkeypatch.setattr(layer_table, "finetune", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fill_table(TwoLayers(), splits, task, config, 2, killed)
    assert Layers().how_far(killed) == "heads trained: 4"
    told: list[tuple[int, str]] = []
    heard: list[list[int]] = []

    def noted(encoder, folder, device, needed):
        heard.append(needed)
        return stored_states(encoder, folder, device, needed)

    monkeypatch.setattr(layer_table, "stored_states", noted)
    again = fill_table(
        TwoLayers(), splits, task, config, 2, killed, lambda n, choice, _: told.append((n, choice))
    )
    assert again == scores
    assert done == 5 + 6
    assert [number for number, _ in told] == list(range(1, 11))
    assert {choice for _, choice in told[:4]} == {"mix", "sum_all"}  # those of most states
    assert heard == [[0, 1, 2]]
    assert not (killed / STATES).exists()
    # A kill between the last head and the manifest, say: nothing is trained again.
    assert fill_table(TwoLayers(), splits, task, config, 2, killed) == scores
    assert done == 5 + 6
    Layers().tidy(killed, {})
    assert list(killed.iterdir()) == []


def test_a_stopped_table_says_how_many_heads_are_kept(
    task: TaskConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StopsInSecondHead(StopRequest):
        heads = 0

        def __init__(self) -> None:
            type(self).heads += 1
            super().__init__()
            self.came = self.heads == 2

    config = FinetuneConfig(lr=1e-2, epochs=1, mode="frozen", accelerator="cpu")
    splits, out = read_splits(task, 0), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(plain_loop, "StopRequest", StopsInSecondHead)
        with pytest.raises(Interrupted, match="1 of 5 heads trained; run the same command to go"):
            fill_table(TwoLayers(), splits, task, config, 1, out)
    assert Layers().how_far(out) == "heads trained: 1"
    assert len(fill_table(TwoLayers(), splits, task, config, 1, out)) == 5


def test_development_scores_stand_apart_from_test_scores(
    task: TaskConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published column is one of development scores."""
    outcome = SimpleNamespace(dev_score=0.7, scores={"entity_f1": 0.3})
    monkeypatch.setattr(layer_table, "finetune", lambda *_: outcome)
    config = FinetuneConfig(mode="frozen", accelerator="cpu")
    scores = fill_table(TwoLayers(), read_splits(task, 0), task, config, 1, tmp_path / "out")
    assert list(scores.values()) == [{"1": {"dev": 0.7, "test": 0.3}}] * len(scores)
    assert len(scores) == 5


def headings(table: Table) -> list[str]:
    return [str(column.header) for column in table.columns]


@pytest.mark.parametrize(
    ("name", "metric", "is_published"),
    [
        ("conll2003", "entity_f1", True),
        ("conll2003", "accuracy", False),
        ("toy", "entity_f1", False),
    ],
)
def test_published_scores_stand_beside_conll_2003_only(
    name: str, metric: str, is_published: bool, task: TaskConfig, tmp_path: Path
) -> None:
    """They stood beside every task. A development file alone has no second column."""
    VectorTable(["a", "b"], np.eye(2, dtype=np.float32)).write(tmp_path)
    config = Config(
        encoder=str(tmp_path), task=replace(task, name=name, metric=metric, dev="train.conll"),
        layers=LayersConfig(seeds=1, epochs=1, patience=1, width=16),
    )  # fmt: skip
    out = tmp_path / "out"
    out.mkdir()
    found = Layers().run(Work(config, {"encoder": tmp_path}, out, "0" * 16))
    assert found["published"].get("concat_last_4") == (96.1 if is_published else None)
    printed = ["published dev"] if is_published else []
    table = Layers().closing(out)
    assert headings(table) == ["layers", "dev", *printed, "seeds"]
    assert ("plain sums" in str(table.caption)) == is_published
    assert all(len(list(column.cells)) == 3 for column in table.columns)


def test_the_stage_writes_every_choice_of_layers(task: TaskConfig, tmp_path: Path) -> None:
    VectorTable(["a", "b"], np.eye(2, dtype=np.float32)).write(tmp_path)
    config = Config(
        encoder=str(tmp_path), task=task,
        layers=LayersConfig(seeds=1, epochs=1, patience=1, width=16),
    )  # fmt: skip
    out = tmp_path / "out"
    out.mkdir()
    Layers().run(Work(config, {"encoder": tmp_path}, out, "0" * 16))
    found = json.loads((out / "layers.json").read_text())
    assert set(found["choices"]) == {"embeddings", "last", "mix"}
    assert found["split"] == "part of train" and found["published"] == {}
    table = Layers().closing(out)
    assert table.row_count == 3
    assert headings(table) == ["layers", "dev", "part of train", "seeds"]
    Layers().tidy(out, {})
    assert sorted(path.name for path in out.iterdir()) == [".tracking", "layers.json"]
    lines = (out / ".tracking" / "metrics.jsonl").read_text().splitlines()
    heads = [json.loads(line) for line in lines]
    assert [line.pop("step") for line in heads] == [1, 2, 3]
    told = {choice: scores["dev"][0] for choice, scores in found["choices"].items()}
    assert {choice: score for line in heads for choice, score in line.items()} == told
    assert found["width"] == 16
    assert all(len(scores["test"]) == 1 for scores in found["choices"].values())


def test_only_the_head_that_is_used_shapes_the_table() -> None:
    config = Config(encoder="x", task=TASK)
    other = replace(config, finetune=FinetuneConfig(lr=1.0, layers="mix", mode="full", epochs=9))
    assert Layers().keys(config) == Layers().keys(other)
    for unused in ({"head_lr": 1.0}, {"precision": "bf16-mixed"}, {"eval_every": 1}):
        changed = replace(config, finetune=FinetuneConfig(**unused))
        assert Layers().keys(changed) == Layers().keys(config), unused
    assert head_config(config).head_width == 768  # Devlin et al. 2019, section 5.3
    assert LayersConfig().width == 768
    with pytest.raises(UsageError, match="encoder=tfidf"):
        Layers().inputs(replace(config, encoder="tfidf"))
