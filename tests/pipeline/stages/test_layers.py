"""The table of layer choices: hidden states once, every choice that exists, kills survived."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from data_prep.errors import UsageError
from data_prep.vectors.table import VectorTable
from pipeline.config.schema import Config
from pipeline.encoders import Concatenation, InputBatch, StaticEncoder
from pipeline.encoders.stored import StoredStates
from pipeline.stages.layers import Layers
from pipeline.tasks import layer_table
from pipeline.tasks.config import FinetuneConfig, LayersConfig, TaskConfig
from pipeline.tasks.layer_table import RESULTS, STATES, fill_table
from pipeline.tasks.splits import read_splits
from pipeline.workflow.stage import Work

TASK = TaskConfig(
    name="toy", kind="tag", reader="conll", metric="entity_f1", train="train.conll",
    train_examples=20, dev_examples=5, test_examples=5,
)  # fmt: skip
CPU = torch.device("cpu")


class TwoLayers(StaticEncoder):
    """Static vectors, and two layers above them; counts what it computes."""

    states = 3

    def __init__(self) -> None:
        super().__init__(VectorTable(["a", "b"], np.eye(2, dtype=np.float32)))
        self.computed = 0

    def forward(self, batch: InputBatch) -> list[Tensor]:
        self.computed += len(batch.tokens_N)
        (x,) = super().forward(batch)
        return [x, x + 1, 2 * x]


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


def test_stored_states_are_those_of_the_encoder(tmp_path: Path) -> None:
    encoder = TwoLayers()
    stored = StoredStates(encoder, tmp_path, CPU)
    rows = np.array([2, 0])
    for method, inputs in (
        ("encode_words", [(("a", "b"),), (("c",),), (("b", "c", "a"),)]),
        ("encode_words", [(("a", "b"), ("c",)), (("c",), ("a",)), (("b",), ("c", "a"))]),
        ("encode_texts", [("a b",), ("c",), ("b c a",)]),
        ("encode_texts", [("a b", "a"), ("c", "c"), ("b", "c a")]),
    ):
        expected = getattr(encoder, method)(inputs, 8).batch(rows)
        given = getattr(stored, method)(inputs, 8).batch(rows).to(CPU)
        assert given.lengths.tolist() == expected.lengths.tolist()
        for ours, theirs in zip(stored(given), encoder(expected), strict=True):
            assert torch.equal(ours, theirs)
    assert not list(stored.parameters())


def test_words_of_pieces_become_units(tmp_path: Path) -> None:
    both = Concatenation([TwoLayers(), TwoLayers()])
    stored = StoredStates(both, tmp_path, CPU)
    for inputs in (
        stored.encode_words([(("a", "b"),), (("c",),)], 8),
        stored.encode_texts([("a b",), ("c",)], 8),
    ):
        assert inputs.lengths.tolist() == inputs.word_counts.tolist() == [2, 1]
        assert stored(inputs.batch(np.array([0])))[2].tolist() == [[2, 0, 2, 0], [0, 2, 0, 2]]


def test_states_that_would_take_too_much_room_are_computed_when_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.encoders.stored.MOST_BYTES", 2 * 3 * 2 * 4)  # of two words
    encoder = TwoLayers()
    stored = StoredStates(encoder, tmp_path, CPU)
    for sentence, kept in ((("a", "b"), True), (("b", "c", "a"), False)):
        batch = stored.encode_words([(sentence,)], 8).batch(np.array([0]))
        computed = encoder.computed
        expected = encoder(encoder.encode_words([(sentence,)], 8).batch(np.array([0])))
        for ours, theirs in zip(stored(batch), expected, strict=True):
            assert torch.equal(ours, theirs)
        assert encoder.computed == computed + len(sentence) * (1 if kept else 2)
    assert len(list(tmp_path.iterdir())) == 1


def test_states_are_computed_once_and_finished_heads_survive(
    task: TaskConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FinetuneConfig(lr=1e-2, epochs=1, mode="frozen", head="bilstm", accelerator="cpu")
    splits = read_splits(task, 0)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    encoder = TwoLayers()
    scores = fill_table(encoder, splits, task, config, 2, whole)
    words = sum(len(e.texts) for part in (splits.train, splits.dev, splits.test) for e in part)
    assert encoder.computed == words
    assert set(scores) == {"embeddings", "last", "second_to_last", "sum_all", "mix"}
    assert all(list(by_seed) == ["1", "2"] for by_seed in scores.values())
    assert list(whole.iterdir()) == []

    done = 0

    def interrupted(*arguments):
        nonlocal done
        done += 1
        if done == 4:
            raise KeyboardInterrupt
        return finetune(*arguments)

    finetune = layer_table.finetune
    monkeypatch.setattr(layer_table, "finetune", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fill_table(TwoLayers(), splits, task, config, 2, killed)
    assert Layers().how_far(killed) == "3 heads trained"
    assert fill_table(TwoLayers(), splits, task, config, 2, killed) == scores
    assert done == 4 + 7
    assert not (killed / STATES).exists() and not (killed / RESULTS).exists()


def test_the_stage_writes_ours_beside_the_published(task: TaskConfig, tmp_path: Path) -> None:
    VectorTable(["a", "b"], np.eye(2, dtype=np.float32)).write(tmp_path)
    config = Config(
        encoder=str(tmp_path), task=task, layers=LayersConfig(seeds=1, epochs=1, patience=1)
    )
    out = tmp_path / "out"
    out.mkdir()
    Layers().run(Work(config, {"encoder": tmp_path}, out, "0" * 16))
    found = json.loads((out / "layers.json").read_text())
    assert set(found["choices"]) == {"embeddings", "last", "mix"}
    assert found["published"]["concat_last_4"] == 96.1
    assert Layers().closing(out).row_count == 3
    assert sorted(path.name for path in out.iterdir()) == [".tracking", "layers.json"]
    lines = (out / ".tracking" / "metrics.jsonl").read_text().splitlines()
    heads = [json.loads(line) for line in lines]
    assert [line.pop("step") for line in heads] == [1, 2, 3]
    assert heads == [{choice: scores[0]} for choice, scores in found["choices"].items()]


def test_only_the_head_that_is_used_shapes_the_table() -> None:
    config = Config(encoder="x", task=TASK)
    other = replace(config, finetune=FinetuneConfig(lr=1.0, layers="mix", mode="full", epochs=9))
    assert Layers().keys(config) == Layers().keys(other)
    with pytest.raises(UsageError, match="encoder=tfidf"):
        Layers().inputs(replace(config, encoder="tfidf"))
