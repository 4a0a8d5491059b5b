"""A form that cannot hold an answer says so; no answer is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.errors import SesameError
from pipeline.inference.forms import check_form, convert
from pipeline.tasks.brat import read_brat
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import TaskFile


def write(path: Path, answers: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    return path


def test_an_id_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    answers = [{"line": 1, "id": "a", "text": "x"}, {"line": 2, "id": "a", "text": "y"}]
    found = write(tmp_path / "o.json.jsonl", answers)
    with pytest.raises(SesameError, match=r"q\.jsonl:2: its id is the id of an earlier question"):
        convert(found, tmp_path / "o.json", Path("q.jsonl"))
    assert not (tmp_path / "o.json").exists() and found.exists()


@pytest.mark.parametrize("word", ["anna bo", "a\tb", "a\nb", "", " "])
def test_a_word_that_no_conll_file_can_hold_is_refused(word: str, tmp_path: Path) -> None:
    answers = [{"line": 7, "words": ["bo", word], "tags": ["O", "O"]}]
    found = write(tmp_path / "o.conll.jsonl", answers)
    with pytest.raises(SesameError, match=r"a\.jsonl:7: a word is empty or has a space in it"):
        convert(found, tmp_path / "o.conll", Path("a.jsonl"))


def test_the_case_of_an_ending_does_not_matter() -> None:
    check_form(Path("a.ann"), "tag", Path("A.TXT"))


@pytest.mark.parametrize(
    ("answer", "cell"),
    [
        ({"label": "entailment", "score": 0.9}, "entailment"),
        ({"value": 3.14159}, "3.142"),
        ({"label": "2", "number": 2, "text": "x"}, "2"),
        ({"labels": ["b", "a"], "scores": {}}, "b,a"),
    ],
)
def test_a_leaderboard_gets_a_row_per_example(
    answer: dict[str, Any], cell: str, tmp_path: Path
) -> None:
    found = write(tmp_path / "o.tsv.jsonl", [{"line": 2, **answer}, {"line": 3, **answer}])
    convert(found, tmp_path / "o.tsv", Path("test.tsv"))
    assert (tmp_path / "o.tsv").read_text() == f"index\tprediction\n0\t{cell}\n1\t{cell}\n"


@pytest.mark.parametrize("gap", ["\t", "\r", "\x85", "\u2028", " "])
def test_an_entity_is_one_line_of_three_cells_in_brat(gap: str, tmp_path: Path) -> None:
    text = f"x\ty anna{gap}berg\n"
    (tmp_path / "a.txt").write_bytes(text.encode())
    entity = {"type": "PER", "start": 4, "end": 13, "text": f"anna{gap}berg", "score": 1.0}
    found = write(tmp_path / "o.jsonl", [{"line": 1, "entities": [entity]}])
    convert(found, tmp_path / "a.ann", tmp_path / "a.txt")
    [line] = (tmp_path / "a.ann").read_bytes().decode().removesuffix("\n").splitlines()
    assert line.split("\t") == ["T1", "PER 4 13", "anna berg"]
    read = list(read_brat(TaskFile(tmp_path / "a.txt"), TaskConfig(kind="tag", reader="brat")))
    assert [tag for example in read for tag in example.tags if tag != "O"] == ["B-PER", "I-PER"]
