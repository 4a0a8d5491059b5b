"""Tags from marked spans: JSON lines and brat's files, with their faults."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.tasks.brat import read_brat
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile
from pipeline.tasks.splits import read_splits, task_files
from pipeline.tasks.text_spans import read_spans

TASK = TaskConfig(name="toy", kind="tag", reader="spans", metric="entity_f1")
TEXT = "Dr. Anna (Lund) met Bo."


def span(part: str, label: str = "PER") -> dict[str, Any]:
    start = TEXT.index(part)
    return {"start": start, "end": start + len(part), "label": label}


def read(folder: Path, spans: Any, faulty: str = "refuse") -> tuple[Example, TaskFile]:
    path = folder / "a.jsonl"
    path.write_text(json.dumps({"text": TEXT, "spans": spans}) + "\n")
    file = TaskFile(path)
    [example] = read_spans(file, replace(TASK, faulty=faulty))
    return example, file


def test_spans_become_tags_of_the_texts_words(tmp_path: Path) -> None:
    example, file = read(tmp_path, [span("Lund", "LOC"), span("Dr. Anna"), span("Bo")])
    assert example.texts == ("Dr", ".", "Anna", "(", "Lund", ")", "met", "Bo", ".")
    assert example.gold == ("B-PER", "I-PER", "I-PER", "O", "B-LOC", "O", "O", "B-PER", "O")
    assert example.document is not None and example.document.words.text == TEXT
    assert not file.repairs
    assert set(read(tmp_path, [])[0].gold or ()) == {"O"}


def test_names_of_users_are_whole_words_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    spans = [{"start": 8, "end": 12, "label": "LOC"}]
    path.write_text(json.dumps({"text": "@anna: #Lund", "spans": spans}) + "\n")
    with pytest.raises(SesameError, match="begins or ends inside a word"):
        list(read_spans(TaskFile(path), TASK))
    [cut] = read_spans(TaskFile(path), replace(TASK, word_split="punctuation"))
    assert cut.texts == ("@", "anna", ":", "#", "Lund") and cut.gold is not None
    assert cut.gold[-1] == "B-LOC"
    [widened] = read_spans(TaskFile(path), replace(TASK, faulty="drop"))
    assert (widened.texts, widened.gold) == (("@anna", ":", "#Lund"), ("O", "O", "B-LOC"))


@pytest.mark.parametrize(
    ("spans", "fault", "repair", "tags"),
    [
        ([span("nn")], "begins or ends inside a word", "widened", {2: "B-PER"}),
        ([span("Dr. Anna"), span("Anna", "LOC")], "overlaps another one", "left out",
         {0: "B-PER", 1: "I-PER", 2: "I-PER"}),
        ([{"start": 8, "end": 9, "label": "X"}], "has no word", "left out", {}),
        ([{"start": 5, "end": 5, "label": "X"}], "has no word", "left out", {}),
        ([{"start": 20, "end": 99, "label": "X"}], "runs past the end", "cut",
         {7: "B-X", 8: "I-X"}),
    ],
)  # fmt: skip
def test_faulty_spans_are_refused_or_repaired_and_counted(
    spans: Any, fault: str, repair: str, tags: dict[int, str], tmp_path: Path
) -> None:
    with pytest.raises(SesameError, match=rf"a\.jsonl:1, span \d: the span .* {fault}") as refused:
        read(tmp_path, spans)
    assert "Anna" not in str(refused.value)
    example, file = read(tmp_path, spans, "drop")
    assert file.repairs == {f"spans {repair}": 1}
    assert example.gold == tuple(tags.get(place, "O") for place in range(9))


SWAPPED = [{"start": 4, "end": -1, "label": "X"}]


@pytest.mark.parametrize(
    "spans", [None, "x", [3], [{"start": 0, "end": 4}], [{"start": "0"}], SWAPPED]
)
def test_a_line_without_spans_is_named(spans: Any, tmp_path: Path) -> None:
    with pytest.raises(SesameError, match=r"a\.jsonl:1: its key spans must have a list"):
        read(tmp_path, spans)


def test_a_span_with_spaces_around_it_is_its_words(tmp_path: Path) -> None:
    example, file = read(tmp_path, [{"start": 3, "end": 9, "label": "PER"}])  # " Anna "
    assert example.gold is not None and example.gold[2] == "B-PER" and not file.repairs


def test_half_a_surrogate_pair_in_a_label_is_replaced_and_counted(tmp_path: Path) -> None:
    example, file = read(tmp_path, [{"start": 4, "end": 8, "label": "P\ud800"}])
    assert example.gold is not None and "B-P\ufffd" in example.gold
    assert file.repairs == {"lone surrogates": 1}


BRAT = TASK.__class__(name="toy", kind="tag", reader="brat", metric="entity_f1")
NOTE = "Anna came.\r\n\r\nShe saw Bo in Lund.\nOK"


def write_brat(folder: Path, name: str, annotations: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.txt").write_bytes(NOTE.encode())
    (folder / f"{name}.ann").write_text("".join(line + "\n" for line in annotations))


def annotation(part: str, kind: str) -> str:
    start = NOTE.index(part)
    return f"T1\t{kind} {start} {start + len(part)}\t{part}"


def test_lines_of_a_brat_file_are_sentences(tmp_path: Path) -> None:
    others = ["R1\tMet Arg1:T1 Arg2:T2", "#1\tAnnotatorNotes T1\tsure?"]
    write_brat(tmp_path, "a", [annotation("Anna", "PER"), annotation("Lund", "LOC"), *others])
    one, two, three = read_brat(TaskFile(tmp_path / "a.txt"), BRAT)
    assert (one.texts, one.gold) == (("Anna", "came", "."), ("B-PER", "O", "O"))
    assert two.gold == ("O", "O", "O", "O", "B-LOC", "O")
    assert [each.line for each in (one, two, three)] == [1, 3, 4]
    assert two.document is not None and two.document.words.text == "She saw Bo in Lund."
    context = list(read_brat(TaskFile(tmp_path / "a.txt"), replace(BRAT, context="document")))
    assert [each.texts for each in context] == [each.texts for each in (one, two, three)]
    document = context[1].document
    assert document is not None and document.starts == (0, 3, 9)
    assert len(document.words.text) == len(NOTE)


def test_a_byte_order_mark_counts_as_a_character_and_is_no_part_of_a_word(tmp_path: Path) -> None:
    """brat counts it, so the offsets of annotations do."""
    (tmp_path / "a.txt").write_text("\ufeffAnna came.")
    (tmp_path / "a.ann").write_text("T1\tPER 1 5\tAnna\n")
    [example] = read_brat(TaskFile(tmp_path / "a.txt"), BRAT)
    assert (example.texts, example.gold) == (("Anna", "came", "."), ("B-PER", "O", "O"))


def test_a_folder_is_read_file_by_file_and_split_by_file(tmp_path: Path) -> None:
    for number in range(30):
        write_brat(tmp_path / "train", f"{number:02d}", [annotation("Bo", "PER")])
    task = replace(BRAT, data_dir=str(tmp_path), train="train")
    names = [name for name, _ in task_files(task)]
    assert len(names) == 60 and names[:2] == ["train/train/00.txt", "train/train/00.ann"]
    splits = read_splits(task, 0)
    parts = [{e.group for e in part} for part in (splits.train, splits.dev, splits.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 30
    assert len(splits.train) == 3 * len(parts[0])
    assert splits.labels == ["O", "B-PER", "I-PER"]
    with pytest.raises(UsageError, match="groups its examples by file already"):
        replace(task, group_field="x").check()


def test_faults_of_annotations_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_brat(tmp_path, "a", ["T1\tPER 0 4;8 9\tAnna c"])
    with pytest.raises(SesameError, match=r"a\.ann:1: the annotation has several parts"):
        list(read_brat(TaskFile(path), BRAT))
    write_brat(tmp_path, "a", ["T1 PER"])
    with pytest.raises(SesameError, match=r"a\.ann:1: not an annotation"):
        list(read_brat(TaskFile(path), BRAT))
    write_brat(tmp_path, "a", ["T1\tPER 0 17\tAnna came. She"])
    with pytest.raises(SesameError, match=r"a\.txt:a\.ann:1: the span .* runs past the end"):
        list(read_brat(TaskFile(path), BRAT))
    write_brat(tmp_path, "a", ["T1\tPER 1 5\tAnna"])
    with pytest.raises(SesameError, match=r"a\.ann:1: the annotation.s text does not") as e:
        list(read_brat(TaskFile(path), BRAT))
    assert "Anna" not in str(e.value)
    write_brat(tmp_path, "b", ["T1\tPER 0 1\t "])
    (tmp_path / "b.txt").write_text("\n \n")
    with pytest.raises(SesameError, match=r"b\.txt:b\.ann:1: the span .* has no word"):
        list(read_brat(TaskFile(tmp_path / "b.txt"), BRAT))
    (tmp_path / "a.ann").unlink()
    with pytest.raises(SesameError, match=r"a\.txt: has no a\.ann beside it"):
        list(read_brat(TaskFile(path), BRAT))
    assert len(list(read_brat(TaskFile(path, has_labels=False), BRAT))) == 3


def test_any_spans_give_tags_for_every_word(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        places = rng.integers(0, len(TEXT) + 3, size=(4, 2))
        spans = [{"start": int(min(p)), "end": int(max(p)), "label": "X"} for p in places]
        example, _ = read(tmp_path, spans, "drop")
        assert example.gold is not None and len(example.gold) == 9
        for before, tag in zip(("O", *example.gold), example.gold, strict=False):
            assert tag != "I-X" or before in ("B-X", "I-X")
