"""Tables are read as their kind has it, and every fault is named by file and line."""

import csv
import json
import math
from pathlib import Path

import pytest

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import TaskFile
from pipeline.tasks.table import read_table


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_tsv_takes_quotes_as_characters_and_drops_mark_and_line_ends(tmp_path: Path) -> None:
    content = '\ufeffsentence\tlabel\r\nA "stray quote here\t1\r\nplain\t0\r\n'
    path = write(tmp_path, "train.tsv", content)
    examples = list(read_table(TaskFile(path), TaskConfig()))
    assert [(e.texts, e.gold, e.line) for e in examples] == [
        (('A "stray quote here',), "1", 2),
        (("plain",), "0", 3),
    ]


def test_csv_cells_may_hold_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    content = 'text,label,source\n"one, ""two""\nthree",1,a\nfour,0,b\nfive,0,a\n'
    path = write(tmp_path, "t.csv", content)
    examples = list(read_table(TaskFile(path), TaskConfig(text_a="text", where={"source": "a"})))
    assert [(e.texts, e.gold, e.line) for e in examples] == [
        (('one, "two"\nthree',), "1", 2),
        (("five",), "0", 5),
    ]


def test_cells_may_be_long(tmp_path: Path) -> None:
    """csv refuses cells of more than 131,072 characters unless told otherwise."""
    before = csv.field_size_limit(131_072)  # of the process: another reader may have raised it
    try:
        path = write(tmp_path, "t.csv", f"sentence,label\n{'word ' * 40_000},1\n")
        [example] = read_table(TaskFile(path), TaskConfig())
    finally:
        csv.field_size_limit(before)
    assert len(example.texts[0]) == 199_999


def test_lines_that_end_as_on_an_old_mac_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "t.tsv", "sentence\tlabel\rsecret\t1\rmore\t0\r")
    with pytest.raises(SesameError, match=r"t\.tsv:1: .*carriage return .* convert") as caught:
        list(read_table(TaskFile(path), TaskConfig()))
    assert "secret" not in str(caught.value)


def test_jsonl_labels_may_be_numbers(tmp_path: Path) -> None:
    rows = [{"a": "x y", "b": "z", "s": 2.5}, {"a": "u", "b": "v", "s": "4"}]
    path = write(tmp_path, "t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    task = TaskConfig(kind="regress", metric="pearson", text_a="a", text_b="b", label="s")
    assert [(e.texts, e.gold) for e in read_table(TaskFile(path), task)] == [
        (("x y", "z"), 2.5),
        (("u", "v"), 4.0),
    ]


def test_columns_may_be_named_where_there_is_no_header(tmp_path: Path) -> None:
    path = write(tmp_path, "train.tsv", "gj04\t1\t\tThe sailors rode.\n")
    task = TaskConfig(columns=["source", "label", "mark", "sentence"])
    assert [(e.texts, e.gold, e.line) for e in read_table(TaskFile(path), task)] == [
        (("The sailors rode.",), "1", 1)
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.jsonl", '{"sentence": "a", "label": 1}\n\n{"sentence": "b", "label": 0}\n \n'),
        ("t.tsv", "sentence\tlabel\na\t1\n\nb\t0\n\n"),
        ("t.csv", "sentence,label\na,1\n\nb,0\n\n"),
    ],
)
def test_empty_lines_are_skipped(tmp_path: Path, name: str, content: str) -> None:
    examples = list(read_table(TaskFile(write(tmp_path, name, content)), TaskConfig()))
    assert [(e.texts[0], e.gold) for e in examples] == [("a", "1"), ("b", "0")]


def test_an_empty_line_of_one_column_is_an_empty_sentence(tmp_path: Path) -> None:
    path = write(tmp_path, "t.tsv", "sentence\na\n\nb\n")
    found = read_table(TaskFile(path, has_labels=False), TaskConfig())
    assert [e.texts[0] for e in found] == ["a", "", "b"]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"sentence": ["secret"], "label": 1}, "a list or an object where a text belongs"),
        ({"sentence": "a", "label": ["secret"]}, "a list or an object where a label belongs"),
        ({"sentence": "a", "label": {"secret": 1}}, "a list or an object where a label belongs"),
    ],
)
@pytest.mark.parametrize("kind", ["classify", "multilabel"])
def test_lists_and_objects_are_no_cells(
    tmp_path: Path, row: dict[str, object], fault: str, kind: str
) -> None:
    if kind == "multilabel" and isinstance(row["label"], list):
        row = row | {"label": [{"secret": 1}]}
    path = write(tmp_path, "t.jsonl", json.dumps(row) + "\n")
    task = TaskConfig(kind=kind, metric="micro_f1" if kind == "multilabel" else "accuracy")
    with pytest.raises(SesameError, match=rf"t\.jsonl:1: .*{fault}") as caught:
        list(read_table(TaskFile(path), task))
    assert "secret" not in str(caught.value)


def test_a_column_that_is_needed_stands_once(tmp_path: Path) -> None:
    path = write(tmp_path, "t.tsv", "sentence\tlabel\tx\tx\tlabel\na\t1\t\t\t0\n")
    with pytest.raises(SesameError, match=r"t\.tsv: 2 columns are named label"):
        list(read_table(TaskFile(path), TaskConfig()))
    assert list(read_table(TaskFile(path, has_labels=False), TaskConfig()))
    aliased = TaskConfig(aliases={"x": "sentence"})
    with pytest.raises(SesameError, match=r"t\.tsv: 3 columns are named sentence"):
        list(read_table(TaskFile(path, has_labels=False), aliased))


