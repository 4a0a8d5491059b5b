"""GLUE: every official layout is read as it is, averaged and answered as its leaderboard does."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config
from pipeline.models.bert.config import BertConfig
from pipeline.stages.finetune import Finetune
from pipeline.stages.tuning import KEPT
from pipeline.tasks.answers import Prediction
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuned import load_finetuned
from pipeline.tasks.splits import missing_files, read_splits
from pipeline.tasks.submission import write_answers
from pipeline.tasks.suite import member_score, members_with_data, score_suite
from pipeline.tasks.summary import chosen_on_scored
from pipeline.workflow.stage import Work
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

MNLI = "index|promptID|pairID|genre|sentence1|sentence2"
QQP = "id|qid1|qid2|question1|question2|is_duplicate"
MSR = "Quality|#1 ID|#2 ID|#1 String|#2 String"
PAIRS = ["index|sentence1|sentence2", "0|A.|B.", "1|C.|D."]
# The official files in small with their quirks: stray quotes, marks, torn rows; | is a tab.
FILES = {
    "CoLA": {
        "train.tsv": ["gj04|1||One more.", 'gj04|0|*|One "more or.'],
        "test.tsv": ["index|sentence", "0|Bill left.", "1|Ann."],
    },
    "SST-2": {
        "train.tsv": ["sentence|label", 'so " fine |1', "bleak|0"],
        "test.tsv": ["index|sentence", "0|good", "1|bad"],
    },
    "MRPC": {
        "train.tsv": [f"\ufeff{MSR}", '1|7|8|He said "yes.|He did.', "0|9|10|One.|Two."],
        "test.tsv": [f"\ufeffindex|{MSR[8:]}", "0|1|2|A.|B.", "1|3|4|C.|D."],
    },
    "STS-B": {
        "train.tsv": ["index|genre|sentence1|sentence2|score", "0|x|A.|B.|5.000", "1|x|C|D|0.2"],
        "test.tsv": ["index|genre|sentence1|sentence2", "0|x|A.|B.", "1|x|C|D"],
    },
    "QQP": {
        "train.tsv": [
            QQP, "1|2|3|Why?|How?|0", "2|4|5|Who is", "it?|Who?|1", "3|6|7||Eh?|0", "4|8|9|A?|A?|1",
        ],
        "test.tsv": ["id|question1|question2", "0||B?", "1|C?|D?"],
    },
    "MNLI": {
        "train.tsv": [
            f"{MNLI}|label1|gold_label", "0|a|b|c|A.|B.|neutral|neutral",
            "1|a|b|c|A.|C.|entailment|entailment",
        ],
        "dev_matched.tsv": [f"{MNLI}|label1|label2|gold_label", "0|a|b|c|A.|B.|neutral|-|neutral"],
        "dev_mismatched.tsv": [f"{MNLI}|label1|gold_label", "0|a|b|c|A.|B.|neutral|contradiction"],
        "test_matched.tsv": [MNLI, "0|a|b|c|A.|B.", "1|a|b|c|A.|C."],
        "test_mismatched.tsv": [MNLI, "0|a|b|c|A.|B.", "1|a|b|c|A.|C."],
    },
    "diagnostic": {
        "diagnostic.tsv": PAIRS,
        "diagnostic-full.tsv": [
            "Logic|Knowledge|Domain|Premise|Hypothesis|Label", "||News|A.|B.|entailment",
        ],
    },
    "QNLI": {
        "train.tsv": [
            "index|question|sentence|label", "0|Who?|Bo.|entailment", "1|Who?|So.|not_entailment",
        ],
        "test.tsv": ["index|question|sentence", "0|Who?|Bo.", "1|Who?|So."],
    },
    "RTE": {
        "train.tsv": [
            "index|sentence1|sentence2|label", "0|A.|B.|not_entailment", "1|C.|D.|entailment",
        ],
        "test.tsv": PAIRS,
    },
    "WNLI": {
        "train.tsv": ["index|sentence1|sentence2|label", "0|A.|B.|1", "1|C.|D.|0"],
        "test.tsv": PAIRS,
    },
}  # fmt: skip
EXPECTED = {  # the first training example, and how many there are
    "cola": (("One more.",), "1", 2),
    "sst2": (('so " fine',), "1", 2),
    "mrpc": (('He said "yes.', "He did."), "1", 2),
    "stsb": (("A.", "B."), 5.0, 2),
    "qqp": (("Why?", "How?"), "0", 2),
    "mnli": (("A.", "B."), "neutral", 2),
    "qnli": (("Who?", "Bo."), "entailment", 2),
    "rte": (("A.", "B."), "not_entailment", 2),
    "wnli": (("A.", "B."), "1", 2),
}


def tabbed(lines: list[str]) -> str:
    return "\n".join([*lines, ""]).replace("|", "\t")


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of folders, as GLUE's own script leaves it."""
    root = tmp_path_factory.mktemp("glue")
    for folder, files in FILES.items():
        (root / folder).mkdir()
        for name, lines in files.items():
            (root / folder / name).write_text(tabbed(lines))
        if folder not in ("MNLI", "diagnostic"):
            (root / folder / "dev.tsv").write_text(tabbed(files["train.tsv"]))
    return root


