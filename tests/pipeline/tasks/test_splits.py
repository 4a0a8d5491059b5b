"""Splits are cut by hash: no group on two sides, the same in any order, samples inside samples."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.config.compose import compose_config
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.splits import Splits, missing_files, read_splits, task_files
from pipeline.tasks.suite import members_with_data

LINES = [f"sentence number {n // 2}\t{n // 2 % 3}" for n in range(1000)]  # every text twice


def table(folder: Path, name: str, lines: list[str]) -> None:
    (folder / name).write_text("\n".join(["sentence\tlabel", *lines, ""]))


def texts(examples: list) -> set[str]:
    return {example.texts[0] for example in examples}


def cut(folder: Path, seed: int = 0, **settings) -> Splits:
    return read_splits(TaskConfig(data_dir=str(folder), train="train.tsv", **settings), seed)


def test_cuts_share_no_text_and_lose_none(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", LINES)
    splits = cut(tmp_path)
    parts = [texts(part) for part in (splits.train, splits.dev, splits.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 500
    assert 0.1 < len(parts[2]) / 500 < 0.3
    assert 0.04 < len(parts[1]) / 500 < 0.16
    assert splits.labels == ["0", "1", "2"]


def test_cuts_depend_on_neither_order_nor_seed(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", LINES)
    before = cut(tmp_path, dev_examples=20)
    assert cut(tmp_path, seed=5, dev_examples=20).dev == before.dev
    table(tmp_path, "train.tsv", random.Random(0).sample(LINES, len(LINES)))
    after = cut(tmp_path)
    assert texts(after.test) == texts(before.test)
    assert texts(after.train) == texts(before.train)


def test_smaller_samples_lie_inside_larger_and_follow_the_seed(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", LINES)
    large, small = cut(tmp_path, train_examples=200), cut(tmp_path, train_examples=50)
    assert (len(large.train), len(small.train)) == (200, 50)
    assert small.train == large.train[:50]
    assert cut(tmp_path, seed=1, train_examples=50).train != small.train
    whole = len(cut(tmp_path).train)
    assert len(cut(tmp_path, train_fraction=0.1).train) == round(0.1 * whole)


def test_files_are_taken_as_they_are(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", LINES)
    table(tmp_path, "dev.tsv", ["some\t0"])
    table(tmp_path, "test.tsv", ["other\t1", "third\t2"])
    splits = cut(tmp_path, dev="dev.tsv", test="test.tsv")
    assert (len(splits.train), len(splits.dev), len(splits.test)) == (1000, 1, 2)
    scored_on_dev = cut(tmp_path, dev="dev.tsv")
    assert scored_on_dev.test == scored_on_dev.dev


def test_pages_of_the_test_set_are_named(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", LINES)
    wanted = ["sentence number 3", "sentence number 8"]  # a table's groups are its texts
    splits = cut(tmp_path, test_documents=wanted)
    assert texts(splits.test) == set(wanted)
    assert not texts(splits.train) & set(wanted)


def grouped_task(folder: Path, reader: str, field: str | None, lacking: int = 0) -> TaskConfig:
    """300 examples of 60 patients in the form of a reader; some lack their patient."""
    patients = [str(n % 60) if n >= lacking else None for n in range(300)]
    task = TaskConfig(data_dir=str(folder), group_field=field)
    if reader == "jsonl":
        rows = [
            {"sentence": f"note {n}", "label": n % 2} | ({} if p is None else {"patient": p})
            for n, p in enumerate(patients)
        ]
        (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return replace(task, train="train.jsonl")
    if reader == "tsv":
        lines = [f"note {n}\t{n % 2}\t{p or ''}" for n, p in enumerate(patients)]
        (folder / "train.tsv").write_text("\n".join(["sentence\tlabel\tpatient", *lines, ""]))
        return replace(task, train="train.tsv")
    if reader == "conll":
        lines = ["-DOCSTART- O\n" + (f"# patient = {p}\n" if p else "") + f"note{n} O\nAnn B-PER\n"
                 for n, p in enumerate(patients)]  # fmt: skip
        (folder / "train.conll").write_text("\n".join(lines))
        return replace(task, train="train.conll", kind="tag", reader="conll", metric="entity_f1")
    articles = [
        {"title": str(n), **({"patient": p} if p and n % 3 == 0 else {}), "paragraphs": [
            {"context": f"note {n}", **({"patient": p} if p and n % 3 == 1 else {}), "qas": [
                {"id": str(n), "question": "what?", **({"patient": p} if p and n % 3 == 2 else {}),
                 "answers": [{"text": "note", "answer_start": 0}]}]}]}
        for n, p in enumerate(patients)
    ]  # fmt: skip
    (folder / "train.json").write_text(json.dumps({"data": articles}))
    return replace(task, train="train.json", kind="span", reader="squad", metric="f1")


def patient_of(example: Example) -> int:
    """The patient of an example of `grouped_task`, by its text."""
    return int("".join(filter(str.isdigit, " ".join(example.texts)))) % 60


@pytest.mark.parametrize("reader", ["jsonl", "tsv", "conll", "squad"])
def test_parts_are_cut_by_group_and_never_through_one(tmp_path: Path, reader: str) -> None:
    splits = read_splits(grouped_task(tmp_path, reader, "patient", lacking=2), seed=0)
    parts = {"train": splits.train, "dev": splits.dev, "test": splits.test}
    assert sum(map(len, parts.values())) == 300
    patients = {
        name: {patient_of(example) for example in part if example.is_grouped}
        for name, part in parts.items()
    }
    assert sum(map(len, patients.values())) == len(set.union(*patients.values())) == 60
    assert splits.groups == {name: len(each) for name, each in patients.items()} | {
        "examples_without": 2
    }
    # Without it patients are on both sides; comments of a CoNLL file are read with it alone.
    field = "document" if reader == "conll" else None
    ungrouped = read_splits(grouped_task(tmp_path, reader, field), seed=0)
    trained, tested = ({patient_of(e) for e in part} for part in (ungrouped.train, ungrouped.test))
    assert trained & tested
    assert bool(ungrouped.groups) == (field is not None)


@pytest.mark.parametrize(
    ("reader", "found"),
    [
        ("jsonl", "sentence, label, patient"),
        ("tsv", "sentence, label, patient"),
        ("conll", "document, patient"),
        ("squad", "id, question, answers, context, qas, patient"),
    ],
)
def test_a_group_field_that_no_record_has_is_refused(
    tmp_path: Path, reader: str, found: str
) -> None:
    task = grouped_task(tmp_path, reader, "patient_id")
    with pytest.raises(SesameError) as caught:
        read_splits(task, seed=0)
    said = str(caught.value)
    assert f"{task.train}: task.group_field=patient_id: no record has this field; found: " in said
    assert set(found.split(", ")) <= set(said.split("found: ")[1].split("; ")[0].split(", "))
    assert "note" not in said


def test_documents_of_a_conll_file_are_groups(tmp_path: Path) -> None:
    task = grouped_task(tmp_path, "conll", "document")
    assert sum(read_splits(task, seed=0).groups.values()) == 300


def test_given_files_that_share_a_group_are_refused(tmp_path: Path) -> None:
    task = grouped_task(tmp_path, "tsv", "patient")
    (tmp_path / "test.tsv").write_text("sentence\tlabel\tpatient\nother note\t1\t7\n")
    for given in (
        {"test": "test.tsv"},
        {"dev": "test.tsv"},
        {"further_tests": {"far": "test.tsv"}},
    ):
        with pytest.raises(SesameError, match=r"task\.group_field=patient: 1 groups are both in"):
            read_splits(replace(task, **given), seed=0)
    (tmp_path / "test.tsv").write_text("sentence\tlabel\tpatient\nother note\t1\t99\n")
    assert read_splits(replace(task, test="test.tsv"), seed=0).groups["test"] == 1
    (tmp_path / "test.tsv").write_text("sentence\tlabel\nother note\t1\n")
    with pytest.raises(SesameError, match=r"test\.tsv: task\.group_field=patient: no record has"):
        read_splits(replace(task, test="test.tsv"), seed=0)


def test_the_key_is_known_and_guesses_stay_in_its_section() -> None:
    composed = compose_config(["task=polarity", "task.group_field=patient"])
    assert composed.task.group_field == "patient"
    with pytest.raises(UsageError, match=r"did you mean task\.group_field\?"):
        compose_config(["task.groupfield=patient"])


def test_where_that_keeps_nothing_is_named(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", LINES)
    with pytest.raises(SesameError, match=r"no row has the values of task\.where=\{'label': '9'\}"):
        cut(tmp_path, where={"label": "9"})


def test_an_unknown_label_is_named_by_line_not_by_content(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", LINES)
    table(tmp_path, "dev.tsv", ["some\t0", "other\tsecret"])
    with pytest.raises(SesameError, match=r"dev\.tsv:3: .*label is not among the 3") as caught:
        cut(tmp_path, dev="dev.tsv")
    assert "secret" not in str(caught.value)
    with pytest.raises(SesameError, match=r"train\.tsv:6: .*task\.labels"):
        cut(tmp_path, labels=["0", "1"])


def test_tags_have_both_prefixes_and_types_of_the_training_file(tmp_path: Path) -> None:
    words = "Ann\tB-PER\nleft\tO\nBo\tI-LOC\n\n"
    (tmp_path / "train.conll").write_text(words * 3)
    (tmp_path / "dev.conll").write_text("Ann\tB-PER\n")
    task = TaskConfig(
        kind="tag", reader="conll", metric="entity_f1",
        data_dir=str(tmp_path), train="train.conll", dev="dev.conll",
    )  # fmt: skip
    splits = read_splits(task, seed=0)
    assert splits.labels == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert splits.repairs == {"tags": 3}
    (tmp_path / "dev.conll").write_text("Ann\tO\n\nBo\tB-ORG\n")
    with pytest.raises(SesameError, match=r"dev\.conll:3: .* not among the 5 .*task\.labels"):
        read_splits(task, seed=0)


def test_what_leaves_nothing_to_learn_is_refused(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", [f"{n}\t1" for n in range(20)])
    with pytest.raises(SesameError, match=r"task\.train=train\.tsv: all 20 examples have the same"):
        cut(tmp_path)
    with pytest.raises(SesameError, match=r"all 20 examples have the same label in column label"):
        cut(tmp_path, kind="regress", metric="pearson")
    (tmp_path / "train.tsv").write_text("Ann\tO\n\nBo\tO\n\n" * 9)
    with pytest.raises(SesameError, match=r"train\.tsv: no word has a tag other than O"):
        cut(tmp_path, kind="tag", reader="conll", metric="entity_f1")


def test_missing_files_and_settings_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"task\.train is not set"):
        task_files(TaskConfig())
    with pytest.raises(
        UsageError, match=r"task\.train is not set: name the training file of .*pos"
    ):
        task_files(TaskConfig(name="ud_pos"))
    with pytest.raises(UsageError, match=r"task\.data_dir is not set"):
        task_files(TaskConfig(train="train.tsv"))
    with pytest.raises(UsageError, match=r"there is no file train\.tsv"):
        task_files(TaskConfig(train="train.tsv", data_dir=str(tmp_path)))
    table(tmp_path, "train.tsv", [])
    with pytest.raises(SesameError, match="too few examples"):
        cut(tmp_path)


def test_groups_may_have_any_name(tmp_path: Path) -> None:
    """A file's name may have bytes that are not UTF-8, and JSON half a surrogate pair."""
    rows = [{"sentence": f"text {n}", "label": n % 2, "who": f"\ud800{n}"} for n in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = TaskConfig(data_dir=str(tmp_path), train="a.jsonl", group_field="who")
    splits = read_splits(task, seed=0)
    assert len(splits.train) + len(splits.dev) + len(splits.test) == 40


@pytest.mark.parametrize(
    ("task", "fault"),
    [
        (TaskConfig(kind="regress", metric="f1"), r"task\.metric=f1: .*pearson, spearman"),
        (TaskConfig(kind="tag", metric="entity_f1"), r"task\.reader=table: .*conll, conllu"),
        (TaskConfig(test="t.tsv", test_documents=["1"]), r"task\.test=t\.tsv"),
        (
            TaskConfig(further_tests={"x": "a.tsv"}, unlabelled={"x": "b.tsv"}),
            r"task\.further_tests and task\.unl",
        ),
        (TaskConfig(kind="span", metric="f1"), r"task\.reader=table: .*squad"),
        (
            TaskConfig(kind="tag", metric="entity_f1", reader="wiki_links", group_field="x"),
            r"task\.group_field=x: .*by page already",
        ),
        (
            TaskConfig(kind="tag", metric="entity_f1", reader="conllu"),
            r"task\.metric=entity_f1: parts of speech .*=accuracy",
        ),
        (
            TaskConfig(kind="tag", metric="entity_f1", reader="conll", labels=["O", "B-PER"]),
            r"task\.labels=\[O,B-PER\]: name types such as PER",
        ),
        (
            TaskConfig(kind="tag", metric="entity_f1", reader="conll", where={"language": "sv"}),
            r"task\.where: task\.reader=conll has no columns; unset task\.where",
        ),
        (
            TaskConfig(kind="tag", metric="entity_f1", reader="conll", word_split="punctuation"),
            r"task\.word_split=punctuation: only task\.reader=spans and brat split",
        ),
        (TaskConfig(unanswerable=True), r"task\.unanswerable=true: only task\.kind=span"),
        (
            TaskConfig(kind="multilabel", metric="micro_f1", label_separator=""),
            r"task\.label_separator: is empty; give the character between the labels",
        ),
    ],
)
def test_contradictions_are_refused(task: TaskConfig, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        task.check()


def test_files_without_labels_keep_every_row(tmp_path: Path) -> None:
    """A leaderboard finds an answer by the number of its row."""
    rows = [f"text {n}\t{n % 2}\t{'sv' if n % 3 else 'de'}" for n in range(60)]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel\tlanguage", *rows, ""]))
    new = [row.replace("text", "new") for row in rows[:6]]
    (tmp_path / "new.tsv").write_text("\n".join(["sentence\tlabel\tlanguage", *new, ""]))
    task = TaskConfig(
        data_dir=str(tmp_path), train="train.tsv", where={"language": "sv"},
        unlabelled={"answers": "new.tsv"},
    )  # fmt: skip
    splits = read_splits(task, 0)
    assert len(splits.train) + len(splits.dev) + len(splits.test) == 40
    asked = splits.unlabelled["answers"]
    assert [example.texts for example in asked] == [(f"new {n}",) for n in range(6)]


def test_a_suite_takes_members_whose_data_is_a_folder(tmp_path: Path) -> None:
    for folder in ("notes/train", "parts/data", "missing"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "train.tsv").write_text("sentence\tlabel\n")
    tags: dict[str, Any] = {"kind": "tag", "metric": "entity_f1"}
    members = {
        "notes": TaskConfig(name="notes", reader="brat", data_dir="notes", train="train", **tags),
        "parts": TaskConfig(
            name="parts", reader="conll2012", data_dir="parts", train="data", **tags
        ),
        "table": TaskConfig(name="table", data_dir="table", train="train.tsv"),
        "missing": TaskConfig(name="missing", data_dir="missing", train="train.tsv"),
    }
    suite = TaskConfig(name="both", data_dir=str(tmp_path), members=members)
    assert list(members_with_data(suite)) == ["notes", "parts", "table"]


OWN_TASK = """\
# conf/task/notes.yaml: does a clinical note speak of pain
name: notes
kind: classify
data_dir: notes
train: train.jsonl
unlabelled: {answers: new.jsonl}
text_a: note
label: pain
labels: ["no", "yes"]
metric: f1
"""


def test_a_task_of_ones_own_is_a_file_and_ten_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf" / "task").mkdir(parents=True)
    (tmp_path / "conf" / "task" / "notes.yaml").write_text(OWN_TASK)
    (tmp_path / "notes").mkdir()
    rows = [{"note": f"Note {n}.", "pain": ["no", "yes"][n % 2]} for n in range(100)]
    for name, part in (("train", rows), ("new", [{"note": "Unseen."}])):
        lines = "".join(f"{json.dumps(row)}\n" for row in part)
        (tmp_path / "notes" / f"{name}.jsonl").write_text(lines)
    monkeypatch.chdir(tmp_path)
    task = compose_config(["task=notes"]).task
    splits = read_splits(task, seed=0)
    assert len(splits.train) + len(splits.dev) + len(splits.test) == 100
    assert splits.labels == ["no", "yes"]
    assert [e.texts for e in splits.unlabelled["answers"]] == [("Unseen.",)]
    with pytest.raises(UsageError, match=r"task=note: .*notes.*did you mean notes"):
        compose_config(["task=note"])


def test_what_is_named_but_not_there_is_left_out_and_told(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", LINES)
    table(tmp_path, "far.tsv", ["some\t0"])
    task = TaskConfig(
        data_dir=str(tmp_path), train="train.tsv",
        further_tests={"far": "far.tsv", "near": "near.tsv"}, unlabelled={"answers": "new.tsv"},
    )  # fmt: skip
    splits = read_splits(task, seed=0)
    assert {name: len(examples) for name, examples in splits.further_tests.items()} == {"far": 1}
    assert splits.unlabelled == {}
    assert missing_files(task) == ["near.tsv", "new.tsv"]
    assert [name for name, _ in task_files(task)] == ["train.tsv", "far.tsv"]
    (tmp_path / "new.tsv").write_text("sentence\n")
    with pytest.raises(SesameError, match=r"new\.tsv: too few examples; the file has none"):
        read_splits(task, seed=0)


def test_xnli_is_scored_in_one_language_and_trained_in_another(tmp_path: Path) -> None:
    train = "premise\thypo\tlabel\na\tb\tcontradictory\nc\td\tneutral\n"
    (tmp_path / "multinli.train.en.tsv").write_text(train)
    rows = [f"{language}\tentailment\t{language} e\tf\n" for language in ("en", "sv")]
    for name in ("dev", "test"):
        head = "language\tgold_label\tsentence1\tsentence2\n"
        (tmp_path / f"xnli.{name}.tsv").write_text(head + "".join(rows))
    own = ["task=xnli", f"task.data_dir={tmp_path}", "task.scored_where.language=sv"]
    splits = read_splits(compose_config(own).task, 0)
    assert [example.gold for example in splits.train] == ["contradiction", "neutral"]
    assert [e.texts for e in (*splits.dev, *splits.test)] == [("sv e", "f")] * 2
    with pytest.raises(
        SesameError, match=r"xnli\.dev\.tsv: too few examples; no row has the values"
    ):
        read_splits(compose_config([*own[:2], "task.scored_where.language=xx"]).task, 0)
