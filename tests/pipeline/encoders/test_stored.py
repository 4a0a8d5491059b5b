"""Stored hidden states: half precision, only those needed, and the models trained on them."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.config.schema import Config
from pipeline.encoders import Concatenation, Encoder
from pipeline.encoders.stored import StateStore, StoredInputs, StoredStates
from pipeline.models.bert.config import BertConfig
from pipeline.stages.finetune import Finetune
from pipeline.stages.tuning import KEPT
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.finetuned import load_finetuned
from pipeline.workflow.stage import Work
from tests.pipeline.encoders.two_layers import TwoLayers
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

CPU = torch.device("cpu")
WORDS = ["good", "fine", "great", "bad", "dull", "poor", "film"]


def store(encoder: Encoder, folder: Path, needed: Sequence[int] = (0, 1, 2)) -> StoredStates:
    return StoredStates(StateStore(encoder, folder, CPU, needed), needed)


def test_stored_states_are_those_of_the_encoder(tmp_path: Path) -> None:
    encoder = TwoLayers()
    stored = store(encoder, tmp_path)
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
    stored = store(both, tmp_path)
    for inputs in (
        stored.encode_words([(("a", "b"),), (("c",),)], 8),
        stored.encode_texts([("a b",), ("c",)], 8),
    ):
        assert inputs.lengths.tolist() == inputs.word_counts.tolist() == [2, 1]
        assert stored(inputs.batch(np.array([0])))[2].tolist() == [[2, 0, 2, 0], [0, 2, 0, 2]]


def test_states_that_would_take_too_much_room_are_computed_when_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipeline.encoders.stored.MOST_BYTES", 2 * 3 * 2 * 2)  # of two words
    encoder = TwoLayers()
    stored = store(encoder, tmp_path)
    for sentence, kept in ((("a", "b"), True), (("b", "c", "a"), False)):
        batch = stored.encode_words([(sentence,)], 8).batch(np.array([0]))
        computed = encoder.computed
        expected = encoder(encoder.encode_words([(sentence,)], 8).batch(np.array([0])))
        for ours, theirs in zip(stored(batch), expected, strict=True):
            assert torch.equal(ours, theirs)
        assert encoder.computed == computed + len(sentence) * (1 if kept else 2)
    assert len(list(tmp_path.iterdir())) == 3  # a file per state
    assert "not stored, but computed anew in every epoch" in " ".join(
        capsys.readouterr().err.split()
    )


def test_states_leave_half_of_the_free_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 2 * 3 * 2 * 2  # of two words
    for free, kept in ((2 * size, True), (2 * size - 2, False)):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr("shutil.disk_usage", lambda folder, usage=usage: usage)
        encoded = store(TwoLayers(), tmp_path).encode_words([(("a", "b"),)], 8)
        assert isinstance(encoded, StoredInputs) == kept


def test_states_are_stored_in_half_precision_and_only_those_needed(tmp_path: Path) -> None:
    encoder = TwoLayers()
    encoder.factor = 1.0001  # between two float16 numbers
    stored = store(encoder, tmp_path, (0, 2))
    batch = stored.encode_words([(("a", "b", "a"),)], 8).batch(np.array([0]))
    given, exact = stored(batch), encoder(encoder.encode_words([(("a", "b", "a"),)], 8).batch(
        np.array([0])))  # fmt: skip
    assert given[1].numel() == 0  # not needed, so not there
    for number in (0, 2):
        assert given[number].dtype == torch.float32
        assert not torch.equal(given[number], exact[number])
        torch.testing.assert_close(given[number], exact[number], rtol=2**-11, atol=0)
    arrays = [np.load(path) for path in sorted(tmp_path.iterdir())]
    assert [(array.dtype, array.shape) for array in arrays] == [(np.float16, (3, 2))] * 2
    only = stored.reading([2]).encode_words([(("a", "b", "a"),)], 8)
    assert isinstance(only, StoredInputs) and list(only.states) == [2]


def test_states_beyond_the_range_of_half_precision_are_computed_when_they_are_read(
    tmp_path: Path,
) -> None:
    encoder = TwoLayers()
    encoder.factor = 50_000.0  # twice as much is too much
    stored = store(encoder, tmp_path)
    batch = stored.encode_words([(("a", "b"),)], 8).batch(np.array([0]))
    assert stored(batch)[2].max() == 100_000.0
    assert list(tmp_path.iterdir()) == []
    assert isinstance(store(encoder, tmp_path, (0,)).encode_words([(("a",),)], 8), StoredInputs)


@pytest.mark.parametrize("text_b", [None, "other"])
def test_a_model_on_stored_states_is_kept_with_exact_ones(
    text_b: str | None, tmp_path: Path
) -> None:
    """Training reads states in half precision; the kept model is proved without it."""
    rows = [f"{WORDS[n % 6]} film {n}\t{n % 3}\t{WORDS[n % 5]}" for n in range(200)]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel\tother", *rows, ""]))
    config = Config(
        encoder="random",
        keep=True,
        model=BertConfig(layers=2, hidden=32, heads=2, intermediate=64, max_positions=128),
        task=TaskConfig(name="toy", data_dir=str(tmp_path), train="train.tsv", text_b=text_b),
        finetune=FinetuneConfig(
            epochs=1, mode="frozen", layers="mix", pair_encoding="separate", accelerator="cpu"
        ),
    )
    (tmp_path / "tokenizer").mkdir()
    tokenizer = write_toy_tokenizer(tmp_path / "tokenizer", WORDS)
    out = tmp_path / "out"
    out.mkdir()
    Finetune().run(Work(config, {"tokenizer": tokenizer}, out, "0" * 16))
    assert load_finetuned(out / KEPT).config.layers == "mix"
