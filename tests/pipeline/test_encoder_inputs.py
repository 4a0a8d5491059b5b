"""What `encoder=` may be: each form asks for the right outputs and gets its own fingerprint."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from data_prep.config import TokenizerConfig
from data_prep.errors import UsageError
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from data_prep.vectors.table import VectorTable
from pipeline.compose import compose_config
from pipeline.config import Config
from pipeline.encoders import Concatenation, StaticEncoder
from pipeline.graph import Graph, Node
from pipeline.models.config import BertConfig
from pipeline.stages.encoder_inputs import (
    encoder_keys,
    encoder_label,
    encoder_requests,
    open_encoder,
)
from pipeline.store import Store
from pipeline.tasks.config import TaskConfig

NAMES = [*Specials().names(), *sorted(pre_tokenizers.ByteLevel.alphabet())]


@pytest.mark.parametrize(
    ("encoder", "stages", "label"),
    [
        (None, {"encoder": "export"}, "pretrained"),
        ("random", {"tokenizer": "tokenizer"}, "random"),
        ("vectors", {"encoder": "vectors"}, "vectors"),
        ("tfidf", {}, "tfidf"),
        ("a/glove.txt", {"encoder": "export"}, "glove.txt"),
        (
            ["g.txt", "random"],
            {"encoder_1": "export", "tokenizer_2": "tokenizer"},
            "g.txt + random",
        ),
    ],
)
def test_each_form_asks_for_its_outputs(
    encoder: object, stages: dict[str, str], label: str
) -> None:
    config = Config(encoder=encoder)
    requests = encoder_requests(config)
    assert {role: request.stage for role, request in requests.items()} == stages
    assert encoder_label(config) == label
    assert ("model" in encoder_keys(config)) == ("random" in label)


def test_a_file_of_vectors_becomes_a_table_in_the_store(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("a 1 2\nb 3 4\n")
    config = Config(encoder=str(tmp_path / "glove.txt"))
    graph = Graph(Store(tmp_path / "store"))
    (request,) = encoder_requests(config).values()
    node = graph.request(request)
    assert isinstance(node, Node)
    assert (node.stage, node.inputs, list(node.request["files_read"])) == (
        "vectors", {}, ["glove.txt"],
    )  # fmt: skip
    wider = replace(config, vectors=replace(config.vectors, width=7))  # of no use to given vectors
    (again,) = encoder_requests(wider).values()
    assert graph.request(again) is node
    (tmp_path / "glove.txt").write_text("a 1 2\nb 3 5\n")
    other = Graph(Store(tmp_path / "store")).request(request)
    assert isinstance(other, Node)
    assert other.output.fingerprint != node.output.fingerprint


TASKS = {
    "span": TaskConfig(name="t", kind="span", reader="squad", metric="f1", train="train.json"),
    "tag": TaskConfig(
        name="t", kind="tag", reader="conll", metric="entity_f1", train="train.conll"
    ),
    "classify": TaskConfig(name="t", train="train.tsv"),
}


@pytest.mark.parametrize(
    ("tokenizer", "kind", "encoder", "is_changed"),
    [
        ({"kind": "wordpiece"}, "span", "random", False),
        ({"kind": "wordpiece"}, "classify", ["random", "glove.txt"], False),
        ({"kind": "wordpiece", "user_symbols": ["[name]"]}, "span", "random", True),
        ({"kind": "unigram"}, "span", "random", True),
        ({"kind": "bpe"}, "span", "random", True),
        ({"kind": "unigram"}, "tag", "random", False),
        ({"kind": "unigram"}, "tag", ["random", "glove.txt"], False),
        ({"kind": "unigram"}, "classify", "random", False),
        ({"kind": "unigram"}, "classify", ["random", "glove.txt"], True),
        ({"kind": "wordpiece"}, "span", "glove.txt", False),
        ({"source": "wordpiece"}, "span", "random", False),
        ({"source": "bytes"}, "span", "random", True),
        ({"source": "bytes"}, "tag", "random", True),
        ({"source": "bytes"}, "classify", "random", False),
    ],
)
def test_only_results_whose_pieces_changed_have_a_new_fingerprint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tokenizer: dict[str, Any],
    kind: str,
    encoder: Any,
    is_changed: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("Some text of a corpus.\n")
    Path("glove.txt").write_text("a 1 2\nb 3 4\n")
    for each in TASKS.values():
        Path(str(each.train)).write_text("x")
    for name in ("wordpiece", "bytes"):
        Path(name).mkdir()
        library = from_vocabulary([*Specials().names(), "a"], True, False, Specials())
        if name == "bytes":
            library = tokenizers.Tokenizer(models.BPE({n: i for i, n in enumerate(NAMES)}, []))
            library.pre_tokenizer = pre_tokenizers.ByteLevel()
        write_folder(Path(name), library, Specials(), None)
    config = Config(
        encoder=encoder,
        model=BertConfig(),
        tokenizer=TokenizerConfig(**tokenizer),
        task=replace(TASKS[kind], data_dir="."),
    )
    config.corpus.paths = "corpus.txt"
    node = Graph(Store(tmp_path / "store")).add("finetune", config)
    assert ("pieces" in node.request["config"]) == is_changed
    assert node.request["format"] == 6


def test_several_encoders_are_opened_as_one(tmp_path: Path) -> None:
    VectorTable(["a"], np.ones((1, 3), np.float32)).write(tmp_path)
    one = open_encoder(Config(encoder="x"), {"encoder": tmp_path}, 0)
    assert isinstance(one, StaticEncoder)
    inputs = {"encoder_1": tmp_path, "encoder_2": tmp_path}
    both = open_encoder(Config(encoder=["x", "y"]), inputs, 0)
    assert isinstance(both, Concatenation)
    assert both.hidden == 6


def test_lists_of_encoders_come_from_the_command_line() -> None:
    assert compose_config(["encoder=[glove.txt,mine@best]"]).encoders == ["glove.txt", "mine@best"]
    assert compose_config(["encoder=mine"]).encoders == ["mine"]
    with pytest.raises(UsageError, match=r"finetune\.crf=true: task\.kind=classify"):
        compose_config(["finetune.crf=true"])
    with pytest.raises(UsageError, match=r"finetune\.pairs=apart: an answer is found by"):
        compose_config(["task=squad", "finetune.pairs=apart"])
