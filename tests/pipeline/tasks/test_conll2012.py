"""OntoNotes in CoNLL-2012's form: names in brackets, parts and documents."""

from dataclasses import replace
from pathlib import Path

import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.conll2012 import read_conll2012
from pipeline.tasks.examples import Example, TaskFile
from pipeline.tasks.splits import read_splits, task_files

TASK = TaskConfig(name="onto", kind="tag", reader="conll2012", metric="entity_f1")
ONE = (("Anna", "(PERSON*"), ("Ek", "*)"), ("left", "*"), ("Lund", "(GPE)"), (".", "*"))
TWO = (("The", "(WORK_OF_ART*"), ("Old", "*"), ("Man", "*)"), ("(NORP)", "(NORP)"))


def sentence(*rows: tuple[str, str]) -> str:
    """Return a sentence with one predicate: thirteen columns."""
    lines = [
        f"bc/x/00/x_0001   0   {n}   {word}   NN   (TOP*   -   -   -   Ann#1   {name}   *   (3)\n"
        for n, (word, name) in enumerate(rows)
    ]
    return "".join(lines) + "\n"


def part(document: str, number: int, *sentences: str) -> str:
    begin = f"#begin document ({document}); part {number:03d}\n"
    return begin + "".join(sentences) + "#end document\n"


def read(path: Path, text: str, task: TaskConfig = TASK) -> tuple[list[Example], TaskFile]:
    path.write_text(text)
    file = TaskFile(path)
    return list(read_conll2012(file, task)), file


FIRST = part("bc/x/00/x_0001", 0, sentence(*ONE), sentence(*TWO)) + part(
    "bc/x/00/x_0001", 1, sentence(*ONE)
)


def test_names_in_brackets_become_tags(tmp_path: Path) -> None:
    (one, two, three), file = read(tmp_path / "x.v4_gold_conll", FIRST)
    assert one.texts == ("Anna", "Ek", "left", "Lund", ".")
    assert one.gold == ("B-PERSON", "I-PERSON", "O", "B-GPE", "O")
    assert two.gold == ("B-WORK_OF_ART", "I-WORK_OF_ART", "I-WORK_OF_ART", "B-NORP")
    assert [each.line for each in (one, two, three)] == [2, 8, 15]
    assert {each.group for each in (one, two, three)} == {"bc/x/00/x_0001"}
    assert not file.repairs


def test_the_sentences_of_a_part_are_each_others_context(tmp_path: Path) -> None:
    task = replace(TASK, context="document")
    task.check()
    (one, two, three), _ = read(tmp_path / "x.v4_gold_conll", FIRST, task)
    assert one.document is two.document is not three.document
    assert one.document is not None and one.document.starts == (0, 5)
    assert [each.sentence for each in (one, two, three)] == [0, 1, 0]


def test_documents_without_names_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.v4_gold_conll"
    found, file = read(path, part("pt/nt/40/nt_4001", 0, sentence(("Jesus", "*"))) + FIRST)
    assert len(found) == 3 and file.repairs == {"parts without names": 1}
    unlabelled = list(read_conll2012(TaskFile(path, has_labels=False), TASK))
    assert len(unlabelled) == 4 and unlabelled[0].gold is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (part("bc/x", 0, sentence(("Anna", "(PERSON*"), ("Ek", "*"))), ":3: column 11"),
        (part("bc/x", 0, sentence(("Anna", "(ORG*"), ("Ek", "(GPE)"))), ":3: column 11"),
        (part("bc/x", 0, sentence(("Anna", "*)"))), ":2: column 11"),
        (part("bc/x", 0, sentence(("Anna", "-"))), ":2: column 11"),
        (sentence(*ONE), ":1: no document"),
        (part("bc/x", 0, "Anna B-PER\n"), ":2: 2 columns, expected 12 or more"),
    ],
)
def test_faults_are_named_by_line(text: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(SesameError, match=rf"x\.v4_gold_conll{fault}") as refused:
        read(tmp_path / "x.v4_gold_conll", text)
    assert "Anna" not in str(refused.value)


def test_folders_are_read_file_by_file_and_split_by_document(tmp_path: Path) -> None:
    for number in range(30):
        folder = tmp_path / "train" / f"{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"bc/x/00/x_{number:04d}"
        parts = part(name, 0, sentence(*ONE)) + part(name, 1, sentence(*TWO))
        (folder / f"{number:04d}.v4_gold_conll").write_text(parts)
        (folder / f"{number:04d}.v4_auto_conll").write_text("other columns")
    task = replace(TASK, data_dir=str(tmp_path), train="train")
    assert task_files(task)[0][0] == "train/train/0/0000.v4_gold_conll"
    splits = read_splits(task, 0)
    parts_of = [{e.group for e in each} for each in (splits.train, splits.dev, splits.test)]
    assert sum(map(len, parts_of)) == len(set.union(*parts_of)) == 30
    assert splits.labels[:3] == ["O", "B-GPE", "I-GPE"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"the folder empty has no files of task\.reader=conll"):
        task_files(replace(task, train="empty"))
    with pytest.raises(UsageError, match="groups its examples by document already"):
        replace(task, group_field="x").check()
