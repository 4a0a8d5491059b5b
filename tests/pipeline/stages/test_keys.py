"""Fingerprints proved: what stages read while they run, and what they hash."""

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
from tests.pipeline.stages.conftest import Recorded
from tests.pipeline.stages.recorded_reads import write_files


def test_every_key_that_a_stage_reads_is_hashed_or_declared_execution(
    recorded: Recorded,
) -> None:
    """Hashed by the stage or by one before it. Defaults of later keys are not written out."""
    for row in recorded.rows:
        unhashed = {key for key, is_default in row["result_keys"].items() if not is_default}
        unhashed -= {*row["hashed"], *row["hashed_before"]}
        assert unhashed & set(row["read"]) == set(), row


def test_no_key_is_hashed_that_is_never_read(recorded: Recorded) -> None:
    hashed, read = defaultdict(set), defaultdict(set)
    for row in recorded.rows:
        hashed[row["stage"]] |= set(row["hashed"])
        read[row["stage"]] |= set(row["read"])
    unread = {key for stage, keys in hashed.items() for key in keys - read[stage]}
    assert unread == set()


def test_given_files_are_hashed_by_their_content_alone(recorded: Recorded) -> None:
    given = [row for row in recorded.rows if any(".source=" in word for word in row["overrides"])]
    assert [(row["stage"], row["hashed"]) for row in given] == [("tokenizer", []), ("vectors", [])]


def other(key: str, value: Any, choices: tuple[str, ...]) -> Any:
    """Another value of a key's type."""
    if key == "path":  # of a class, whose file is hashed
        return "json.JSONDecoder"
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
                section, **{key.name: other(key.name, getattr(section, key.name), rule.choices)}
            )
            if rule.is_result:
                declared.add(f"{item.name}.{key.name}")
            if maker.keys(replace(config, **{item.name: changed})) != before:
                moved.add(f"{item.name}.{key.name}")
    if stage == "layers":  # the table sets these itself; see `head_config`
        fixed = (
                "mode", "head", "head_width", "layers", "layer_decay", "lr", "head_lr", "epochs",
                "eval_every", "patience", "precision",
            )  # fmt: skip
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
