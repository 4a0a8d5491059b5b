"""A published folder is complete, states its licence, and holds nothing of its machine."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard

from data_prep.errors import SesameError, UsageError
from data_prep.vectors.table import VectorTable
from pipeline.commands import publish as command
from pipeline.commands.main import run
from pipeline.encoders import Concatenation, StaticEncoder, load_encoder, random_encoder
from pipeline.export.publish import Statement, prepare
from pipeline.tasks.finetuned import load_finetuned, save_model
from pipeline.tasks.model_card import model_card
from tests.pipeline.export.test_hub import FakeHub
from tests.pipeline.export.test_huggingface import MODEL, make_store, run_export
from tests.pipeline.tasks.test_finetuned import (
    BERT,
    WORDS,
    assert_same_answers,
    other_encoder,
    splits,
    trained,
)
from tests.pipeline.toy_tokenizer import write_toy_tokenizer
from tests.test_privacy import holders

FACTS: dict[str, Any] = {
    "task": "toy", "encoder": "mine", "metric": "accuracy", "seed": 1, "seeds": [1],
    "dev_scores": [0.5], "test_scores": [0.5], "split": "test", "chosen_on_scored": False,
    "examples": {"train": 32, "dev": 8, "test": 8},
}  # fmt: skip
ADDED = ("manifest.json", "run.json", ".lease.json")  # by the store
STATED = Statement("cc-by-4.0", ("sv", "no"), ("mine/texts",), "mine/base", "Texts of *ours*.")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kept model with the files that its stage adds."""
    tokenizer = write_toy_tokenizer(tmp_path_factory.mktemp("tokenizer"), WORDS)
    folder = tmp_path_factory.mktemp("model")
    save_model(trained(random_encoder(BERT, tokenizer, seed=0), "tag"), folder)
    stated = json.loads((folder / "finetuned.json").read_text())
    (folder / "README.md").write_text(model_card(stated, FACTS, {}))
    for name in ADDED:
        (folder / name).write_text('{"host": "canary"}')
    return folder


def test_a_model_is_complete_and_its_card_states_what_the_hub_reads(
    model: Path, tmp_path: Path
) -> None:
    prepare(model, tmp_path / "out", STATED, "toy")
    again, known = load_finetuned(tmp_path / "out"), load_finetuned(model)
    assert_same_answers(again, known, splits("tag").test)
    card = ModelCard((tmp_path / "out" / "README.md").read_text())
    assert card.data.to_dict() == {
        "language": ["sv", "no"], "license": "cc-by-4.0", "library_name": "transformers",
        "pipeline_tag": "token-classification", "base_model": "mine/base",
        "datasets": ["mine/texts"], "tags": ["sesame"],
    }  # fmt: skip
    for part in ("## Use", "## Scores", "## Data statement\n\nTexts of *ours*."):
        assert part in card.text
    assert card.text.count("---\n") == 0, "the old header is gone"
    assert not holders(tmp_path / "out", [b"canary"])


def test_an_encoder_is_published_without_its_run(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", MODEL, "nsp")
    run_export(store, tmp_path / "export", sentence_vectors="mean")
    (tmp_path / "export" / "manifest.json").write_text('{"secret": "canary"}')
    prepare(tmp_path / "export", tmp_path / "out", Statement("mit"), "demo")
    assert load_encoder(tmp_path / "out").hidden == MODEL.hidden
    card = ModelCard((tmp_path / "out" / "README.md").read_text())
    assert (card.data.library_name, card.data.license) == ("sentence-transformers", "mit")
    assert (tmp_path / "out" / "1_Pooling" / "config.json").exists()
    assert "## Licence\n\nmit" in card.text
    assert "## Data" in card.text and "Not stated by its makers" in card.text
    assert not holders(tmp_path / "out", [b"canary", str(tmp_path).encode()])


def test_what_must_not_be_published_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="licence: state under which licence"):
        prepare(model, tmp_path / "out", Statement(""), "toy")
    with pytest.raises(UsageError, match="licence=My Own: must be an identifier of the Hub"):
        prepare(model, tmp_path / "out", Statement("My Own"), "toy")
    with pytest.raises(UsageError, match=r"language=.*Swedish.*: must be a code"):
        prepare(model, tmp_path / "out", Statement("mit", ("Swedish",)), "toy")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="has files already"):
        prepare(model, model, Statement("mit"), "toy")
    told = Statement("mit", data=f"The texts of {Path.home()}/notes.")
    with pytest.raises(SesameError, match=r"README\.md: names a folder of this machine"):
        prepare(model, tmp_path / "out", told, "toy")
    assert not list(tmp_path.iterdir()), "nothing half-written that could be uploaded"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="has files already"):
        prepare(model, tmp_path / "file", Statement("mit"), "toy")


