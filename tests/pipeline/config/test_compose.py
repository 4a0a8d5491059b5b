import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.commands.stages import experiment
from pipeline.config.compose import CONF, compose_config, group_options
from pipeline.models.registry import FAMILIES

NEEDS = {"bert_continue": ["init.source=somewhere"]}


@pytest.mark.parametrize("experiment", group_options("experiment"))
def test_every_recipe_composes(experiment: str) -> None:
    config = compose_config([f"experiment={experiment}", *NEEDS.get(experiment, [])])
    assert config.name == experiment
    assert type(config.model) is FAMILIES[config.model.kind].config
    assert config.stages


@pytest.mark.parametrize(
    "choice",
    [
        f"{path.parent.name}={path.stem}"
        for path in sorted(CONF.glob("*/*.yaml"))
        if path.parent.name != "experiment"
    ],
)
def test_every_group_option_composes(choice: str) -> None:
    """A model with its recipe, if there is one: its lengths or keys may be its own."""
    group, _, name = choice.partition("=")
    has_recipe = group == "model" and name in group_options("experiment")
    compose_config([*([f"experiment={name}"] if has_recipe else []), choice])


def test_braces_with_nothing_inside_empty_what_a_recipe_has_set() -> None:
    assert compose_config(["experiment=demo", "task=stsb"]).task.unlabelled
    given = ["corpus.where={}", "task.unlabelled={}"]
    config = compose_config(["experiment=demo", "task=stsb", *given])
    assert (config.corpus.where, config.task.unlabelled) == ({}, {})
    added = compose_config(["experiment=demo", "corpus.where={}", "corpus.where.language=sv"])
    assert added.corpus.where == {"language": "sv"}


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("trainer.global_batchsize=3", "did you mean trainer.global_batch_size?"),
        ("lr=1e-3", "did you mean optim.lr?"),
        ("+foo=1", "there is no key foo"),
        ("model=elmo_original", "Key 'attention_dropout' not in 'ElmoConfig'"),
        ("model=bert_tinny", "did you mean bert_tiny?"),
        ("trainer.devices=two", "trainer.devices: Value 'two'"),
        ("trainer.strategy=zero4", "trainer.strategy=zero4: must be one of single, ddp"),
        ("examples.mask_rate=1.5", "examples.mask_rate=1.5: must be at most 0.9"),
        ("trainer.global_batch_size=63", "fits: 62, 64"),
        ("trainer.micro_batch_size=5", "fits: 1, 2, 4, 8, 16, 32"),
        ("trainer.max_tokens=5", "two budgets contradict each other"),
        ("trainer.strategy=single", "cannot use 2 ranks"),
        ("examples.max_seq_length=1024", "more than model.max_positions=512"),
        (
            "experiment=bert_continue",
            "this recipe goes on from a model; add init.source=",
        ),
        ("model.heads=3", "must divide model.hidden=128"),
        ("pretrain.phases=[{max_seq_length: 128, share: 0.5}]", "shares add up to 0.5"),
    ],
)
def test_a_mistake_is_answered_with_key_and_remedy(override: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        compose_config(
            [*([] if override.startswith("experiment") else ["experiment=demo"]), override]
        )
    assert says in str(raised.value)
    key = override.partition("=")[0]
    assert key == "experiment" or key.lstrip("+").split(".")[-1] in str(raised.value)


def test_one_seed_is_the_default_of_both_and_each_can_differ() -> None:
    config = compose_config(["seed=7", "trainer.seed=8"])
    assert (config.examples.seed, config.trainer.seed) == (7, 8)


def test_a_single_path_needs_no_brackets_and_conditions_no_plus() -> None:
    config = compose_config(["corpus.paths=/data/a.txt", "corpus.where.lang=sv"])
    assert config.corpus.paths == ["/data/a.txt"]
    assert config.corpus.where["lang"] == "sv"


def test_the_users_conf_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "ours.yaml").write_text("defaults: [bert, _self_]\nlayers: 5\n")
    monkeypatch.chdir(tmp_path)
    config = compose_config(["model=ours"])
    assert type(config.model) is FAMILIES[config.model.kind].config
    assert config.model.layers == 5
    assert "ours" in group_options("model")