@pytest.fixture(scope="module")
def suite(glue: Path) -> TaskConfig:
    return compose_config(["experiment=demo", "task=glue", f"task.data_dir={glue}"]).task


@pytest.mark.parametrize("name", EXPECTED)
def test_official_layouts_are_read_as_they_are(suite: TaskConfig, name: str) -> None:
    task = members_with_data(suite)[name]
    splits = read_splits(task, seed=0)
    texts, gold, count = EXPECTED[name]
    assert (splits.train[0].texts, splits.train[0].gold, len(splits.train)) == (texts, gold, count)
    assert splits.test == splits.dev
    assert missing_files(task) == []
    assert splits.unlabelled
    for examples in splits.unlabelled.values():
        assert [example.gold for example in examples] == [None, None]
    # Torn in two, QQP's second row is two faulty ones; its third lacks a question. So in dev.
    assert splits.repairs == ({"dropped": 6} if name == "qqp" else {})


def test_each_task_alone_is_what_the_suite_has(suite: TaskConfig) -> None:
    for name in ("stsb", "mnli"):
        alone = compose_config(["experiment=demo", f"task={name}"]).task
        assert replace(alone, data_dir=suite.members[name].data_dir) == suite.members[name]


def test_matched_and_mismatched_are_apart(suite: TaskConfig) -> None:
    splits = read_splits(members_with_data(suite)["mnli"], seed=0)
    assert {
        name: [e.gold for e in examples] for name, examples in splits.further_tests.items()
    } == {
        "mismatched": ["contradiction"],
        "diagnostic": ["entailment"],
    }
    assert list(splits.unlabelled) == ["MNLI-m", "MNLI-mm", "AX"]


def test_microsofts_own_files_serve_too(glue: Path, tmp_path: Path) -> None:
    rows = [f"{n % 2}|1|2|Sentence {n}.|Other {n}.\r" for n in range(40)]
    for name in ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt"):
        (tmp_path / name).write_text(tabbed([f"\ufeff{MSR}\r", *rows]))
    task = compose_config(
        [
            "experiment=demo", "task=mrpc", f"task.data_dir={tmp_path}", "task.dev=null",
            "task.train=msr_paraphrase_train.txt", "task.test=msr_paraphrase_test.txt",
        ]
    ).task  # fmt: skip
    splits = read_splits(task, seed=0)
    assert len(splits.test) == 40
    assert len(splits.train) + len(splits.dev) == 40
    assert missing_files(task) == ["test.tsv"]
    assert splits.unlabelled == {}


def test_a_file_without_labels_is_not_scored(suite: TaskConfig, glue: Path) -> None:
    task = compose_config(
        ["experiment=demo", "task=sst2", f"task.data_dir={glue / 'SST-2'}", "task.test=test.tsv"]
    ).task
    with pytest.raises(SesameError, match=r"test\.tsv:2: no column label; .*task\.unlabelled"):
        read_splits(task, seed=0)