@pytest.mark.parametrize("place", ["/data/patients/bert", "~/models/bert", "C:\\models\\bert"])
def test_a_setting_that_names_a_folder_anywhere_is_refused(
    place: str, model: Path, tmp_path: Path
) -> None:
    """Other people's folders say where their model lay, as `_name_or_path`."""
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"_name_or_path": place}))
    with pytest.raises(SesameError, match=r"config\.json: names a folder of this machine"):
        prepare(copy, tmp_path / "out", Statement("mit"), "toy")
    assert not (tmp_path / "out").exists()
    (copy / "config.json").write_text(json.dumps(config | {"_name_or_path": "KB/bert-base"}))
    prepare(copy, tmp_path / "out", Statement("mit"), "toy")


CANARIES = (
    "training_args.bin", "optimizer.pt", "scheduler.pt", "trainer_state.json", "train.tsv",
    "predictions.jsonl", "all_results.json", "notes.md", "pytorch_model.bin", "._model.safetensors",
    "runs/Nov19/events.out.tfevents.1", "checkpoint-500/model.safetensors", "data/config.json",
    "encoder/texts.txt", ".cache/config.json",
)  # fmt: skip


def test_only_files_that_a_user_needs_are_published(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A folder of Hugging Face's Trainer also holds the training's state, data and answers."""
    source = tmp_path / "trained"
    shutil.copytree(model, source)
    for name in CANARIES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("canary")
    monkeypatch.chdir(tmp_path)
    assert run(["publish", f"model={source}", "licence=mit", "out=out"]) == 0
    assert not holders(tmp_path / "out", [b"canary"])
    there = {path.name for path in (tmp_path / "out").iterdir()}
    assert there == {path.name for path in model.iterdir()} - set(ADDED)
    left_out = prepare(source, tmp_path / "again", Statement("mit"), "toy")
    hidden = {"._model.safetensors", ".cache/config.json"}
    assert set(left_out) == set(CANARIES) - hidden
    assert (
        "left out, since no user of the model needs it: all_results.json, "
        in capfd.readouterr().err
    )


def test_no_file_of_our_own_folders_is_left_out(tmp_path: Path) -> None:
    """Every kind of encoder is complete: it is read again from the published folder."""
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    write_toy_tokenizer(tokenizer, WORDS)
    bert = random_encoder(BERT, tokenizer, seed=0)
    table = VectorTable(WORDS, np.ones((len(WORDS), 3), np.float32))
    kinds = {
        "bert": bert,
        "elmo": other_encoder("elmo", tokenizer, tokenizer),
        "vectors": StaticEncoder(table),
        "several": Concatenation([bert, StaticEncoder(table)]),
    }
    for name, encoder in kinds.items():
        (tmp_path / name).mkdir()
        encoder.save(tmp_path / name)
        assert prepare(tmp_path / name, tmp_path / f"{name}-out", Statement("mit"), name) == []
        assert load_encoder(tmp_path / f"{name}-out").hidden == encoder.hidden
    (tmp_path / "own").mkdir()
    save_model(trained(kinds["several"], "tag"), tmp_path / "own")
    assert prepare(tmp_path / "own", tmp_path / "own-out", Statement("mit"), "own") == []
    load_finetuned(tmp_path / "own-out")


def test_the_same_command_may_be_given_again(model: Path, tmp_path: Path) -> None:
    """To read the card before an upload, or after one that failed."""
    for _ in range(2):
        prepare(model, tmp_path / "out", STATED, "toy")
    (tmp_path / "out" / "README.md").write_text("mine")
    with pytest.raises(UsageError, match="has files already, and not those that this command"):
        prepare(model, tmp_path / "out", STATED, "toy")
    assert (tmp_path / "out" / "README.md").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_the_command_uploads_only_when_it_is_told(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    hub = FakeHub()
    (tmp_path / "latin.md").write_bytes(b"b\xe4ttre")
    asked = ["publish", f"model={model}", "licence=mit", "out=here"]
    assert run(asked) == 0
    assert (tmp_path / "here" / "README.md").exists()
    capfd.readouterr()
    for wrong, says in {
        ("publish", f"model={model}"): "licence: state under which licence",
        ("publish", "licence=mit"): "publish: name model=",
        (*asked, "repo=me/x"): "--upload and repo=<owner>/<name> go together",
        (*asked, "out=there", "repo=me/x", "--upload"): "--upload: set HF_TOKEN",
        (*asked, "out=there", "data=none.md"): "data=none.md: give a file",
        (*asked, "out=there", "data=latin.md"): "data=latin.md: not UTF-8 at byte 1",
    }.items():
        assert run(list(wrong)) == 2
        assert says in capfd.readouterr().err
    assert not (tmp_path / "there").exists()
    monkeypatch.setattr(command, "open_hub", lambda: hub)
    assert run([*asked, "out=there", "repo=me/x", "--upload"]) == 0
    assert [name for name, _ in hub.calls] == ["me/x", "upload"]
