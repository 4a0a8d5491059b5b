"""Weights go to and from Hugging Face's BERT one to one, and compute the same."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from data_prep.errors import SesameError, UsageError
from pipeline.models.bert import BertForPretraining
from pipeline.models.config import BertConfig
from pipeline.models.huggingface import (
    from_huggingface,
    huggingface_config,
    load_folder,
    load_for_pretraining,
    to_huggingface,
)

VOCAB = 53
CONFIG = BertConfig(layers=2, hidden=24, heads=3, intermediate=40, max_positions=32, init_std=0.2)
LENGTHS = np.array([9, 14, 5])


@pytest.fixture(scope="module")
def theirs() -> transformers.BertForPreTraining:
    torch.manual_seed(0)
    model = transformers.BertForPreTraining(
        transformers.BertConfig(**huggingface_config(CONFIG, VOCAB, 0))
    )
    for parameter in model.parameters():  # biases and norms too must not be at their defaults
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.fixture(scope="module")
def folder(theirs: transformers.BertForPreTraining, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    theirs.save_pretrained(path)
    return path


def both_logits(ours: BertForPretraining, theirs: transformers.BertForPreTraining) -> list:
    """Pairs of logits for the same examples: flat for us, padded for them."""
    real_BL = torch.arange(int(LENGTHS.max())) < torch.from_numpy(LENGTHS)[:, None]
    tokens_BL = torch.randint(VOCAB, real_BL.shape, generator=torch.Generator().manual_seed(1))
    positions_BL = torch.arange(real_BL.shape[1]).expand_as(tokens_BL)
    segments_BL = (positions_BL > 3).long()
    with torch.no_grad():
        masked, pair = ours.eval().predict(
            tokens_BL[real_BL], positions_BL[real_BL], segments_BL[real_BL], LENGTHS
        )
        answer = theirs(tokens_BL, attention_mask=real_BL.long(), token_type_ids=segments_BL)
    return [
        (masked, answer.prediction_logits[real_BL]),
        (pair, answer.seq_relationship_logits),
    ]


def test_their_weights_compute_the_same_here(folder: Path, theirs) -> None:
    ours, fresh = load_for_pretraining(folder)
    assert fresh == []
    assert ours.bert.config == replace(CONFIG, dropout=0.1, attention_dropout=0.1)
    for found, expected in both_logits(ours, theirs):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_our_weights_compute_the_same_there(tied: bool) -> None:
    torch.manual_seed(1)
    config = replace(CONFIG, tied=tied)
    ours = BertForPretraining(config, VOCAB)
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    stated = transformers.BertConfig(**huggingface_config(config, VOCAB, 0))
    theirs = transformers.BertForPreTraining(stated).eval()
    state = to_huggingface(ours.state_dict())
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert unexpected == []
    assert missing == (["cls.predictions.decoder.weight"] if tied else [])
    for found, expected in both_logits(ours, theirs):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-6)


def test_there_and_back_is_the_identity() -> None:
    ours = BertForPretraining(replace(CONFIG, tied=False), VOCAB).state_dict()
    back = from_huggingface(to_huggingface(ours), list(ours))
    assert back.keys() == ours.keys()
    assert all(torch.equal(back[name], ours[name]) for name in ours)


def test_hidden_states_of_every_layer_are_theirs(folder: Path, theirs) -> None:
    encoder = load_folder(folder).eval()
    tokens = torch.arange(12) % VOCAB
    zeros = torch.zeros_like(tokens)
    with torch.no_grad():
        states = encoder(tokens, torch.arange(12), zeros, np.array([12]))
        expected = theirs.bert(tokens[None], output_hidden_states=True)
    for ours, (hidden,) in zip(states, expected.hidden_states, strict=True):
        torch.testing.assert_close(ours, hidden, atol=1e-5, rtol=0)
    torch.testing.assert_close(encoder.pool(states[-1][:1]), expected.pooler_output)


def test_missing_heads_start_fresh_and_are_listed(theirs, tmp_path: Path) -> None:
    theirs.bert.save_pretrained(tmp_path)  # names without prefix, no heads
    ours, fresh = load_for_pretraining(tmp_path)
    assert fresh == ["masked-LM head", "pair head"]
    words = theirs.bert.embeddings.word_embeddings.weight
    assert torch.equal(ours.bert.embeddings.tokens.weight, words)


def test_old_names_and_pickled_weights_are_read_safely(folder: Path, tmp_path: Path) -> None:
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    torch.save(old, tmp_path / "pytorch_model.bin")
    ours, fresh = load_for_pretraining(tmp_path)
    expected, _ = load_for_pretraining(folder)
    assert fresh == []
    for name, tensor in expected.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor)


def test_code_in_pickled_weights_is_never_run(folder: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "trapped",))

    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    torch.save({"x": Trap()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(SesameError, match=r"pytorch_model\.bin"):
        load_folder(tmp_path)
    assert not (tmp_path / "trapped").exists()


def broken_copy(folder: Path, out: Path, config: dict, without: str = "") -> Path:
    stated = json.loads((folder / "config.json").read_text()) | config
    (out / "config.json").write_text(json.dumps(stated))
    weights = load_file(folder / "model.safetensors")
    save_file({n: t for n, t in weights.items() if n != without}, out / "model.safetensors")
    return out


@pytest.mark.parametrize(
    ("config", "without", "message"),
    [
        ({"model_type": "roberta"}, "", "model_type is roberta"),
        ({"hidden_act": "relu"}, "", "hidden_act is relu"),
        ({"vocab_size": 99}, "", r"word_embeddings.*\[53, 24\].*\[99, 24\]"),
        ({}, "bert.encoder.layer.1.output.dense.bias", "layer.1.output.dense.bias"),
    ],
)
def test_folders_that_do_not_fit_are_refused(
    folder: Path, tmp_path: Path, config: dict, without: str, message: str
) -> None:
    with pytest.raises((SesameError, UsageError), match=message):
        load_folder(broken_copy(folder, tmp_path, config, without))


def test_missing_and_damaged_files_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json"):
        load_folder(tmp_path)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(UsageError, match=r"neither model\.safetensors"):
        load_folder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(SesameError, match=r"model\.safetensors"):
        load_folder(tmp_path)


@pytest.mark.parametrize(
    "option",
    [{"norm": "pre"}, {"positions": "rotary"}, {"activation": "geglu"}, {"biases": False}],
    ids=str,
)
def test_options_without_a_counterpart_are_refused_by_name(option: dict) -> None:
    with pytest.raises(UsageError, match=rf"model\.{next(iter(option))}="):
        huggingface_config(replace(CONFIG, **option), VOCAB, 0)