@pytest.mark.parametrize(
    "content",
    [b"name: [", b"name: \xff", b"name: \0", b"defaults: 3", b"defaults: {a: b}", b"a: 1\na: 2",
     b"name: *unknown", b"name: !!python/name:os.system"],
)  # fmt: skip
def test_a_recipe_that_cannot_be_read_is_told_in_a_sentence(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_bytes(
        b"# @package _global_\n" + content + b"\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        compose_config(["experiment=mine"])


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; from pipeline.commands.main import run; run(['pretrain', '--help']);"
        "run(['plan', 'x=1']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'wandb')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=os.environ)
    assert done.returncode == 0, done.stderr


def test_the_demo_does_not_pretrain_on_its_test_articles() -> None:
    config = compose_config(["experiment=demo", "task=mentions"])
    assert config.task.test_documents
    assert config.corpus.exclude == config.task.test_documents


@pytest.mark.parametrize(
    ("overrides", "shared"),
    [
        ([], False),
        (["experiment=demo"], True),
        (["experiment=demo", "optim.lr=1e-3"], True),
        (["corpus.paths=/mine"], False),
        (["experiment=demo", "corpus.paths=/mine"], False),
        (["runs=[mine]"], False),
        (["encoder=mine"], False),
        (["experiment=demo", "runs=[demo]"], False),  # a name says nothing about whose text it is
        (["experiment=demo", "encoder=demo"], False),
        (["experiment=demo", "encoder=random", "task=mentions"], True),
        (["experiment=demo", "init.source=mine"], False),
        (["experiment=demo", "tokenizer.source=mine"], False),
        (["experiment=demo", "task.data_dir=/mine"], False),
        (["experiment=demo", "task=mentions", "task.data_dir=/mine"], False),
        (["experiment=demo", "task=polarity", "task.dev=../../mine.csv"], False),
        (["experiment=demo", "task=glue", "task.data_dir=/mine"], False),
        (["experiment=demo", "share.text=false"], False),
        (["corpus.paths=/mine", "share.text=true"], True),
        (["experiment=bert_mini"], False),
        (["experiment=mine"], False),
        (["experiment=mine", "share.text=true"], True),
        (["experiment=said"], True),
    ],
)
def test_text_is_the_demos_own_or_the_user_has_said_so(
    overrides: list[str], shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = tmp_path / "conf" / "experiment"
    recipes.mkdir(parents=True)
    head = "# @package _global_\ndefaults: [demo, _self_]\ncorpus: {paths: [/mine]}\n"
    (recipes / "mine.yaml").write_text(head)
    (recipes / "said.yaml").write_text(f"{head}share: {{text: true}}\n")
    monkeypatch.chdir(tmp_path)
    assert compose_config(overrides).share.text == shared


def test_a_page_shares_no_text_where_one_instance_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na\t0\n")
    recipes = tmp_path / "conf" / "experiment"
    recipes.mkdir(parents=True)
    (recipes / "own.yaml").write_text(
        "# @package _global_\ndefaults: [smoke, _self_]\ninstances:\n  own:\n    stage: finetune\n"
        f"    set: [task=sst2, 'task.data_dir={tmp_path}', task.dev=null, encoder=tfidf]\n"
    )
    monkeypatch.chdir(tmp_path)
    for recipe, said, shared in (
        ("smoke", [], True), ("own", [], False), ("own", ["share.text=true"], True),
    ):  # fmt: skip
        overrides = [f"experiment={recipe}", *said]
        graph = experiment(compose_config(overrides), overrides)
        (report,) = (node for node in graph.nodes.values() if node.stage == "report")
        assert report.config.share.text == report.request["config"]["share"]["text"] == shared


def fingerprints(tmp_path: Path, *overrides: str) -> dict[str, list[str]]:
    words = [*overrides, f"paths.store={tmp_path / 'store'}", f"corpus.paths={tmp_path}"]
    (tmp_path / "corpus.txt").write_text("Some words. And more.\n")
    graph = experiment(compose_config(words), words)
    found: dict[str, list[str]] = {}
    for node in graph.nodes.values():
        found.setdefault(node.stage, []).append(node.output.fingerprint)
    return found


def test_bert_base_alone_is_bert_as_published(tmp_path: Path) -> None:
    published = fingerprints(tmp_path, "experiment=bert_base")
    assert fingerprints(tmp_path, "model=bert_base") == published
    assert fingerprints(tmp_path) == fingerprints(tmp_path, "experiment=null") == published
    large = fingerprints(tmp_path, "model=bert_large", "name=bert_large")
    assert large == fingerprints(tmp_path, "experiment=bert_large")
    config = compose_config([])
    assert (config.trainer.max_steps, config.trainer.global_batch_size) == (1_000_000, 256)
    assert (config.optim.lr, config.model.dropout, config.model.init_std) == (1e-4, 0.1, 0.02)  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["elmo_tiny", "elmo_small", "elmo_original"])
def test_another_family_without_its_recipe_is_refused_by_name(model: str) -> None:
    with pytest.raises(UsageError, match=rf"model={model}: ELMo .* add experiment={model}$"):
        compose_config([f"model={model}"])
    compose_config(["base=none", f"model={model}"])


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "bert_base"),
        (["model=bert_tiny", "optim.lr=2e-4", "corpus.paths=/x"], "bert_tiny_lr-2e-4"),
        (["trainer.threads=2", "tracking=none", "seed=3"], "bert_base_seed-3"),
        (["encoder=/models/mine@best", "task=sst2"], "mine-best_task-sst2"),
        (["tokenizer.user_symbols=[a, b]"], "bert_base_user_symbols-a-b"),
        (["name=given", "optim.lr=2e-4"], "given"),
        (["experiment=demo", "optim.lr=2e-4"], "demo"),
    ],
)
def test_a_run_without_a_name_is_named_after_what_was_set(overrides: list[str], name: str) -> None:
    assert compose_config(overrides).name == name


def test_a_name_that_is_made_up_is_short_and_its_own() -> None:
    keys = ("optim.lr", "optim.beta1", "optim.beta2", "optim.eps", "optim.clip", "optim.decay")
    names = {
        compose_config([*(f"{key}=0.1234567" for key in keys), f"optim.warmup={warmup}"]).name
        for warmup in (0.1, 0.2)
    }
    assert len(names) == 2 and all(len(name) == 60 for name in names)


@pytest.mark.parametrize("language", ["sv", "multilingual", "[sv, fi, de]"])
def test_a_model_card_names_one_language_or_several(language: str) -> None:
    given = compose_config([f"export.language={language}"]).export.language
    assert given == (["sv", "fi", "de"] if "[" in language else language)


@pytest.mark.parametrize("language", ["swedish", "[sv, swedish]", "[sv, 3]", "3"])
def test_other_languages_are_refused(language: str) -> None:
    with pytest.raises(UsageError, match=r"export\.language=.*must be a code of two or three"):
        compose_config([f"export.language={language}"])
