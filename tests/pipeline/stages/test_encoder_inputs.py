"""What `encoder=` may be: each form asks for the right outputs and gets its own fingerprint."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_prep.config import CorpusConfig
from data_prep.errors import UsageError
from data_prep.vectors.table import VectorTable
from pipeline.config.compose import compose_config
from pipeline.config.schema import FLOORS, Config, PathsConfig
from pipeline.encoders import Concatenation, StaticEncoder, random_encoder
from pipeline.models.bert.config import BertConfig
from pipeline.stages import STAGES
from pipeline.stages.encoder_inputs import (
    encoder_keys,
    encoder_label,
    encoder_requests,
    open_encoder,
)
from pipeline.stages.tuning import keeps_model
from pipeline.store.outputs import Store
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.summary import gains, summarise
from pipeline.training.config import TrainerConfig
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Node
from tests.conftest import Sesame
from tests.pipeline.toy_tokenizer import write_toy_tokenizer


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
    graph = Graph(Store(tmp_path / "store"), STAGES)
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
    other = Graph(Store(tmp_path / "store"), STAGES).request(request)
    assert isinstance(other, Node)
    assert other.output.fingerprint != node.output.fingerprint


@pytest.mark.parametrize(
    ("kind", "encoder", "is_told"),
    [
        ("classify", "mine", False),
        ("regress", "random", False),
        ("classify", ["mine", "glove.txt"], True),
        ("span", "mine", True),
        ("tag", "mine", True),
    ],
)
def test_tasks_over_words_are_told_from_those_made_of_other_pieces(
    kind: str, encoder: Any, is_told: bool
) -> None:
    config = Config(encoder=encoder, task=TaskConfig(kind=kind))
    assert ("pieces" in encoder_keys(config)) == is_told


def test_spans_of_texts_are_told_from_those_that_were_split_at_punctuation() -> None:
    def keys(reader: str, **settings: str) -> Any:
        task = TaskConfig(kind="tag", metric="entity_f1", reader=reader, **settings)
        return encoder_keys(Config(encoder="mine", task=task)).get("words")

    assert keys("spans") == keys("brat") == {"by": "addresses"}
    assert keys("spans", word_split="punctuation") == {"by": "punctuation"}
    assert keys("conll") is None


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
    with pytest.raises(UsageError, match=r"finetune\.crf=true: needs task\.kind=tag, not classify"):
        compose_config(["finetune.crf=true"])
    with pytest.raises(
        UsageError, match=r"finetune\.pair_encoding=separate: an answer is found by"
    ):
        compose_config(["task=squad", "finetune.pair_encoding=separate"])


def test_the_random_twin_of_a_run_has_its_model_and_tokenizer_and_needs_no_corpus(
    smoke: Sesame,
) -> None:
    recipe = compose_config(["experiment=smoke", "task=polarity", f"paths.store={smoke.store}"])
    task, paths = recipe.task, recipe.paths
    own = replace(recipe, encoder="random")
    twin = Config(encoder="random:smoke", paths=paths, finetune=recipe.finetune, task=task)
    assert (encoder_label(twin), keeps_model(twin)) == ("random", False)
    for stage in ("finetune", "layers"):
        graph = Graph(Store(smoke.store), STAGES)
        made, of_recipe = graph.add(stage, twin), graph.add(stage, own)
        assert made.inputs == of_recipe.inputs
        assert made.output.path == of_recipe.output.path, "one output for one twin"
    inputs = {role: item.path for role, item in made.inputs.items()}
    ours, known = (open_encoder(config, inputs, 7) for config in (twin, own))
    for name, value in ours.state_dict().items():
        assert torch.equal(value, known.state_dict()[name]), name
    with pytest.raises(UsageError, match="encoder=smoek: no run with a pretrain"):
        graph.add("finetune", replace(twin, encoder="random:smoek"))


def test_a_run_is_compared_with_its_untrained_twin(smoke: Sesame) -> None:
    """The manifests of the store say that both have one model and one tokenizer."""
    scores = summarise([out.path / "scores.json" for out in Store(smoke.store).outputs("finetune")])
    beside = gains(scores)
    trained = [score for score in scores if not score.is_random]
    assert trained and [beside[score].baseline.task for score in trained] == [
        score.task for score in trained
    ]


def test_a_folder_has_a_random_twin_too(tmp_path: Path) -> None:
    tokenizer, folder = tmp_path / "tokenizer", tmp_path / "folder"
    tokenizer.mkdir(), folder.mkdir()
    model = BertConfig(layers=1, hidden=8, heads=2, intermediate=8, max_positions=16)
    known = random_encoder(model, write_toy_tokenizer(tokenizer, ["a"]), seed=1)
    known.save(folder)
    config = Config(encoder=f"random:{folder}", paths=PathsConfig(str(tmp_path / "store")))
    twin = open_encoder(config, {"tokenizer": folder}, 1)
    assert twin.state_dict().keys() == known.state_dict().keys()
    assert encoder_keys(config) == encoder_keys(Config(encoder="random", model=model))
    both = replace(config, encoder=["random", f"random:{folder}"], model=BertConfig())
    assert {"model", "model_2"} <= encoder_keys(both).keys()


KINDS = [
    None, "random", "vectors", "tfidf", "majority", "glove.txt", "other.txt",
    ["glove.txt", "other.txt"], ["other.txt", "glove.txt"], ["glove.txt", "random"],
    ["random", "glove.txt"], ["random", "random"], ["vectors", "glove.txt"],
]  # fmt: skip


@pytest.mark.parametrize("stage", ["finetune", "layers"])
def test_every_encoder_has_an_output_of_its_own(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "glove.txt": "a 1 2\n",
        "other.txt": "a 3 4\n",
        "corpus.txt": "A.\n",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na\t0\n")
    task = TaskConfig(name="toy", data_dir=".", train="train.tsv")
    corpus = CorpusConfig(paths=["corpus.txt"])
    graph = Graph(Store(tmp_path / "store"), STAGES)
    kinds = [kind for kind in KINDS if stage == "finetune" or str(kind) not in FLOORS]
    outputs: dict[str, list[object]] = {}
    for kind in kinds:
        config = Config(
            encoder=kind,
            task=task,
            corpus=corpus,
            trainer=TrainerConfig(max_steps=1),
            model=BertConfig(),
        )
        node = graph.add(stage, config)
        outputs.setdefault(node.output.reference, []).append(kind)
    assert [kinds for kinds in outputs.values() if len(kinds) > 1] == []
