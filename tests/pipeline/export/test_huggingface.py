"""An exported folder is what transformers makes of it: same ids, same logits, offline."""

import json
import re
import socket
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

import pipeline.export.huggingface
from data_prep.errors import SesameError, UsageError
from data_prep.files import sha256
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline.commands.stages import experiment
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config, ExportConfig
from pipeline.data.cursor import Cursor, Identity
from pipeline.export.card import gather_facts
from pipeline.export.weights import read_weights
from pipeline.models.bert.architectures import ARCHITECTURES, MODERNBERT, Architecture
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.network import BertForPretraining
from pipeline.stages import export
from pipeline.stages.export import Export
from pipeline.store.checkpoints import CHECKPOINTS
from pipeline.store.outputs import MANIFEST
from pipeline.training.checkpoint import TrainingState
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Work

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
VOCABULARY = [*Specials().names(), *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", ","]
MODEL = BertConfig(layers=2, hidden=16, heads=2, intermediate=32, max_positions=24, init_std=0.2)
STEPS = {10: 3.5, 20: 2.5, 30: 2.75}  # step -> held-out loss


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), MODEL, "nsp")


def make_store(root: Path, model: BertConfig, pairs: str) -> Path:
    """A store with a tokenizer and a pretraining that kept three checkpoints."""
    tokenizer, pretrain, examples = (
        root / "tokenizer/t0",
        root / "pretrain/p0",
        root / "examples/e0",
    )
    tokenizer.mkdir(parents=True)
    write_folder(tokenizer, from_vocabulary(VOCABULARY, True, True, Specials()), Specials(), None)
    (tokenizer / "statistics.json").write_text('{"secret": "canary"}')
    for step in STEPS:
        _write_checkpoint(pretrain / CHECKPOINTS / f"{step:08d}", step, model)
    pair_loss = None if pairs == "none" else 0.5
    lines = [
        {"step": step, "heldout_loss": loss, "heldout_pair_loss": pair_loss}
        for step, loss in STEPS.items()
    ]
    (pretrain / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    described = {"model": asdict(model), "vocab_size": len(VOCABULARY)}
    (pretrain / "config.json").write_text(json.dumps(described))
    upstream = {"tokenizer": "tokenizer/t0", "examples.0": "examples/e0"}
    _write_manifest(pretrain, {"optim": {"lr": 0.001}}, {"steps": max(STEPS)}, upstream)
    upstream = {"shard": "shard/s0"}
    counts = {"kind": "wordpiece", "vocab_size": len(VOCABULARY), "name": "canary"}
    _write_manifest(tokenizer, {"tokenizer": {"kind": "wordpiece"}}, counts, upstream)
    rows = {"examples": {"pairs": pairs, "max_seq_length": 24}}
    _write_manifest(examples, rows, {"train": {"rows": 300, "tokens": 6_000}}, upstream)
    counts = {
        "documents": {"read": 12_345, "kept": 12_300, "dropped": {"canary": 45}},
        "words": {"train": 4_321, "heldout": 99},
        "sentences": {"train": 432, "heldout": 10},
    }
    names = {
        "canary/a.jsonl.gz": {},
        "canary.xml-p1p2-canary.bz2": {},
        "c.TXT": {},
        "corpus.exclude": {},
    }
    _write_manifest(root / "shard" / "s0", {"corpus": {"where": "canary"}}, counts, {}, names)
    return root


def _write_checkpoint(folder: Path, step: int, model: BertConfig) -> None:
    folder.mkdir(parents=True)
    torch.manual_seed(step)
    save_file(
        BertForPretraining(model, len(VOCABULARY)).state_dict(), folder / "weights.safetensors"
    )
    cursor = Cursor(0, 0, (), Identity("e0", "s0", 0, 1, 8, 0))
    (folder / "state.json").write_text(TrainingState(cursor, step, step, 1000 * step).as_json())
    names = ("weights.safetensors", "state.json")
    checksums = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in names
    }
    (folder / "checksums.json").write_text(json.dumps(checksums))


