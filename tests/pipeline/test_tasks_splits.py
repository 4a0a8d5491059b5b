"""Splits are cut by hash: no group on two sides, the same in any order, samples inside samples."""

import json
import random
from pathlib import Path

import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.compose import compose_config
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.splits import Splits, missing_files, read_splits, task_files

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


def test_an_unknown_label_is_named_by_line_not_by_content(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", LINES)
    table(tmp_path, "dev.tsv", ["some\t0", "other\tsecret"])
    with pytest.raises(SesameError, match=r"dev\.tsv:3: a label that is not among the 3") as caught:
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
    with pytest.raises(SesameError, match=r"dev\.conll:3: a label that is not among the 5"):
        read_splits(task, seed=0)


def test_missing_files_and_settings_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"task\.train is not set"):
        task_files(TaskConfig())
    with pytest.raises(UsageError, match=r"task\.data_dir is not set"):
        task_files(TaskConfig(train="train.tsv"))
    with pytest.raises(UsageError, match=r"there is no file train\.tsv"):
        task_files(TaskConfig(train="train.tsv", data_dir=str(tmp_path)))
    table(tmp_path, "train.tsv", [])
    with pytest.raises(SesameError, match="too few examples"):
        cut(tmp_path)


@pytest.mark.parametrize(
    ("task", "fault"),
    [
        (TaskConfig(kind="regress", metric="f1"), r"task\.metric=f1: .*pearson, spearman"),
        (TaskConfig(kind="tag", metric="entity_f1"), r"task\.reader=table: .*conll, wiki_links"),
        (TaskConfig(test="t.tsv", test_documents=["1"]), r"task\.test=t\.tsv"),
        (TaskConfig(also={"x": "a.tsv"}, unlabelled={"x": "b.tsv"}), r"task\.also and task\.unl"),
        (TaskConfig(kind="span", metric="f1"), r"task\.reader=table: .*squad"),
        (TaskConfig(unanswerable=True), r"task\.unanswerable=true: only task\.kind=span"),
    ],
)
def test_contradictions_are_refused(task: TaskConfig, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        task.check()


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
        also={"far": "far.tsv", "near": "near.tsv"}, unlabelled={"answers": "new.tsv"},
    )  # fmt: skip
    splits = read_splits(task, seed=0)
    assert {name: len(examples) for name, examples in splits.also.items()} == {"far": 1}
    assert splits.unlabelled == {}
    assert missing_files(task) == ["near.tsv", "new.tsv"]
    assert [name for name, _ in task_files(task)] == ["train.tsv", "far.tsv"]
    (tmp_path / "new.tsv").write_text("sentence\n")
    with pytest.raises(SesameError, match=r"new\.tsv: too few examples; the file has none"):
        read_splits(task, seed=0)
