"""The plan says which form a model will have, and why."""

from dataclasses import replace
from pathlib import Path

import pytest

from data_prep.config import CorpusConfig, TokenizerConfig
from data_prep.examples.config import ExamplesConfig
from pipeline.config.schema import Config
from pipeline.models.bert.config import BertConfig
from pipeline.models.elmo.config import ElmoConfig
from pipeline.stages import STAGES
from pipeline.stages.model import add_models
from pipeline.store.outputs import Store
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.training.config import TrainerConfig
from pipeline.workflow.graph import Graph
from pipeline.workflow.plan import plan
from tests.pipeline.encoders.foreign_models import write_model

TASK = TaskConfig(name="toy", data_dir=".", train="train.tsv")
BASE = Config(
    task=TASK,
    corpus=CorpusConfig(paths=["corpus.txt"]),
    trainer=TrainerConfig(max_steps=1),
    model=BertConfig(),
)
ROTARY = replace(BASE, model=BertConfig(positions="rotary"), examples=ExamplesConfig(pairs="none"))
ELMO = replace(
    BASE,
    model=ElmoConfig(),
    tokenizer=TokenizerConfig(kind="words"),
    examples=ExamplesConfig(pairs="none"),
)
CASES = {
    "own": (BASE, "transformers: BertForSequenceClassification"),
    "rotary": (ROTARY, "transformers: RoFormerForSequenceClassification"),
    "folder": (
        replace(BASE, encoder="./model"),
        "transformers: RobertaForSequenceClassification; the encoder runs through transformers, "
        "with padding: our network has no model_type=roberta",
    ),
    "setting": (replace(BASE, encoder="./relu"), "our network has no hidden_act=relu"),
    "frozen": (
        replace(BASE, finetune=FinetuneConfig(mode="frozen")),
        "our own form, as finetune.mode=frozen has no class in transformers",
    ),
    "elmo": (ELMO, "our own form, as its encoder has no class"),
    "file": (replace(BASE, encoder="glove.txt"), "our own form, as its encoder has no class"),
    "several": (replace(BASE, encoder=["./model", "glove.txt"]), "our own form, as its encoder"),
    "random": (replace(BASE, encoder="random", keep=True), "BertForSequenceClassification"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_the_plan_foretells_the_form(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("A.\n")
    Path("glove.txt").write_text("a 1 2\n")
    Path("train.tsv").write_text("sentence\tlabel\na\t0\n")
    for folder, model in {"model": "roberta", "relu": "bert+relu"}.items():
        Path(folder).mkdir()
        write_model(Path(folder), model)
    config, says = CASES[case]
    graph = Graph(Store(tmp_path / "store"), STAGES)
    graph.add("finetune", config)
    add_models(graph)
    rows = {row.node.stage: row for row in plan(list(graph.nodes.values()), graph.store)}
    assert rows["model"].state == "new"
    assert says in rows["model"].note
    assert not rows["finetune"].note
