"""Weights go to and from transformers' encoders one to one, and compute the same."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from data_prep.errors import SesameError, UsageError
from pipeline.models.bert.architectures import (
    ARCHITECTURES,
    BERT,
    MODERNBERT,
    ROFORMER,
    Architecture,
    fitting,
)
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.huggingface import (
    from_huggingface,
    load_for_pretraining,
    to_huggingface,
)
from pipeline.models.bert.network import Bert, BertForPretraining

VOCAB = 53
LENGTHS = np.array([9, 14, 5])


def read_encoder(folder: Path) -> Bert:
    model, _ = load_for_pretraining(folder)
    return model.bert


def config_for(architecture: Architecture, **changes: Any) -> BertConfig:
    """A small model; ModernBERT with local and global layers in turns, as published."""
    small = BertConfig(
        layers=2, hidden=24, heads=3, intermediate=40, max_positions=32, init_std=0.2
    )
    turns = {"layers": 5, "global_every": 3, "local_window": 4, "rotary_base": 160_000.0}
    own = turns if architecture is MODERNBERT else {}
    return replace(small, **architecture.options | own | changes)


CONFIG = config_for(BERT)


def their_model(architecture: Architecture, config: BertConfig) -> transformers.PreTrainedModel:
    stated = architecture.stated(config, VOCAB, 0)
    own = transformers.AutoConfig.for_model(**stated)
    model: transformers.PreTrainedModel = getattr(transformers, architecture.model)(own)
    return model.eval()


def shake(model: torch.nn.Module) -> None:
    """Biases and norms too must not be at their defaults."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.2)


@pytest.fixture(scope="module", params=ARCHITECTURES, ids=lambda each: each.title)
def architecture(request: pytest.FixtureRequest) -> Architecture:
    each: Architecture = request.param
    return each


@pytest.fixture(scope="module")
def theirs(architecture: Architecture) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    model = their_model(architecture, config_for(architecture))
    shake(model)
    return model


