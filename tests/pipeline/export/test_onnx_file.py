"""An ONNX file answers as its class in transformers does, for every batch size and length.

Each export takes seconds: torch traces the whole model.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.commands.main import run
from pipeline.encoders import random_encoder
from pipeline.export import onnx_file
from pipeline.export.onnx_file import write_onnx
from pipeline.tasks.finetuned import load_finetuned, save_model
from tests.pipeline.encoders.foreign_models import write_model
from tests.pipeline.tasks.test_finetuned import BERT, ONCE, WORDS, splits, trained
from tests.pipeline.toy_tokenizer import write_toy_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_tokenizer(tmp_path_factory.mktemp("tokenizer"), WORDS)


def test_choices_are_scored_as_here_however_many_there_are(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    folder.mkdir()
    encoder = random_encoder(replace(BERT, layers=1), tokenizer, seed=0)
    save_model(trained(encoder, "choice"), folder)
    assert run(["onnx", f"model={folder}", "out=here/choices.onnx"]) == 0
    session = onnxruntime.InferenceSession("here/choices.onnx", providers=["CPUExecutionProvider"])
    finetuned, probes = load_finetuned(folder), splits("choice").test
    assert {len(probe.texts) for probe in probes} == {3, 4, 5}, "with the context"
    for probe in probes:
        inputs = finetuned.encode([probe]).inputs
        batch = inputs.batch(np.arange(len(inputs.lengths)))
        rows = np.repeat(np.arange(len(batch.lengths)), batch.lengths)
        places = batch.positions_N.numpy()
        told = {
            name: np.zeros((1, len(batch.lengths), batch.lengths.max()), np.int64)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        }
        told["input_ids"][0, rows, places] = batch.tokens_N
        told["attention_mask"][0, rows, places] = 1
        told["token_type_ids"][0, rows, places] = batch.segments_N
        scores = session.run(["logits"], told)[0][0]
        np.testing.assert_allclose(scores, finetuned.logits([probe])[:, 0], atol=1e-4)


def test_an_encoder_of_others_gives_its_last_states(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_model(folder, "distilbert")
    assert write_onnx(folder, tmp_path / "model.onnx") <= 1e-4
    assert (tmp_path / "model.onnx").stat().st_size > 10_000


def test_what_cannot_be_exported_is_refused(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = tmp_path / "model", tmp_path / "model.onnx"
    folder.mkdir()
    config = replace(ONCE, pooling="mean")
    save_model(trained(random_encoder(BERT, tokenizer, seed=0), "classify", config), folder)
    with pytest.raises(UsageError, match="has no class in transformers"):
        write_onnx(folder, out)
    with pytest.raises(UsageError, match="has no class in transformers"):
        write_onnx(tokenizer, out)
    assert run(["onnx", f"model={folder}", "out=model.bin"]) == 2
    assert run(["onnx", f"model={folder}", "encoder=x"]) == 2
    write_model(folder, "distilbert")
    (folder / "finetuned.json").unlink()
    monkeypatch.setattr(onnx_file, "_traced", lambda network, longest: b"")
    monkeypatch.setattr(onnx_file, "_compare", lambda network, content: float("nan"))
    with pytest.raises(SesameError, match="the export is not valid"):
        write_onnx(folder, out)
    assert not out.exists()
    monkeypatch.setattr(onnx_file, "find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"onnx: onnx is not installed; pip install 'sesame-encoders\[onnx\]"
    ):
        write_onnx(folder, out)