def test_limits_of_the_suite_hold_for_each_task(glue: Path) -> None:
    task = compose_config(
        ["experiment=demo", "task=glue", f"task.data_dir={glue}", "task.train_examples=1"]
    ).task
    limits = [member.train_examples for member in members_with_data(task).values()]
    assert limits == [1] * len(EXPECTED)


def test_tasks_without_data_are_left_out(suite: TaskConfig, glue: Path, tmp_path: Path) -> None:
    (tmp_path / "RTE").symlink_to(glue / "RTE")
    config = compose_config(["experiment=demo", "task=glue", f"task.data_dir={tmp_path}"])
    assert list(members_with_data(config.task)) == ["rte"]
    requests = Finetune().inputs(config)
    assert list(requests) == ["rte"]
    assert requests["rte"].config.task.data_dir == str(tmp_path / "RTE")
    assert Finetune().files(config).named == []
    with pytest.raises(UsageError, match=r"task\.data_dir=.*none of CoLA/train\.tsv, SST-2"):
        members_with_data(compose_config(["task=glue", f"task.data_dir={tmp_path / 'RTE'}"]).task)
    with pytest.raises(UsageError, match=r"task\.data_dir is not set: .* CoLA, SST-2"):
        members_with_data(compose_config(["task=glue"]).task)


def test_a_task_of_a_suite_may_have_its_own_settings(glue: Path) -> None:
    plain = ["experiment=demo", "task=glue", f"task.data_dir={glue}", "finetune.epochs=3"]
    own = ["task.members.rte.finetune.epochs=10", "task.members.rte.finetune.lr=1e-4"]
    before = Finetune().inputs(compose_config(plain))
    after = Finetune().inputs(compose_config([*plain, *own]))
    assert (after["rte"].config.finetune.epochs, after["rte"].config.finetune.lr) == (10, 1e-4)
    for name, request in after.items():  # the others keep their fingerprints
        is_same = Finetune().keys(request.config) == Finetune().keys(before[name].config)
        assert is_same == (name != "rte")
    alone = ["experiment=demo", "task=rte", f"task.data_dir={glue}/RTE"]
    config = compose_config([*alone, "finetune.epochs=10", "finetune.lr=1e-4"])
    assert Finetune().keys(config) == Finetune().keys(after["rte"].config), "as the task alone"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epoch=2", r"finetune\.epoch: a member of a suite has no such setting"),
        ("seed=2", r"finetune\.seed: a member of a suite has no such setting"),
        ("epochs=0", r"finetune\.epochs=0: must be at least 1"),
        ("lr=fast", r"finetune\.lr: must be of type float"),
    ],
)
def test_settings_of_a_member_are_checked(setting: str, message: str) -> None:
    with pytest.raises(UsageError, match=rf"task\.members\.rte\.{message}"):
        compose_config(["task=glue", f"task.members.rte.finetune.{setting}"])
    with pytest.raises(UsageError, match=r"task\.finetune: only members of a suite have it"):
        compose_config(["task=rte", "task.finetune.epochs=2"])


def test_the_grid_of_bert_is_that_of_its_appendix() -> None:
    [instance] = compose_config(["experiment=glue_bert"]).instances.values()
    assert instance.sweep == {
        "finetune.batch_size": [16, 32],
        "finetune.lr": [5e-5, 3e-5, 2e-5],
        "finetune.epochs": [2, 3, 4],
    }


def test_the_protocol_of_cramming_is_that_of_its_authors() -> None:
    """Their cramming/config/eval/GLUE_sane.yaml and optim/adam.yaml."""
    config = compose_config(["experiment=glue_crammed"])
    [instance] = config.instances.values()
    assert instance.sweep == {"finetune.seed": [1, 2, 3, 4, 5]}
    own = config.finetune
    assert (own.lr, own.batch_size, own.epochs, own.schedule) == (4e-5, 16, 5, "cosine")
    assert (own.warmup, own.clip, own.weight_decay, own.max_seq_length) == (0.1, 0.0, 0.0, 128)
    assert own.pooling == "pooler"


