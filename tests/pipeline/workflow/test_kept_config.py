"""The composed config is kept for every output, without secrets."""

from pathlib import Path

import pytest
import yaml

from pipeline.config.compose import compose_config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store, kept_config_path
from pipeline.workflow.execute import execute
from pipeline.workflow.graph import Graph
from pipeline.workflow.kept_config import without_secrets
from tests.test_data_stages import SMALL, write_texts

SECRET = "sentinel-of-the-environment"


def test_the_config_of_an_output_is_kept_and_removed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path / "texts")
    graph = Graph(Store(Path("store")), STAGES)
    node = graph.add("shard", compose_config([*SMALL, "corpus.workers=1"]))
    execute(node)
    kept = kept_config_path(node.output)
    assert kept == Path("store/configs/shard") / f"{node.output.fingerprint}.yaml"
    content = yaml.safe_load(kept.read_text())
    assert content["corpus"]["workers"] == 1 and content["seed"] == 3
    assert content["corpus"]["paths"] == content["paths"]["store"] == "***"
    assert "texts" not in kept.read_text()
    node.output.remove()
    assert not kept.exists()


def test_no_value_of_the_environment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSECRET", SECRET)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [bert_tiny, _self_]\n"
        "corpus: {sources: {a: '${oc.env:MYSECRET}'}}\ntask: {data_dir: '${oc.env:MYSECRET}'}\n"
        "encoder: '${oc.env:MYSECRET}'\ninit: {source: '${oc.env:MYSECRET}'}\n"
        "tracking: {entity: '${oc.env:MYSECRET}'}\nreport: {title: '${oc.env:MYSECRET}'}\n"
    )
    monkeypatch.chdir(tmp_path)
    config = compose_config(["experiment=mine"])
    assert SECRET in str(config)
    assert SECRET not in str(without_secrets(config))
