"""An exported folder is what transformers makes of it: same ids, same logits, offline."""

import json
import socket
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

import pipeline.export
from data_prep.errors import SesameError, UsageError
from data_prep.files import sha256
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline.config import Config, ExportConfig
from pipeline.data.cursor import Cursor, Identity
from pipeline.modelcard import gather_facts
from pipeline.models.bert import BertForPretraining
from pipeline.models.config import BertConfig
from pipeline.stages import export
from pipeline.stages.work import Work
from pipeline.store import MANIFEST
from pipeline.training.checkpoint import CHECKPOINTS, TrainingState

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
VOCABULARY = [*Specials().names(), *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", ","]
MODEL = BertConfig(layers=2, hidden=16, heads=2, intermediate=32, max_positions=24, init_std=0.2)
STEPS = {10: 3.5, 20: 2.5, 30: 2.75}  # step -> held-out loss


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a tokenizer and a pretraining that kept three checkpoints."""
    root = tmp_path_factory.mktemp("store")
    tokenizer, pretrain = root / "tokenizer" / "t0", root / "pretrain" / "p0"
    tokenizer.mkdir(parents=True)
    write_folder(tokenizer, from_vocabulary(VOCABULARY, True, True, Specials()), Specials(), None)
    (tokenizer / "statistics.json").write_text('{"secret": "canary"}')
    for step in STEPS:
        _write_checkpoint(pretrain / CHECKPOINTS / f"{step:08d}", step)
    lines = [{"step": step, "heldout_loss": loss} for step, loss in STEPS.items()]
    (pretrain / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    described = {"model": asdict(MODEL), "vocab_size": len(VOCABULARY)}
    (pretrain / "config.json").write_text(json.dumps(described))
    _write_manifest(pretrain, {"optim": {"lr": 0.001}}, {}, {"tokenizer": "tokenizer/t0"})
    counts = {"documents": 12_345, "by reason": {"short": 7}, "name": "canary"}
    _write_manifest(tokenizer, {"tokenizer": {"kind": "wordpiece"}}, counts, {})
    return root


def _write_checkpoint(folder: Path, step: int) -> None:
    folder.mkdir(parents=True)
    torch.manual_seed(step)
    save_file(
        BertForPretraining(MODEL, len(VOCABULARY)).state_dict(), folder / "weights.safetensors"
    )
    cursor = Cursor(0, 0, (), Identity("e0", "s0", 0, 1, 8, 0))
    (folder / "state.json").write_text(TrainingState(cursor, step, step, 1000 * step).as_json())
    names = ("weights.safetensors", "state.json")
    checksums = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in names
    }
    (folder / "checksums.json").write_text(json.dumps(checksums))


def _write_manifest(folder: Path, config: dict, counts: dict, upstream: dict) -> None:
    manifest = {"config": config, "counts": counts, "upstream": upstream}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def run_export(store: Path, out: Path, checkpoint: str = "last") -> dict:
    out.mkdir()
    inputs = {"pretrain": store / "pretrain" / "p0", "tokenizer": store / "tokenizer" / "t0"}
    config = replace(Config(), model=MODEL, export=ExportConfig(checkpoint))
    return export.run(Work(config, inputs, out, "f0"))


@pytest.fixture(scope="module")
def exported(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exports") / "last"
    counts = run_export(store, out)
    assert counts["step"] == 30
    return out


def test_transformers_loads_it_offline_and_computes_the_same(
    store: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("transformers asked for the network")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    tokenizer = AutoTokenizer.from_pretrained(exported)
    inputs = tokenizer(["abc, de.", "x"], ["fgh", "yz a b"], padding=True, return_tensors="pt")
    answers = []
    for kind in (AutoModelForPreTraining, AutoModelForMaskedLM, AutoModel):
        model, info = kind.from_pretrained(exported, output_loading_info=True)
        assert not info["missing_keys"]
        with torch.no_grad():
            answers.append(model.eval()(**inputs))
    both, alone, bare = answers
    assert tokenizer.model_max_length == MODEL.max_positions

    words = Tokenizer.load(store / "tokenizer" / "t0")
    pairs = [("abc, de.", "fgh"), ("x", "yz a b")]
    ids, segments = [], []
    for first, second in pairs:
        a, b = (words.encode([text])[0].tolist() for text in (first, second))
        ids.append([words.cls, *a, words.sep, *b, words.sep])
        segments.append([0] * (len(a) + 2) + [1] * (len(b) + 1))
    real = inputs.attention_mask.bool()
    assert [row[keep].tolist() for row, keep in zip(inputs.input_ids, real, strict=True)] == ids

    model = BertForPretraining(MODEL, len(VOCABULARY)).eval()
    newest = store / "pretrain" / "p0" / CHECKPOINTS / "00000030" / "weights.safetensors"
    model.load_state_dict(load_file(newest))
    lengths = np.array([len(row) for row in ids])
    positions = torch.from_numpy(np.concatenate([np.arange(length) for length in lengths]))
    tokens, halves = (torch.from_numpy(np.concatenate(rows)) for rows in (ids, segments))
    flat = (tokens, positions, halves, lengths)
    with torch.no_grad():
        masked, pair = model.predict(*flat)
        last = model.bert(*flat)[-1]
    for theirs, ours in (
        (both.prediction_logits[real], masked),
        (alone.logits[real], masked),
        (bare.last_hidden_state[real], last),
        (both.seq_relationship_logits, pair),
    ):
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)


def test_the_card_tells_numbers_and_no_text(exported: Path) -> None:
    card = (exported / "README.md").read_text()
    assert "optimizer steps: 30" in card and "pieces seen: 30,000" in card
    assert "heldout loss: 2.75" in card
    assert "tokenizer, documents: 12,345" in card and "by reason short: 7" in card
    assert '"lr": 0.001' in card
    assert "canary" not in card and not (exported / "statistics.json").exists()


def test_best_and_steps_choose_their_checkpoint(store: Path, tmp_path: Path) -> None:
    assert run_export(store, tmp_path / "best", "best")["step"] == 20
    assert run_export(store, tmp_path / "step", "10")["step"] == 10
    with pytest.raises(UsageError, match=r"export\.checkpoint=15.*10, 20, 30"):
        run_export(store, tmp_path / "absent", "15")


def test_a_damaged_checkpoint_is_named(store: Path, tmp_path: Path) -> None:
    weights = store / "pretrain" / "p0" / CHECKPOINTS / "00000010" / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        with pytest.raises(SesameError, match=r"00000010.*checksum"):
            run_export(store, tmp_path / "out", "10")
    finally:
        weights.write_bytes(whole)


def test_an_export_that_computes_otherwise_fails(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(state: dict) -> dict:
        theirs = right(state)
        name = "bert.encoder.layer.0.attention.self.query.weight"
        theirs[name] = theirs[name].flip(0)
        return theirs

    right = pipeline.export.to_huggingface
    monkeypatch.setattr(pipeline.export, "to_huggingface", wrong)
    with pytest.raises(SesameError, match="differ from ours"):
        run_export(store, tmp_path / "out")


def test_another_vocabulary_is_refused(store: Path, tmp_path: Path) -> None:
    pretrain = store / "pretrain" / "p0"
    checkpoint = pretrain / CHECKPOINTS / "00000010"
    facts = gather_facts(pretrain, checkpoint)
    tokenizer = store / "tokenizer" / "t0"
    with pytest.raises(SesameError, match=r"59 pieces.*64"):
        pipeline.export.export_checkpoint(checkpoint, MODEL, 64, tokenizer, tmp_path, facts)


def test_modern_options_are_refused_before_anything_is_written(store: Path, tmp_path: Path) -> None:
    pretrain = store / "pretrain" / "p0"
    checkpoint = pretrain / CHECKPOINTS / "00000010"
    facts = gather_facts(pretrain, checkpoint)
    rotary = replace(MODEL, positions="rotary", norm="pre")
    with pytest.raises(UsageError, match=r"model\.norm=pre, model\.positions=rotary"):
        pipeline.export.export_checkpoint(
            checkpoint, rotary, len(VOCABULARY), store / "tokenizer" / "t0", tmp_path, facts
        )
    assert list(tmp_path.iterdir()) == []