def test_contradicting_suites_are_refused() -> None:
    with pytest.raises(UsageError, match=r"task\.metric=f1: a suite \(task\.members\)"):
        compose_config(["task=glue", "task.metric=f1"])
    with pytest.raises(UsageError, match=r"task\.metric=average"):
        compose_config(["task=sst2", "task.metric=average"])
    with pytest.raises(UsageError, match=r"task\.members\.cola\.metrik: a task has no such key"):
        compose_config(["task=glue", "task.members.cola.metrik=f1"])
    with pytest.raises(UsageError, match=r"task\.members\.cola\.faulty=keep: must be one of"):
        compose_config(["task=glue", "task.members.cola.faulty=keep"])
    with pytest.raises(UsageError, match=r"task\.averaged: no score pearson; use accuracy, acc"):
        compose_config(["task=mnli", "task.averaged=[pearson]"])


SCORES = {
    "cola": {"matthews": 0.6, "accuracy": 0.1},
    "mrpc": {"accuracy": 0.8, "f1": 0.9},
    "stsb": {"pearson": 0.7, "spearman": 0.5},
    "mnli": {"accuracy": 0.8, "accuracy_mismatched": 0.6, "matthews_diagnostic": 0.2},
}


def outputs(folder: Path) -> dict[str, Path]:
    """Finished members, with answers to one file each."""
    made = {}
    for name, scores in SCORES.items():
        counts = ("train_examples", "dev_examples", "test_examples", "steps", "cut_inputs")
        made[name] = folder / name
        made[name].mkdir()
        content = {"scores": scores, "dev_score": 0.1 * len(made), "split": "dev"}
        content |= dict.fromkeys(counts, 3)
        (made[name] / "scores.json").write_text(json.dumps(content))
        guesses = [Prediction("1", 0.9), Prediction("0", 0.8)]
        examples = [Example(("x",), None, "", line) for line in (2, 3)]
        write_answers(made[name] / "answers", name.upper(), "classify", examples, guesses)
    return made


def test_the_average_is_the_leaderboards(suite: TaskConfig, tmp_path: Path) -> None:
    """A task's own scores first, then tasks; the diagnostic set does not count."""
    scores = score_suite(suite, outputs(tmp_path), tmp_path)
    assert scores["score"] == pytest.approx((0.6 + 0.85 + 0.6 + 0.7) / 4)
    assert scores["scores"]["mrpc"] == pytest.approx(0.85)
    assert member_score(suite.members["mnli"], {"accuracy": 0.8}) == 0.8  # no mismatched file
    assert scores["left_out"] == ["sst2", "qqp", "qnli", "rte", "wnli"]
    assert scores["train_examples"] == 12
    assert scores["dev_score"] == pytest.approx(0.25) and scores["split"] == "dev"
    assert scores["answers_missing"] == sorted(
        ["CoLA", "SST-2", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "AX", "QNLI", "RTE", "WNLI"]
    )


@pytest.mark.parametrize(
    ("splits", "chosen", "expected"),
    [
        (["dev", "dev", "dev", "dev"], [False, False, False, False], False),  # one evaluation each
        (["dev", "test", "dev", "test"], [True, False, False, False], True),  # of several splits
        (["test", "test", "test", "test"], [False, False, False, False], False),
    ],
)
def test_a_suite_is_too_high_if_any_of_its_tasks_is(
    splits: list[str], chosen: list[bool], expected: bool, suite: TaskConfig, tmp_path: Path
) -> None:
    """A suite was called too high if all its tasks were scored on dev, whatever was chosen there,
    and never if some were scored on test."""
    made = outputs(tmp_path)
    for path, split, is_chosen in zip(made.values(), splits, chosen, strict=True):
        content = json.loads((path / "scores.json").read_text())
        content |= {"split": split, "chosen_on_scored": is_chosen}
        (path / "scores.json").write_text(json.dumps(content))
    assert chosen_on_scored(score_suite(suite, made, tmp_path)) is expected


