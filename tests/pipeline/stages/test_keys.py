"""Fingerprints proved: what stages read while they run, and what they hash."""

import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from data_prep.config import CorpusConfig, TokenizerConfig
from data_prep.fields import rule_of
from pipeline.config.schema import Config
from pipeline.models.bert.config import BertConfig
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.tasks.config import TaskConfig
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Node
from tests.test_data_stages import write_texts

WORDS = ["the", "river", "was", "old", "and", "slow", "but", "children"]
SUITE = "name: suite\nmetric: average\ndata_dir: .\nmembers:\n  toy: {name: toy, train: train.tsv}"


def write_files(folder: Path) -> None:
    """The corpus, vectors, vocabulary and tasks that the recorded stages read."""
    draw = random.Random(0)
    sentences = [draw.choices(WORDS, k=4) for _ in range(60)]
    rows = [f"{' '.join(each)}\t{draw.randint(0, 1)}" for each in sentences]
    tagged = [f"{w}\t{'B-X' if w == 'old' else 'O'}" for each in sentences for w in (*each, "")]
    articles = []
    for number in range(40):
        context = f"river {number} was old and slow"
        answer = {"text": "old", "answer_start": context.index("old")}
        asked = {"id": str(number), "question": "was slow", "answers": [answer]}
        articles.append(
            {"title": f"t{number}", "paragraphs": [{"context": context, "qas": [asked]}]}
        )
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    write_texts(folder / "texts")
    (folder / "conf" / "task").mkdir(parents=True)
    for name, text in {
        "glove.txt": "".join(f"{word} {n} {n + 1}\n" for n, word in enumerate(WORDS)),
        "vocab.txt": "\n".join([*specials, *WORDS, *"abcdefghijklmnopqrstuvwxyz"]) + "\n",
        "train.tsv": "\n".join(["sentence\tlabel", *rows, ""]),
        "faulty.tsv": "\n".join(["sentence\tlabel", *rows, "\t1", ""]),
        "train.conll": "\n".join("" if line == "\tO" else line for line in tagged) + "\n",
        "train.json": json.dumps({"version": "1.1", "data": articles}),
        "conf/task/suite.yaml": SUITE,
    }.items():
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """All stages, run once in a process of its own; ten seconds, most of them imports."""
    folder = tmp_path_factory.mktemp("reads")
    write_files(folder)
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.stages.recorded_reads", str(folder)],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads((folder / "reads.json").read_text())
    assert {row["stage"] for row in rows} == STAGES.keys()
    return rows


def test_every_key_that_a_stage_reads_is_hashed_or_declared_execution(
    recorded: list[dict[str, Any]],
) -> None:
    """Hashed by the stage or by one before it. Defaults of later keys are not written out."""
    for row in recorded:
        unhashed = {key for key, is_default in row["result_keys"].items() if not is_default}
        unhashed -= {*row["hashed"], *row["hashed_before"]}
        assert unhashed & set(row["read"]) == set(), row


def test_no_key_is_hashed_that_is_never_read(recorded: list[dict[str, Any]]) -> None:
    hashed, read = defaultdict(set), defaultdict(set)
    for row in recorded:
        hashed[row["stage"]] |= set(row["hashed"])
        read[row["stage"]] |= set(row["read"])
    unread = {key for stage, keys in hashed.items() for key in keys - read[stage]}
    assert unread == set()


def test_given_files_are_hashed_by_their_content_alone(recorded: list[dict[str, Any]]) -> None:
    given = [row for row in recorded if any(".source=" in word for word in row["overrides"])]
    assert [(row["stage"], row["hashed"]) for row in given] == [("tokenizer", []), ("vectors", [])]


def other(value: Any, choices: tuple[str, ...]) -> Any:
    """Another value of a key's type."""
    if choices:
        different = next(each for each in choices if each != value)
        return [different] if isinstance(value, list) else different
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value, "x"]
    return {**value, "x": 1} if isinstance(value, dict) else f"{value}x"


@pytest.mark.parametrize("stage", STAGES)
def test_every_result_key_moves_the_fingerprint_and_no_execution_key_does(stage: str) -> None:
    maker = STAGES[stage]
    config = Config(model=BertConfig())
    config.examples.masking = "static"
    before = maker.keys(config)
    moved, declared = set(), set()
    for item in fields(Config):
        section = getattr(config, item.name)
        if not is_dataclass(section) or item.name not in (*maker.sections, *maker.obeyed):
            continue
        for key in fields(section):
            rule = rule_of(key)
            changed = replace(
                section, **{key.name: other(getattr(section, key.name), rule.choices)}
            )
            if rule.is_result:
                declared.add(f"{item.name}.{key.name}")
            if maker.keys(replace(config, **{item.name: changed})) != before:
                moved.add(f"{item.name}.{key.name}")
    if stage == "layers":  # the table sets these itself; see `head_config`
        fixed = ("mode", "head", "layers", "layer_decay", "keep_model", "lr", "epochs", "patience")
        declared -= {*(f"finetune.{key}" for key in fixed), "task.averaged"}
    moved.discard(f"{stage}.source")  # its files are hashed instead of the settings
    assert moved == declared


def test_a_page_is_another_page_under_another_name() -> None:
    """Its heading and its commands show the run's name."""
    report = STAGES["report"]
    one, two = (Config(name=name) for name in ("one", "two"))
    assert report.keys(one) != report.keys(two)
    assert report.keys(replace(one, runs=["a"])) == report.keys(replace(two, runs=["a"]))


def make(node: Node) -> None:
    node.output.begin(node.request)
    node.output.finish(node.request, {}, {})


def test_outputs_of_earlier_versions_keep_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A given tokenizer once hashed all settings; a random encoder, all options of its model."""
    write_files(tmp_path)
    task = TaskConfig(name="toy", data_dir=str(tmp_path), train="train.tsv")
    given = TokenizerConfig(source=str(tmp_path / "vocab.txt"), vocab_size=99)
    config = Config(
        encoder="random",
        task=task,
        tokenizer=given,
        corpus=CorpusConfig(paths=[str(tmp_path / "texts")]),
        model=BertConfig(),
    )
    store = Store(tmp_path / "store")

    graphs: list[Graph] = []

    def plan(config: Config) -> dict[str, str]:
        graphs.append(graph := Graph(store, STAGES))
        for stage in ("finetune", "layers"):
            graph.add(stage, config)
        return {node.stage: node.output.fingerprint for node in graph.nodes.values()}

    new = plan(config)
    larger = replace(config, tokenizer=replace(given, vocab_size=7, kind="bpe"))
    assert plan(larger) == new
    with monkeypatch.context() as patch:
        for stage in ("tokenizer", "finetune", "layers"):
            patch.setattr(STAGES[stage], "keys", STAGES[stage].earlier_keys)
        old = plan(config)
        for node in graphs[-1].nodes.values():
            make(node)
    assert not set(old.values()) & set(new.values())
    assert plan(config) == old
    assert plan(larger) == new
