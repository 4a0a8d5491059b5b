"""Encoders of transformers give here what they give there, and serve everywhere an encoder does."""

import inspect
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from data_prep.errors import SesameError, UsageError
from data_prep.text.words import TextWords
from pipeline.encoders import Concatenation, Encoder, load_encoder
from pipeline.encoders.class_heads import DenseTransform
from pipeline.encoders.embed import embed
from pipeline.encoders.transformers_encoder import TransformersEncoder
from pipeline.models.classes import SCORE_CHOICES
from pipeline.tasks.expected_form import expected_form
from pipeline.tasks.finetuned import load_finetuned, prove_model, save_model
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.history import NullFollower
from pipeline.tasks.layer_table import fill_table
from pipeline.tasks.plain_loop import PlainLoop
from tests.pipeline.encoders.foreign_models import MODELS, TEXTS, write_model
from tests.pipeline.tasks.test_finetuned import (
    ONCE,
    TASKS,
    assert_same_answers,
    splits,
    trained,
)

SENTENCES = [*TEXTS[:3], "café", "film"]
PAIRS = [(TEXTS[0], TEXTS[1]), ("good film", TEXTS[2])]
CLASSES = {
    "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "distilbert": "DistilBert",
    "electra": "Electra", "deberta-v2": "DebertaV2", "bert+relu": "Bert",
    "roformer+relu": "RoFormer", "modernbert+biased": "ModernBert",
}  # fmt: skip
SHAPES = ("classify", "tag", "span", "choice")  # kinds whose heads differ in form