def test_the_stage_zips_answers_to_the_same_bytes(suite: TaskConfig, tmp_path: Path) -> None:
    made = outputs(tmp_path)
    config = compose_config(["experiment=demo", "task=glue", "encoder=random", "finetune.seed=4"])
    zips = []
    for name in ("one", "other"):
        out = tmp_path / name
        out.mkdir()
        counts = Finetune().run(Work(config, made, out, "0" * 16))
        assert json.loads((out / "scores.json").read_text()) == counts
        assert (counts["encoder"], counts["seed"], counts["metric"]) == ("random", 4, "average")
        zips.append((out / "submission.zip").read_bytes())
    assert zips[0] == zips[1]
    with zipfile.ZipFile(tmp_path / "one" / "submission.zip") as archive:
        assert archive.namelist() == ["COLA.tsv", "MNLI.tsv", "MRPC.tsv", "STSB.tsv"]
        assert archive.read("COLA.tsv") == b"index\tprediction\n0\t1\n1\t0\n"


def test_answers_have_the_form_of_their_kind(tmp_path: Path) -> None:
    numbers = [Prediction(2.34567, None), Prediction(5.0, None)]
    tagged = [Prediction(("B-X", "O"), 0.5), Prediction(("O",), 0.5)]
    words = [Example(("a", "b"), None, "", 1), Example(("c",), None, "", 4)]
    write_answers(tmp_path, "STS-B", "regress", words, numbers)
    write_answers(tmp_path, "names", "tag", words, tagged)
    assert (tmp_path / "STS-B.tsv").read_text() == "index\tprediction\n0\t2.346\n1\t5.000\n"
    assert (tmp_path / "names.conll").read_text() == "a\tB-X\nb\tO\n\nc\tO\n"


# What gluebenchmark.com accepts: these files, and in each an index from 0 and these answers.
NLI = {"entailment", "neutral", "contradiction"}
OFFICIAL: dict[str, set[str] | None] = {
    "AX.tsv": NLI, "CoLA.tsv": {"0", "1"}, "MNLI-m.tsv": NLI, "MNLI-mm.tsv": NLI,
    "MRPC.tsv": {"0", "1"}, "QNLI.tsv": {"entailment", "not_entailment"}, "QQP.tsv": {"0", "1"},
    "RTE.tsv": {"entailment", "not_entailment"}, "SST-2.tsv": {"0", "1"}, "STS-B.tsv": None,
    "WNLI.tsv": {"0", "1"},
}  # fmt: skip


def test_fine_tunings_of_all_tasks_become_the_official_zip(
    suite: TaskConfig, glue: Path, tmp_path: Path
) -> None:
    """From GLUE's files through nine real fine-tunings of a tiny model to its leaderboard's zip."""
    (tmp_path / "tokenizer").mkdir()
    tokenizer = write_toy_tokenizer(tmp_path / "tokenizer", ["good", "bad", "a", "b", "."])
    config = Config(
        encoder="random", keep=True, task=suite,
        model=BertConfig(layers=1, hidden=16, heads=2, intermediate=32, max_positions=128),
        finetune=FinetuneConfig(epochs=1, accelerator="cpu"),
    )  # fmt: skip
    outs = {name: tmp_path / name for name in members_with_data(suite)}
    for name, member in members_with_data(suite).items():
        outs[name].mkdir()
        own = replace(config, task=member)
        Finetune().run(Work(own, {"tokenizer": tokenizer}, outs[name], "0" * 16))
    (tmp_path / "suite").mkdir()
    scores = Finetune().run(Work(config, outs, tmp_path / "suite", "0" * 16))
    assert (scores["left_out"], scores["answers_missing"]) == ([], [])
    with zipfile.ZipFile(tmp_path / "suite" / "submission.zip") as archive:
        files = {name: archive.read(name).decode().splitlines() for name in archive.namelist()}
    assert sorted(files) == sorted(OFFICIAL)
    for name, allowed in OFFICIAL.items():
        heading, *rows = (line.split("\t") for line in files[name])
        assert heading == ["index", "prediction"]
        assert [row[0] for row in rows] == ["0", "1"], name  # a row per line of the test file
        for _, answer in rows:
            assert 0 <= float(answer) <= 5 if allowed is None else answer in allowed, name

    kept = load_finetuned(outs["sst2"] / KEPT)  # the answers are those of the trained model
    examples = read_splits(suite.member_tasks()["sst2"], 0).unlabelled["SST-2"]
    answers = [str(guess.answer) for guess in kept.predict(examples)]
    assert [row.split("\t")[1] for row in files["SST-2.tsv"][1:]] == answers