def test_a_missing_column_lists_those_there_are(tmp_path: Path) -> None:
    path = write(tmp_path, "t.tsv", "text\tgold\nsome\t1\n")
    with pytest.raises(SesameError, match=r"t\.tsv:2: no column sentence; .* text, gold"):
        list(read_table(TaskFile(path), TaskConfig()))


def test_a_first_line_of_text_is_not_shown_as_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "t.tsv", "gj04\tOlga met Jan.\ngj04\tAnd left.\n")
    with pytest.raises(SesameError, match=r"task\.columns") as caught:
        list(read_table(TaskFile(path), TaskConfig()))
    assert "Olga" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("t.tsv", "sentence\tlabel\nsecret\t1\textra\n", r"t\.tsv:2: 3 columns, expected 2"),
        ("t.tsv", "sentence\tlabel\n \t1\n", r"t\.tsv:2: .*sentence is empty"),
        ("t.tsv", b"sentence\tlabel\nsecret\xff\t1\n", r"t\.tsv:2: byte 6 .* not UTF-8"),
        ("t.tsv", "", r"t\.tsv: the file is empty"),
        ("t.csv", 'sentence,label\nsecret,1\n"secret,1\n', r"t\.csv:3: not a CSV row"),
        ("t.jsonl", '{"sentence": "secret", \n', r"t\.jsonl:1: not JSON at character"),
        ("t.jsonl", '["secret"]\n', r"t\.jsonl:1: each line must be one JSON object"),
        ("t.jsonl", '{"label": ' + "7" * 5000 + "}", r"t\.jsonl:1: its JSON has a number of thou"),
        ("t.jsonl", "[" * 100_000, r"t\.jsonl:1: its JSON .* is nested too deeply"),
        ("t.xml", "secret", r"must end in \.tsv, \.txt, \.csv or \.jsonl"),
    ],
)
def test_faults_name_file_and_line_but_never_the_text(
    tmp_path: Path, name: str, content: str | bytes, fault: str
) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(SesameError, match=fault) as caught:
        list(read_table(TaskFile(path), TaskConfig()))
    assert "secret" not in str(caught.value)


def test_a_label_that_is_no_number_is_refused_in_regression(tmp_path: Path) -> None:
    path = write(tmp_path, "t.tsv", "sentence\tlabel\nfine\t2\nbad\tsecret\n")
    with pytest.raises(SesameError, match=r"t\.tsv:3: .*label is not a number") as caught:
        list(read_table(TaskFile(path), TaskConfig(kind="regress", metric="pearson")))
    assert "secret" not in str(caught.value)


def test_half_a_surrogate_pair_is_replaced_and_counted(tmp_path: Path) -> None:
    file = TaskFile(write(tmp_path, "t.jsonl", '{"sentence": "a \\ud83d b", "label": "x"}\n'))
    [example] = read_table(file, TaskConfig())
    assert example.texts == ("a \ufffd b",)
    assert file.repairs == {"lone surrogates": 1}


def test_faulty_rows_are_dropped_and_counted_where_asked(tmp_path: Path) -> None:
    file = TaskFile(write(tmp_path, "t.tsv", "sentence\tlabel\nfine\t1\n \t0\ntorn\nlast\t0\n"))
    examples = list(read_table(file, TaskConfig(faulty="drop")))
    assert [(e.texts, e.line) for e in examples] == [(("fine",), 2), (("last",), 5)]
    assert file.repairs == {"dropped": 2}


def test_of_files_without_labels_every_row_is_kept(tmp_path: Path) -> None:
    """Their answers go by row number."""
    path = write(tmp_path, "t.tsv", "index\tsentence\n0\tfine\n1\t \n2\tlast\n")
    task = TaskConfig(
        faulty="drop", columns=["label", "sentence"]
    )  # which only headless files need
    examples = list(read_table(TaskFile(path, has_labels=False), task))
    assert [(e.texts, e.gold) for e in examples] == [
        (("fine",), None),
        (("",), None),
        (("last",), None),
    ]
    torn = write(tmp_path, "t.tsv", "index\tsentence\n0\tfine\n1\n")
    with pytest.raises(SesameError, match=r"t\.tsv:3: 1 columns, expected 2"):
        list(read_table(TaskFile(torn, has_labels=False), task))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"sentence": "secret"}, r"t\.jsonl:1: no column label; .*task\.unlabelled"),
        ({"sentence": "secret", "label": None}, r"t\.jsonl:1: column label has no label"),
        ({"sentence": None, "label": "1"}, r"t\.jsonl:1: .*sentence is empty; .*faulty=drop"),
        ({"sentence": "secret", "label": math.nan}, r"t\.jsonl:1: column label has no label"),
        ({"sentence": math.nan, "label": "1"}, r"t\.jsonl:1: .*sentence is empty"),
    ],
)
def test_what_is_missing_in_json_is_no_text(tmp_path: Path, row: dict, fault: str) -> None:
    path = write(tmp_path, "t.jsonl", json.dumps(row) + "\n")
    with pytest.raises(SesameError, match=fault) as caught:
        list(read_table(TaskFile(path), TaskConfig()))
    assert "secret" not in str(caught.value)


def test_a_number_must_be_finite(tmp_path: Path) -> None:
    for number in ("nan", "inf", "-1e308"):  # squares of the last overflow
        path = write(tmp_path, "t.tsv", f"sentence\tlabel\nfine\t{number}\n")
        with pytest.raises(SesameError, match=r"t\.tsv:2: .*not a number|t\.tsv:2: .*too large"):
            list(read_table(TaskFile(path), TaskConfig(kind="regress", metric="pearson")))