class Lines(NullFollower):
    """Keeps the lines of the journal."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, line: dict[str, Any]) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write_model(tmp_path_factory.mktemp(name), name) for name in MODELS}


@torch.inference_mode()
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("is_pair", [False, True])
def test_hidden_states_are_those_of_transformers_on_padded_batches(
    name: str, is_pair: bool, folders: dict[str, Path]
) -> None:
    encoder = load_encoder(folders[name]).eval()
    given = PAIRS if is_pair else [(text,) for text in SENTENCES]
    encoded = encoder.encode_texts(given, 96)
    states = encoder(encoded.batch(np.arange(len(given))))
    words = AutoTokenizer.from_pretrained(folders[name])
    words.pad_token = words.pad_token or words.eos_token
    inputs = words(*map(list, zip(*given, strict=True)), padding=True, return_tensors="pt")
    real = inputs.attention_mask.bool()
    assert encoded.tokens.tolist() == inputs.input_ids[real].tolist()
    network = AutoModel.from_pretrained(folders[name]).eval()
    taken = inspect.signature(network.forward).parameters
    told = {key: value for key, value in inputs.items() if key in taken}
    assert ("token_type_ids" in told) == (name in ("electra", "bert+relu", "roformer+relu"))
    theirs = network(**told, output_hidden_states=True).hidden_states
    assert encoder.states == len(theirs) == len(states) == 4
    for ours_ND, expected_BLD in zip(states, theirs, strict=True):
        torch.testing.assert_close(ours_ND, expected_BLD[real], atol=1e-5, rtol=1e-5)
    batch = encoded.batch(np.arange(len(given)))
    first = encoder.last_states(batch, batch.firsts_E)
    torch.testing.assert_close(first, theirs[-1][:, 0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", list(MODELS))
def test_words_are_found_in_the_tokens_of_the_whole_text(
    name: str, folders: dict[str, Path]
) -> None:
    encoder = load_encoder(folders[name])
    assert isinstance(encoder, TransformersEncoder)
    library = encoder.tokenizer.library
    for text in TEXTS[:3]:
        words = TextWords.of(text)
        encoded = encoder.encode_words([(words,)], 96)
        whole = library.encode(text, add_special_tokens=False)
        start = len(encoder.template.before)
        assert encoded.tokens[start : start + len(whole.ids)].tolist() == whole.ids
        assert encoded.word_counts.tolist() == [len(words)]
        for first, (begin, end) in zip(
            encoded.word_starts - start, words.own_characters, strict=True
        ):
            a, b = whole.offsets[first]
            assert a < end and begin <= b, "a space mark belongs to the word after it"
            assert not any(x < end and begin < y for x, y in whole.offsets[:first]), "the first one"


@pytest.mark.parametrize("name", list(MODELS))
def test_training_lowers_the_loss_and_reaches_every_layer(
    name: str, folders: dict[str, Path]
) -> None:
    encoder = load_encoder(folders[name])
    before = [block[0].clone() for block in encoder.blocks()]
    follower = Lines()
    config = replace(ONCE, lr=5e-3, epochs=3, batch_size=32, dropout=0.0)
    loop = PlainLoop(TASKS["classify"], config, follower)
    finetune(encoder, splits("classify"), TASKS["classify"], config, loop)
    assert follower.lines[-1]["step"] == 3
    assert follower.lines[-1]["loss"] < follower.lines[0]["loss"]
    for old, block in zip(before, encoder.blocks(), strict=True):
        assert not torch.equal(old, block[0])


@pytest.mark.parametrize("name", list(MODELS))
def test_blocks_hold_every_parameter_once(name: str, folders: dict[str, Path]) -> None:
    encoder = load_encoder(folders[name])
    blocks = encoder.blocks()
    assert len(blocks) == (2 if name == "albert" else 4)  # ALBERT's layers share parameters
    held = sorted(id(value) for block in blocks for value in block)
    assert held == sorted(id(value) for value in encoder.parameters())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in (*CLASSES, "albert")
        for kind in (TASKS if name in ("roberta", "bert+relu") else SHAPES)
    ],
)
def test_a_kept_model_answers_again(
    name: str, kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    finetuned = trained(load_encoder(folders[name]), kind)
    form = save_model(finetuned, tmp_path)
    model_type = name.partition("+")[0]
    has_class = name in CLASSES and (kind != "choice" or model_type in SCORE_CHOICES)
    assert form.startswith(f"{CLASSES[name]}For") if has_class else form == "sesame"
    assert expected_form(model_type, finetuned.task, finetuned.config)[0] == form
    prove_model(finetuned, tmp_path, splits(kind).test)  # transformers' class too
    assert_same_answers(load_finetuned(tmp_path), finetuned, splits(kind).test)
    assert isinstance(load_encoder(tmp_path), TransformersEncoder), "a model is an encoder too"
    written = list(tmp_path.rglob("*.json"))
    assert written
    for path in written:
        assert str(folders[name]) not in path.read_text(), "no place of ours in the folder"


def test_a_modernbert_head_begins_with_the_layers_of_the_masked_head(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    from transformers import ModernBertForMaskedLM

    for path in folders["modernbert+biased"].iterdir():
        shutil.copy(path, tmp_path)
    masked = ModernBertForMaskedLM.from_pretrained(tmp_path)
    masked.save_pretrained(tmp_path)
    layers = load_encoder(tmp_path).head_layers("tag")
    assert isinstance(layers, DenseTransform)
    assert torch.equal(layers.dense.weight, masked.head.dense.weight)
    assert torch.equal(layers.norm.weight, masked.head.norm.weight)


def test_tensors_that_transformers_does_not_read_are_refused(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """Relative positions, for example, which its newer versions dropped."""
    from safetensors.torch import load_file, save_file

    for path in folders["bert+relu"].iterdir():
        shutil.copy(path, tmp_path)
    name = "encoder.layer.0.attention.self.distance_embedding.weight"
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors | {name: torch.ones(3, 8)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=f"does not read {name}"):
        load_encoder(tmp_path)


def test_it_joins_other_encoders_and_fills_the_table_of_layers(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    encoder = load_encoder(folders["roberta"])
    joined: Encoder = Concatenation([encoder, load_encoder(folders["distilbert"])])
    [vectors] = embed(joined, ["The fox."], "top")
    assert vectors.shape == (3, 32)
    scores = fill_table(
        encoder, splits("tag"), TASKS["tag"], replace(ONCE, mode="frozen"), 1, tmp_path
    )
    assert {"embeddings", "last", "mix"} <= scores.keys()


def test_inputs_are_limited_to_the_positions_there_are(folders: dict[str, Path]) -> None:
    encoder = load_encoder(folders["roberta"])  # 98 rows, the first two of which are never used
    assert encoder.longest == 96
    with torch.no_grad():
        assert len(encoder(encoder.encode_texts([("film " * 99,)], 96).batch(np.arange(1)))) == 4
    with pytest.raises(SesameError, match="the encoder has only 96 positions"):
        encoder.encode_texts([("film",)], 97)


@pytest.mark.parametrize("fault", ["pickle", "missing", "nan", "shape", "code", "decoder", "none"])
def test_what_cannot_be_used_is_refused(
    fault: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    folder = write_model(tmp_path, "roberta")
    weights = folder / "model.safetensors"
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(weights)
    name = "encoder.layer.1.output.dense.weight"
    match fault:
        case "pickle":
            torch.save(tensors, folder / "pytorch_model.bin")
            weights.unlink()
        case "none":
            weights.unlink()
        case "missing":
            del tensors[name]
        case "nan":
            tensors[name][0, 0] = float("nan")
        case "shape":
            config["intermediate_size"] = 33
        case "code":
            config |= {"model_type": "mine", "auto_map": {"AutoModel": "code.Model"}}
            (folder / "code.py").write_text("raise SystemExit('code of the folder was run')")
        case "decoder":
            config = {"model_type": "t5", "vocab_size": 10}
    if weights.exists():
        save_file(tensors, weights)
    (folder / "config.json").write_text(json.dumps(config))
    wanted = {
        "pickle": "reading a pickle could run code", "none": "has no model.safetensors",
        "missing": f"has no {name}", "nan": f"{name} holds a number that is not finite",
        "shape": "do not fit the folder's config.json", "code": "no model of transformers",
        "decoder": "has a decoder",
    }  # fmt: skip
    with pytest.raises((SesameError, UsageError), match=wanted[fault]):
        load_encoder(folder)


@pytest.mark.parametrize("name", list(MODELS))
def test_the_first_unit_stands_for_no_text_that_it_cannot_see(
    name: str, folders: dict[str, Path]
) -> None:
    """In GPT-2 a unit sees only those before it: all texts with one first word were alike."""
    encoder = load_encoder(folders[name])
    assert encoder.is_causal == (name == "gpt2")
    texts = ["film good", "film bad and dull"]
    config = replace(ONCE, pooling="first")
    if name == "gpt2":
        with pytest.raises(UsageError, match=r"^pooling=first: .*would be alike; choose mean"):
            encoder.embed(texts, unit="sentence", pooling="first")
        with pytest.raises(UsageError, match=r"finetune\.pooling=first: .*alike; choose mean"):
            finetune(encoder, splits("classify"), TASKS["classify"], config)
    else:
        first, second = encoder.embed(texts, unit="sentence", pooling="first")
        assert not np.allclose(first, second)
        finetune(encoder, splits("classify"), TASKS["classify"], config)