@pytest.fixture(scope="module")
def their_folder(theirs: transformers.PreTrainedModel, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("theirs")
    theirs.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def bert() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return their_model(BERT, CONFIG)


@pytest.fixture(scope="module")
def folder(bert: transformers.PreTrainedModel, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    bert.save_pretrained(path)
    return path


def both_logits(
    ours: BertForPretraining, theirs: transformers.PreTrainedModel
) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of logits for the same examples: flat for us, padded for them."""
    real_BL = torch.arange(int(LENGTHS.max())) < torch.from_numpy(LENGTHS)[:, None]
    tokens_BL = torch.randint(VOCAB, real_BL.shape, generator=torch.Generator().manual_seed(1))
    positions_BL = torch.arange(real_BL.shape[1]).expand_as(tokens_BL)
    segments_BL = (positions_BL > 3).long()
    with torch.no_grad():
        masked, pair = ours.eval().predict(
            tokens_BL[real_BL], positions_BL[real_BL], segments_BL[real_BL], LENGTHS
        )
        told = {"token_type_ids": segments_BL} if ours.bert.config.segments else {}
        answer = theirs(tokens_BL, attention_mask=real_BL.long(), **told)
    yield masked, answer[0][real_BL]
    if "seq_relationship_logits" in answer:
        yield pair, answer.seq_relationship_logits


def test_their_weights_compute_the_same_here(
    their_folder: Path, theirs, architecture: Architecture
) -> None:
    ours, fresh = load_for_pretraining(their_folder)
    assert fresh == ([] if architecture.has_pairs else ["pooler", "pair head"])
    assert ours.bert.config == config_for(architecture)
    for found, expected in both_logits(ours, theirs):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize(
    "changes", [{}, {"tied": False}, {"global_every": 1, "rotary_base": 10_000.0}], ids=str
)
def test_our_weights_compute_the_same_there(
    architecture: Architecture, changes: dict[str, Any]
) -> None:
    torch.manual_seed(1)
    config = config_for(architecture, **changes)
    ours = BertForPretraining(config, VOCAB)
    shake(ours)
    theirs = their_model(architecture, config)
    state = to_huggingface(ours.state_dict(), architecture, config)
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert unexpected == []
    assert missing == ([architecture.names("masked.decoder.weight")[0]] if config.tied else [])
    for found, expected in both_logits(ours, theirs):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-6)


def test_there_and_back_is_the_identity(architecture: Architecture) -> None:
    config = config_for(architecture, tied=False)
    ours = BertForPretraining(config, VOCAB).state_dict()
    theirs = to_huggingface(ours, architecture, config)
    back = from_huggingface(theirs, list(ours), architecture, config)
    lost = {name.rpartition(".")[0] for name in ours.keys() - back.keys()}
    assert lost == (set() if architecture.has_pairs else {"bert.pooler", "pair"})
    assert all(torch.equal(back[name], ours[name]) for name in back)


def test_hidden_states_of_every_layer_are_theirs(
    their_folder: Path, theirs, architecture: Architecture
) -> None:
    encoder = read_encoder(their_folder).eval()
    tokens = torch.arange(12) % VOCAB
    zeros = torch.zeros_like(tokens)
    with torch.no_grad():
        states = encoder(tokens, torch.arange(12), zeros, np.array([12]))
        expected = theirs.base_model(tokens[None], output_hidden_states=True)
    for ours, (hidden,) in zip(states, expected.hidden_states, strict=True):
        torch.testing.assert_close(ours, hidden, atol=1e-5, rtol=0)
    if architecture.has_pairs:
        torch.testing.assert_close(encoder.pool(states[-1][:1]), expected.pooler_output)


def test_missing_heads_start_fresh_and_are_listed(
    theirs, architecture: Architecture, tmp_path: Path
) -> None:
    theirs.base_model.save_pretrained(tmp_path)  # names without prefix, no heads
    ours, fresh = load_for_pretraining(tmp_path)
    assert fresh == [
        *([] if architecture.has_pairs else ["pooler"]),
        "masked-LM head",
        "pair head",
    ]
    words = theirs.get_input_embeddings().weight
    assert torch.equal(ours.bert.embeddings.tokens.weight, words)


def test_old_names_are_read(folder: Path, tmp_path: Path) -> None:
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file(old, tmp_path / "model.safetensors")
    ours, fresh = load_for_pretraining(tmp_path)
    expected, _ = load_for_pretraining(folder)
    assert fresh == []
    for name, tensor in expected.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor)


def test_pickled_weights_are_refused_with_the_command_that_converts_them(
    folder: Path, tmp_path: Path
) -> None:
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "trapped",))

    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    torch.save({"x": Trap()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(SesameError, match=r"pytorch_model\.bin: refused because .* run code"):
        read_encoder(tmp_path)
    torch.save({"x": Trap()}, tmp_path / "model.safetensors")
    with pytest.raises(SesameError, match=r"model\.safetensors: refused because .* run code"):
        read_encoder(tmp_path)
    assert not (tmp_path / "trapped").exists()

    (tmp_path / "model.safetensors").unlink()
    weights = load_file(folder / "model.safetensors")
    torch.save(
        weights | {"tied": weights["bert.pooler.dense.bias"]}, tmp_path / "pytorch_model.bin"
    )
    with pytest.raises(SesameError) as refused:
        read_encoder(tmp_path)
    command = str(refused.value).partition("folder: ")[2]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = read_encoder(folder).state_dict()
    assert all(
        torch.equal(expected[name], tensor)
        for name, tensor in read_encoder(tmp_path).state_dict().items()
    )


def broken_copy(folder: Path, out: Path, config: dict, without: str = "") -> Path:
    stated = json.loads((folder / "config.json").read_text()) | config
    (out / "config.json").write_text(json.dumps(stated))
    weights = load_file(folder / "model.safetensors")
    save_file({n: t for n, t in weights.items() if n != without}, out / "model.safetensors")
    return out


@pytest.mark.parametrize(
    ("config", "without", "message"),
    [
        (
            {"model_type": "roberta"},
            "",
            "model_type is roberta; only bert, roformer, modernbert can",
        ),
        ({"hidden_act": "relu"}, "", "hidden_act is relu"),
        ({"vocab_size": 99}, "", r"word_embeddings.*\[53, 24\].*\[99, 24\]"),
        ({}, "bert.encoder.layer.1.output.dense.bias", "layer.1.output.dense.bias"),
    ],
)
def test_folders_that_do_not_fit_are_refused(
    folder: Path, tmp_path: Path, config: dict, without: str, message: str
) -> None:
    with pytest.raises((SesameError, UsageError), match=message):
        read_encoder(broken_copy(folder, tmp_path, config, without))


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"local_rope_theta": 160_000.0}, "local_rope_theta is 160000"),
        (
            {"layer_types": ["full_attention"] * 2 + ["sliding_attention"]},
            "layer_types is irr",
        ),
        ({"layer_types": ["sliding_attention"] * 2}, "layer_types is irr"),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "yarn"}}},
            "rope_type is yarn",
        ),
        ({"local_attention": 7}, r"model\.local_window=7: must be even"),
    ],
    ids=str,
)
def test_a_modernbert_that_attends_otherwise_is_refused(
    stated: dict, says: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "modernbert"} | stated))
    with pytest.raises(UsageError, match=says):
        read_encoder(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_hidden_layers": 10**8}, "model.layers=100000000: must be at most 1000"),
        ({"num_hidden_layers": 900}, "tensors, but the folder's config.json asks for 900 layers"),
        ({"num_hidden_layers": -1}, "model.layers=-1: must be at least 1"),
        ({"num_hidden_layers": True}, "model.layers: must be of type int, not True"),
        ({"hidden_size": "24"}, "model.hidden: must be of type int, not str"),
        ({"hidden_size": 65_520}, r"\[53, 24\], but .* \[53, 65520\]"),
        ({"hidden_size": 2**63}, "model.hidden=9223372036854775808: must be at most 65536"),
        ({"num_attention_heads": 7}, "must divide"),
        ({"num_attention_heads": 0}, "at least 1"),
        ({"vocab_size": [1]}, "vocab_size must be a whole number from 1 to"),
        ({"vocab_size": True}, "vocab_size must be a whole number from 1 to"),
        ({"vocab_size": 2**64}, "vocab_size must be a whole number from 1 to"),
        ({"vocab_size": 2**30}, r"\[53, 24\], but .* \[1073741824, 24\]"),
        ({"layer_norm_eps": "x"}, "model.norm_eps: must be of type float, not str"),
        ({"model_type": {}}, "model_type is {}"),
        ({"rope_parameters": 3}, "not the settings of a BERT"),
    ],
    ids=str,
)
def test_absurd_settings_are_refused_before_memory_is_taken(
    folder: Path, tmp_path: Path, config: dict, message: str
) -> None:
    with pytest.raises(SesameError, match=message) as caught:
        read_encoder(broken_copy(folder, tmp_path, config))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: tensor * float("nan"), "query.weight holds a number that is not finite"),
        (lambda tensor: tensor.to(torch.int8), "query.weight holds torch.int8"),
        (lambda tensor: tensor.to(torch.complex64), "damaged|holds torch.complex64"),
        (lambda tensor: tensor[:5, :5].clone(), "do not fit together"),
    ],
    ids=["nan", "int8", "complex", "shape"],
)
def test_weights_that_are_none_are_refused(
    folder: Path, tmp_path: Path, change: Callable[[Tensor], Tensor], message: str
) -> None:
    name = "bert.encoder.layer.0.attention.self.query.weight"
    weights = load_file(folder / "model.safetensors")
    weights[name] = change(weights[name])
    save_file(weights, broken_copy(folder, tmp_path, {}) / "model.safetensors")
    with pytest.raises(SesameError, match=message):
        load_for_pretraining(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_precisions_are_converted(
    folder: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    weights = {name: t.to(dtype) for name, t in load_file(folder / "model.safetensors").items()}
    save_file(weights, broken_copy(folder, tmp_path, {}) / "model.safetensors")
    bert = read_encoder(tmp_path)
    assert {tensor.dtype for tensor in bert.state_dict().values()} == {torch.float32}


def test_missing_and_damaged_files_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json"):
        read_encoder(tmp_path)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(UsageError, match=r"has no model\.safetensors"):
        read_encoder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(SesameError, match=r"model\.safetensors"):
        read_encoder(tmp_path)


@pytest.mark.parametrize(
    ("options", "pairs", "architecture"),
    [
        ({}, "nsp", BERT),
        ({}, "none", BERT),
        ({"positions": "rotary"}, "none", ROFORMER),
        (MODERNBERT.options, "none", MODERNBERT),
    ],
    ids=str,
)
def test_a_model_fits_what_computes_the_same(
    options: dict, pairs: str, architecture: Architecture
) -> None:
    assert fitting(replace(CONFIG, **options), pairs) is architecture


@pytest.mark.parametrize(
    ("options", "pairs", "message"),
    [
        ({"norm": "pre"}, "nsp", r"^model\.norm=pre: .*with model\.norm=post \(BERT\)"),
        ({"biases": False}, "nsp", r"^model\.biases=false: .*with model\.biases=true \(BERT\)"),
        (
            {"positions": "sinusoidal"},
            "none",
            r"model\.positions=learned \(BERT\) or model\.positions=rotary \(RoFormer\)",
        ),
        (
            {"positions": "rotary"},
            "sop",
            r"^model\.positions=rotary, examples\.pairs=sop: .* examples\.pairs=none \(RoFormer\)",
        ),
    ],
    ids=str,
)
def test_a_model_without_a_counterpart_is_refused_with_what_would_fit(
    options: dict, pairs: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        fitting(replace(CONFIG, **options), pairs)
