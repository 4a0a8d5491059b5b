"""sentence-transformers loads an export and gives our vectors; so does transformers, with the
pooling that the folder states."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from data_prep.errors import UsageError
from pipeline.config.compose import compose_config
from pipeline.encoders import load_encoder
from pipeline.stages.export import Export
from tests.pipeline.export.test_huggingface import MODEL, make_store, run_export


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_the_pooling_that_is_stated_is_ours(pooling: str, tmp_path: Path) -> None:
    store, out = make_store(tmp_path / "store", MODEL, "nsp"), tmp_path / "out"
    run_export(store, out, sentence_vectors=pooling)
    modules = json.loads((out / "modules.json").read_text())
    assert [module["path"] for module in modules] == ["", "1_Pooling"]
    settings = json.loads((out / "1_Pooling" / "config.json").read_text())
    assert settings.pop("word_embedding_dimension") == MODEL.hidden
    [chosen] = [key for key, is_set in settings.items() if is_set]
    limits = json.loads((out / "sentence_bert_config.json").read_text())
    assert limits == {"max_seq_length": MODEL.max_positions, "do_lower_case": False}
    texts = ["abc, de.", "x", "a b c " * 20]  # the last one is truncated
    words = AutoTokenizer.from_pretrained(out)
    inputs = words(texts, padding=True, truncation=True, return_tensors="pt")
    states = AutoModel.from_pretrained(out).eval()(**inputs).last_hidden_state
    real = inputs.attention_mask.bool()
    theirs = {
        "pooling_mode_mean_tokens": lambda x: x.mean(0),
        "pooling_mode_cls_token": lambda x: x[0],
        "pooling_mode_max_tokens": lambda x: x.max(0).values,
    }[chosen]
    ours = load_encoder(out).embed(texts, unit="sentence", pooling=pooling)
    for own, row, keep in zip(ours, states, real, strict=True):
        np.testing.assert_allclose(own, theirs(row[keep]), atol=1e-5)
    library = SentenceTransformer(str(out), device="cpu", local_files_only=True)
    assert library.max_seq_length == MODEL.max_positions
    np.testing.assert_allclose(np.stack(ours), library.encode(texts), atol=1e-5)
    card = (out / "README.md").read_text()
    assert "sentence-transformers" in ModelCard(card).data.tags
    assert "SentenceTransformer(" in card


def test_elmo_has_no_files_of_sentence_transformers() -> None:
    config = compose_config(["experiment=elmo_tiny", "export.sentence_vectors=mean"])
    with pytest.raises(UsageError, match=r"export\.sentence_vectors=mean: .* has no ELMo"):
        Export().inputs(config)
