"""The graph of an experiment: named instances, what encoders they mean, and swept values."""

from collections.abc import Callable
from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.commands.arguments import parse
from pipeline.commands.submit import submit
from pipeline.config.compose import compose_config
from pipeline.config.schema import InstanceConfig
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.execute import execute_all
from pipeline.workflow.graph import Graph, _points, experiment_graph, generations
from pipeline.workflow.plan import plan as rows_of
from pipeline.workflow.stage import Node
from pipeline.workflow.upgrades import refuse_to_start_anew

HEAD = "# @package _global_\ndefaults: [bert_mini, _self_]\nstages: [pretrain, export{more}]\n"
TWO = """instances:
  slow: {{stage: pretrain, set: [optim.lr=1e-4]}}
  fast: {{stage: pretrain, set: [optim.lr=1e-3]}}
  tuned: {{stage: finetune, set: [task=mentions, {set}], sweep: {sweep}}}
"""


Plan = Callable[..., Graph]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    recipes = tmp_path / "conf" / "experiment"
    recipes.mkdir(parents=True)
    (tmp_path / "corpus.txt").write_text("Some words. And more.\n")
    monkeypatch.chdir(tmp_path)

    def plan(recipe: str, more: str = "") -> Graph:
        (recipes / "own.yaml").write_text(HEAD.format(more=more) + recipe)
        words = ["experiment=own", "corpus.paths=corpus.txt"]
        config = compose_config(words)
        store = Store(tmp_path / "store")
        return experiment_graph(
            store, STAGES, config, lambda point: compose_config([*words, *point])
        )

    return plan


def of(graph: Graph, stage: str) -> dict[str, Node]:
    return {node.label: node for node in graph.nodes.values() if node.stage == stage}


def test_named_pretrainings_are_all_there_are_and_each_is_exported(plan: Plan) -> None:
    graph = plan(TWO.format(set="finetune.seed=1", sweep="{encoder: [slow, fast]}"), ", finetune")
    assert of(graph, "pretrain").keys() == of(graph, "export").keys() == {"slow", "fast"}
    for name, node in of(graph, "export").items():
        assert node.inputs["pretrain"].path == of(graph, "pretrain")[name].output.path
    assert len(of(graph, "finetune")) == 2


def test_an_encoder_that_could_be_either_pretraining_is_refused(plan: Plan) -> None:
    with pytest.raises(UsageError, match=r"encoder: .*slow, fast.*encoder=slow"):
        plan(TWO.format(set="finetune.seed=1", sweep="{}"), ", finetune")
    swept = "instances:\n  own: {stage: pretrain, sweep: {optim.lr: [0.0001, 0.001]}}\n"
    graph = plan(swept)
    assert of(graph, "pretrain").keys() == {"own, optim.lr=0.0001", "own, optim.lr=0.001"}
    assert len(of(graph, "export")) == 2
    with pytest.raises(UsageError, match="encoder=own: is a sweep of 2 pretrainings"):
        plan(
            f"{swept}  tuned: {{stage: finetune, set: [task=mentions, encoder=own]}}\n",
            ", finetune",
        )


def test_an_only_pretraining_is_meant_whatever_its_name(plan: Plan) -> None:
    graph = plan(
        "instances:\n  own: {stage: pretrain, set: [optim.lr=1e-4]}\n"
        "  last: {stage: export}\n  six: {stage: export, set: [export.checkpoint='6']}\n"
    )
    assert len(of(graph, "pretrain")) == 1
    chosen = [n.request["config"]["export"]["checkpoint"] for n in graph.nodes.values()
              if n.stage == "export"]  # fmt: skip
    assert chosen == ["last", "6"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), (10, 10), ("tfidf", "tfidf"), (True, True), ([None, "a"], [None, "a"])],
)
def test_swept_values_reach_the_configuration_as_they_are(value: object, expected: object) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    ((word,),) = _points(InstanceConfig("finetune", sweep={"encoder": [value]}))
    (parsed,) = OverridesParser.create().parse_overrides([word])
    assert parsed.value() == expected


def test_null_in_a_sweep_is_no_string() -> None:
    points = list(_points(InstanceConfig("finetune", sweep={"task.train_examples": [None, 10]})))
    configs = [compose_config(["experiment=smoke", *point]) for point in points]
    assert [config.task.train_examples for config in configs] == [None, 10]


def begin(graph: Graph) -> None:
    """Finish every output of a graph but its pretraining, which is only begun."""
    for node in graph.nodes.values():
        node.output.begin(node.request)
        if node.stage != "pretrain":
            node.output.finish(node.request, {}, {})


@pytest.mark.parametrize("age", [1, 2])
def test_a_begun_pretraining_goes_on_with_its_inputs_of_an_earlier_format(
    plan: Plan, age: int
) -> None:
    """Only the very same pretraining: another one gets data of the current format."""
    config = compose_config(["experiment=bert_mini", "corpus.paths=corpus.txt"])
    store = Store(Path("store"))
    old = Graph(store, STAGES, generations(STAGES)[age])
    old.add("pretrain", config)
    begin(old)
    again = Graph(store, STAGES)
    assert again.add("pretrain", config).output.is_begun
    assert again.nodes.keys() == old.nodes.keys()
    whole = plan("", ", shard, tokenizer, examples")
    assert whole.nodes.keys() - old.nodes.keys() == {
        node.output.reference for node in of(whole, "export").values()
    }

    other = Graph(store, STAGES)
    changed = compose_config(["experiment=bert_mini", "corpus.paths=corpus.txt", "optim.lr=0.5"])
    assert not other.add("pretrain", changed).output.is_begun
    assert not other.nodes.keys() & old.nodes.keys()

    (shard,) = of(old, "shard").values()
    shard.output.remove()
    assert not Graph(store, STAGES).add("pretrain", config).output.is_begun


def test_what_an_earlier_version_began_is_not_lost_in_silence(plan: Plan) -> None:
    """Its data have a format that nobody reads any more: it is named, and the user decides."""
    words = ["experiment=bert_mini", "corpus.paths=corpus.txt"]
    store = Store(Path("store"))
    formats = {name: stage.format for name, stage in STAGES.items()}
    old = Graph(store, STAGES, formats | {"shard": 1, "examples": 0})
    pretrain = old.add("pretrain", compose_config(words))
    begin(old)
    (pretrain.output.path / "checkpoints" / "00000700").mkdir(parents=True)

    graph = Graph(store, STAGES)
    node = graph.add("pretrain", compose_config(words))
    nodes = list(graph.nodes.values())
    (row,) = (row for row in rows_of(nodes, store) if row.node is node)
    lost = f"{pretrain.output.fingerprint[:8]} (step 700 of 20,000; format of shard 1 → 4"
    assert row.state == "new" and lost in row.note
    with pytest.raises(UsageError, match=r"began .*step 700 .* or start anew with --force"):
        execute_all(nodes)
    assert not any(each.output.is_done for each in nodes)
    refuse_to_start_anew(nodes, again=[node])
    with pytest.raises(UsageError, match=r"began .*step 700 .* or start anew with --force"):
        submit(parse(["submit", "pretrain", *words, "--dry-run"]))

    other = Graph(store, STAGES)
    other.add("pretrain", compose_config([*words, "optim.lr=0.5"]))
    refuse_to_start_anew(list(other.nodes.values()), again=[])
    assert not any(
        "earlier version" in row.note for row in rows_of(list(other.nodes.values()), store)
    )