def _write_manifest(
    folder: Path, config: dict, counts: dict, upstream: dict, files: dict | None = None
) -> None:
    manifest = {"stage": folder.parent.name, "config": config, "counts": counts}
    manifest |= {"upstream": upstream, "files_read": files or {}}
    manifest |= {"fingerprint": folder.name, "files": {}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def run_export(store: Path, out: Path, checkpoint: str = "last", **settings: Any) -> dict:
    out.mkdir()
    inputs = {"pretrain": store / "pretrain" / "p0", "tokenizer": store / "tokenizer" / "t0"}
    config = replace(Config(), model=MODEL, export=ExportConfig(checkpoint, **settings))
    return Export().run(Work(config, inputs, out, "f0"))


@pytest.fixture(scope="module")
def exported(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exports") / "last"
    counts = run_export(store, out)
    assert counts["step"] == 30
    return out


PAIRS = [("abc, de.", "fgh"), ("x", "yz a b")]


class Ours(NamedTuple):
    """What our own model makes of PAIRS, over real pieces only."""

    ids: list[list[int]]
    masked_NV: torch.Tensor
    pair_E2: torch.Tensor
    last_ND: torch.Tensor


def our_answers(store: Path, config: BertConfig) -> Ours:
    words = Tokenizer.load(store / "tokenizer" / "t0")
    ids, segments = [], []
    for texts in PAIRS:
        a, b = (words.encode([text])[0].tolist() for text in texts)
        ids.append([words.cls, *a, words.sep, *b, words.sep])
        segments.append([0] * (len(a) + 2) + [1] * (len(b) + 1))
    model = BertForPretraining(config, len(VOCABULARY)).eval()
    newest = store / "pretrain" / "p0" / CHECKPOINTS / "00000030" / "weights.safetensors"
    model.load_state_dict(load_file(newest))
    lengths = np.array([len(row) for row in ids])
    positions = torch.from_numpy(np.concatenate([np.arange(length) for length in lengths]))
    tokens, halves = (torch.from_numpy(np.concatenate(rows)) for rows in (ids, segments))
    flat = (tokens, positions, halves, lengths)
    with torch.no_grad():
        return Ours(ids, *model.predict(*flat), model.bert(*flat)[-1])


def their_answers(folder: Path, kinds: Sequence[type]) -> tuple[torch.Tensor, torch.Tensor, list]:
    """Padded ids, which of them are real, and what each kind of model answers."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == MODEL.max_positions
    inputs = tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt")
    answers = []
    for kind in kinds:
        model, info = kind.from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"]
        with torch.no_grad():
            answers.append(model.eval()(**inputs))
    return inputs.input_ids, inputs.attention_mask.bool(), answers


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("transformers asked for the network")

    monkeypatch.setattr(socket.socket, "connect", no_network)


@pytest.mark.usefixtures("offline")
def test_transformers_loads_it_offline_and_computes_the_same(store: Path, exported: Path) -> None:
    kinds = (AutoModelForPreTraining, AutoModelForMaskedLM, AutoModel)
    their_ids, real, (both, alone, bare) = their_answers(exported, kinds)
    ours = our_answers(store, MODEL)
    assert [row[keep].tolist() for row, keep in zip(their_ids, real, strict=True)] == ours.ids
    for theirs, own in (
        (both.prediction_logits[real], ours.masked_NV),
        (alone.logits[real], ours.masked_NV),
        (bare.last_hidden_state[real], ours.last_ND),
        (both.seq_relationship_logits, ours.pair_E2),
    ):
        torch.testing.assert_close(theirs, own, atol=1e-5, rtol=0)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("architecture", ARCHITECTURES[1:], ids=lambda each: each.title)
def test_a_modern_model_is_loaded_as_what_it_is(architecture: Architecture, tmp_path: Path) -> None:
    model = replace(MODEL, **architecture.options)
    store = make_store(tmp_path / "store", model, "none")
    run_export(store, tmp_path / "out")
    takes = AutoTokenizer.from_pretrained(tmp_path / "out").model_input_names
    assert ("token_type_ids" in takes) == model.segments
    their_ids, real, (alone, bare) = their_answers(
        tmp_path / "out", (AutoModelForMaskedLM, AutoModel)
    )
    assert "heldout pair" not in (tmp_path / "out" / "README.md").read_text()
    ours = our_answers(store, model)
    assert [row[keep].tolist() for row, keep in zip(their_ids, real, strict=True)] == ours.ids
    torch.testing.assert_close(alone.logits[real], ours.masked_NV, atol=1e-5, rtol=0)
    torch.testing.assert_close(bare.last_hidden_state[real], ours.last_ND, atol=1e-5, rtol=0)


def test_rounding_of_sharp_attention_is_no_fault(tmp_path: Path) -> None:
    """ModernBERT turns queries and keys in single precision, whatever the model's precision is."""
    sharp = replace(MODEL, **MODERNBERT.options, layers=6, hidden=64, init_std=0.5)
    counts = run_export(make_store(tmp_path / "store", sharp, "none"), tmp_path / "out")
    assert counts["step"] == 30


def test_the_card_tells_numbers_and_no_text(exported: Path) -> None:
    card = (exported / "README.md").read_text()
    for line in (
        "- files: 1 of .jsonl.gz, 1 of .txt, 1 of .xml.bz2",
        "- documents: 12,300 kept of 12,345",
        "- training: 4,321 words in 432 sentences",
        "- held out: 99 words in 10 sentences",
        "- tokenizer: wordpiece, 59 entries",
        "- examples: 6,000 tokens in 300 rows of up to 24",
        "- loss: 2.75",
        "- optimizer steps: 30",
        "- pieces seen: 30,000",
        "export.license=<identifier>",
    ):
        assert line in card
    assert card.index("documents: 12") < card.index("examples: 6,000")
    assert '"lr": 0.001' in card
    assert "canary" not in card and not (exported / "statistics.json").exists()


def test_the_hub_reads_the_cards_head(store: Path, tmp_path: Path) -> None:
    assert read_head(run_card(store, tmp_path / "plain")) == {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "license": "unknown",
        "tags": ["bert", "sesame"],
    }
    stated = run_card(store, tmp_path / "stated", license="cc-by-4.0", language="no")
    assert read_head(stated)["license"] == "cc-by-4.0"
    assert read_head(stated)["language"] == "no"  # not YAML's false
    several = run_card(store, tmp_path / "several", language=["sv", "no"])
    assert read_head(several)["language"] == ["sv", "no"]
    assert "Not stated" not in stated


def run_card(store: Path, out: Path, **settings: Any) -> str:
    run_export(store, out, **settings)
    return (out / "README.md").read_text()


def read_head(card: str) -> dict[str, Any]:
    head: dict[str, Any] = ModelCard(card, ignore_metadata_errors=False).data.to_dict()
    return head


@pytest.mark.parametrize("setting", ["license=Apache 2.0", "language=English"])
def test_what_the_hub_would_not_understand_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match=rf"^export\.{setting}: must be"):
        compose_config([f"export.{setting}"])


def test_the_card_of_a_model_gone_on_from_tells_its_own_recipe(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", MODEL, "nsp")
    pretrain = store / "pretrain" / "p0"
    upstream = {"tokenizer": "tokenizer/t0", "examples.0": "examples/e0", "init": "export/x0"}
    _write_manifest(pretrain, {"optim": {"lr": 0.002}}, {"steps": max(STEPS)}, upstream)
    _write_manifest(store / "export" / "x0", {}, {}, {"pretrain": "pretrain/p1"})
    _write_manifest(store / "pretrain" / "p1", {"optim": {"lr": 0.9}}, {}, {})
    facts = gather_facts(pretrain, pretrain / CHECKPOINTS / "00000010", ExportConfig())
    assert facts.recipe["optim"] == {"lr": 0.002}
    assert "goes on from: export/x0, which has data and a card of its own" in facts.data


def test_best_leaves_out_a_step_whose_held_out_loss_was_not_finite(tmp_path: Path) -> None:
    checkpoints = tmp_path / CHECKPOINTS
    for step in (10, 20):
        (checkpoints / f"{step:08d}").mkdir(parents=True)
    lines = (
        {"step": 10, "heldout_loss": 3.5},
        {"step": 20, "heldout_loss": None, "evaluation_failed": "the held-out loss is not finite"},
    )
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert export.choose_checkpoint(tmp_path, "best") == checkpoints / "00000010"


def test_best_and_steps_choose_their_checkpoint(store: Path, tmp_path: Path) -> None:
    assert run_export(store, tmp_path / "best", "best")["step"] == 20
    assert run_export(store, tmp_path / "step", "10")["step"] == 10
    with pytest.raises(UsageError, match=r"export\.checkpoint=15.*10, 20, 30"):
        run_export(store, tmp_path / "absent", "15")


def test_averaged_weights_are_the_mean_of_the_steps(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "mean"
    assert run_export(store, out, average=[30, 10, 10])["step"] == 30
    theirs = load_file(out / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    ours = [
        load_file(store / "pretrain" / "p0" / CHECKPOINTS / f"{step:08d}" / "weights.safetensors")
        for step in (10, 30)
    ]
    mean = sum(each["bert.embeddings.tokens.weight"] for each in ours) / 2
    torch.testing.assert_close(theirs, mean, rtol=1e-6, atol=1e-8)
    card = (out / "README.md").read_text()
    assert "the weights are the mean of those after steps 10, 30" in card
    assert "held-out" not in card.lower()  # scores of step 30 are not those of the mean


def test_an_average_over_a_step_that_is_not_kept_is_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"export\.average: step 15.*10, 20, 30.*keep_every"):
        run_export(store, tmp_path / "absent", average=[10, 15])


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
    def wrong(*given: Any) -> dict:
        theirs = right(*given)
        name = "bert.encoder.layer.0.attention.self.query.weight"
        theirs[name] = theirs[name].flip(0)
        return theirs

    right = pipeline.export.huggingface.to_huggingface
    monkeypatch.setattr(pipeline.export.huggingface, "to_huggingface", wrong)
    with pytest.raises(SesameError, match="differ from ours"):
        run_export(store, tmp_path / "out")


def test_another_vocabulary_is_refused(store: Path, tmp_path: Path) -> None:
    pretrain = store / "pretrain" / "p0"
    checkpoint = pretrain / CHECKPOINTS / "00000010"
    facts = gather_facts(pretrain, checkpoint, ExportConfig())
    tokenizer = store / "tokenizer" / "t0"
    with pytest.raises(SesameError, match=r"59 tokens.*64"):
        pipeline.export.huggingface.export_huggingface(
            read_weights([checkpoint]), MODEL, 64, tokenizer, tmp_path, facts
        )


@pytest.mark.parametrize(
    ("options", "pairs", "says"),
    [
        ({"positions": "rotary", "norm": "pre"}, "none", "model.norm=pre"),
        ({"positions": "rotary"}, "nsp", "examples.pairs=nsp"),
    ],
)
def test_a_model_that_nobody_could_load_is_refused_before_anything_is_written(
    options: dict, pairs: str, says: str, tmp_path: Path
) -> None:
    store = make_store(tmp_path / "store", replace(MODEL, **options), pairs)
    with pytest.raises(UsageError, match=re.escape(says)):  # where it is planned
        export.check_finished(store / "pretrain" / "p0", ExportConfig())
    with pytest.raises(UsageError, match=re.escape(says)):
        run_export(store, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_it_is_refused_before_training_where_it_is_to_be_exported(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("A sentence.\n")
    rotary = [
        "experiment=bert_mini", f"paths.store={tmp_path / 'store'}", "model.positions=rotary",
        f"corpus.paths={tmp_path / 'corpus.txt'}",
    ]  # fmt: skip

    def graph(*overrides: str) -> Graph:
        return experiment(compose_config(list(overrides)), list(overrides))

    with pytest.raises(UsageError, match=r"or examples\.pairs=none \(RoFormer\), or leave export"):
        graph(*rotary)
    without = graph(*rotary, "stages=[shard,tokenizer,examples,pretrain]")
    assert "pretrain" in {node.stage for node in without.nodes.values()}
    fits = graph(*rotary, "examples.pairs=none")
    assert "export" in {node.stage for node in fits.nodes.values()}
