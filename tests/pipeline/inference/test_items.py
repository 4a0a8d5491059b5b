"""Files that people give by mistake: each has a defined outcome, which names the file."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from data_prep.errors import SesameError, UsageError
from pipeline import load_model
from pipeline.inference import models as inference
from pipeline.inference import sentences
from pipeline.inference.items import check_input, read_items
from pipeline.inference.models import FinetunedModel, read_model
from pipeline.tasks.examples import TaskFile
from pipeline.tasks.table import read_table
from pipeline.tasks.wic import read_wic
from tests.pipeline.inference.small_models import TASKS, write_models


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FinetunedModel]:
    made = tmp_path_factory.mktemp("models")
    write_models(made)
    return {name: read_model(made / name) for name in TASKS}


def changed(model: FinetunedModel, **keys: Any) -> FinetunedModel:
    """Return a model as if it had been trained with other settings of its task."""
    task = replace(model.finetuned.task, **keys)
    return replace(model, finetuned=replace(model.finetuned, task=task))


def test_an_open_quote_does_not_swallow_the_rows_after_it_in_silence(
    models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    source = tmp_path / "a.csv"
    source.write_text('sentence\ngood\n"bad\nfilm\nbo\n')
    good, open_quote = read_items(str(source), models["mood"])
    assert good.item == "good"
    assert open_quote.number == 3
    assert open_quote.fault == "not a CSV row (unexpected end of data); fix its quotes"


def test_a_table_without_the_columns_is_named(
    models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    source = tmp_path / "a.csv"
    source.write_text("label,text\n1,good\n")
    with pytest.raises(UsageError, match=rf"input={source}: its first line must name the columns"):
        check_input(str(source), models["mood"])


def test_a_pipe_with_a_name_is_refused_before_a_line_of_it_is_lost(
    models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(UsageError, match="not a regular file; name a file, or pipe it to input=-"):
        check_input(str(tmp_path / "a.txt"), models["mood"])


def test_closed_standard_input_is_refused(
    models: dict[str, FinetunedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as after `<&-`
    with pytest.raises(UsageError, match="input=-: standard input is closed"):
        check_input("-", models["mood"])


def test_a_fault_late_in_a_squad_file_is_found_before_any_work(
    models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    source = tmp_path / "a.json"
    questions = '{"id": "a", "question": "good"}, {"id": "a", "question": "bad"}'
    source.write_text(
        f'{{"data": [{{"paragraphs": [{{"context": "bo", "qas": [{questions}]}}]}}]}}'
    )
    with pytest.raises(SesameError, match=r"qas\[1\]: another question has the same id"):
        check_input(str(source), models["quiz"])


CONLLU = """# sent_id = 1
# text = Bo, don't
1\tBo\tbo\tPROPN\t_\t_\t0\troot\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\t_\t_\t1\taux\t_\t_
3\tn't\tnot\tPART\t_\t_\t1\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\t_\t_\t_\t_\t_\t_

# newdoc
1\t10 000\t_\tNUM\t_\t_\t0\troot\t_\t_
"""
CONLL2012 = """#begin document (bc/cctv/00); part 000
bc/cctv/00 0 0 Bo NNP * - - - - (PERSON) -
bc/cctv/00 0 1 sang VBD * - - - - * -

#end document
"""
SENTENCES = {"conllu": [["Bo", "do", "n't"], ["10 000"]], "conll2012": [["Bo", "sang"]]}


@pytest.mark.parametrize(
    ("name", "reader", "content"),
    [
        ("a.conllu", "conll", CONLLU),
        ("a.conllu", "conllu", CONLLU.replace("\n", "\r\n")),
        ("a.conll", "conllu", CONLLU),
        ("a.conll", "conll2012", CONLL2012),
    ],
)
def test_words_stand_where_the_form_has_them(
    name: str, reader: str, content: str, models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    """The first column of these forms is a number or a file's name, which was tagged as a word."""
    (tmp_path / name).write_bytes(content.encode())
    model = changed(models["names"], reader=reader)
    found = [line.item for line in read_items(str(tmp_path / name), model)]
    assert found == SENTENCES["conll2012" if reader == "conll2012" else "conllu"]


def test_a_model_of_columns_still_reads_one_word_per_line(
    models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    (tmp_path / "a.conll").write_text("3 O\n3.1\tO\n\nbo\n")
    for reader in ("conll", "conllu", "conll2012"):
        model = changed(models["names"], reader=reader)
        found = [line.item for line in read_items(str(tmp_path / "a.conll"), model)]
        assert found == [["3", "3.1"], ["bo"]]


WIC = "board\tN\t2-2\tRoom and board .\tHe nailed boards across .\ngo\tV\t0-1\tgo on\tthey go\n"


def test_files_of_words_in_context_are_read_as_training_reads_them(
    models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    """A line was a pair of the word and all the rest, and was answered without a fault."""
    source = tmp_path / "test.data.txt"
    source.write_text(WIC)
    model = changed(models["mood"], reader="wic", text_a="sentence1", text_b="sentence2")
    trained = read_wic(TaskFile(source, has_labels=False), model.finetuned.task)
    found = [line.item for line in read_items(str(source), model)]
    assert found == [example.texts for example in trained]
    assert found[0] == ('Room and " board " .', 'He nailed " boards " across .')
    source.write_text(WIC + "board\tN\t2-9\ta b c\td e f\nRoom and board\tboards\n")
    faults = [line.fault for line in read_items(str(source), model)]
    needs = "needs word, part of speech, the word's places (3-0) and two sentences"
    assert faults == ["", "", needs, needs]


TABLES = {
    "a.tsv": "Text\tn\tlabel\n good \t1\tup\n\n42\t2\tdown\n\n",
    "a.csv": 'Text,n,label\n" good ",1,up\n\n42,2,down\n\n',
    "one.csv": "Text\n good \n\n42\n\n",
    "a.jsonl": '{"Text": " good ", "label": "up"}\n\n{"Text": 42, "label": "down"}\n \n',
}


@pytest.mark.parametrize("name", list(TABLES))
def test_tables_are_read_by_the_rules_of_training(
    name: str, models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    """Other names of columns, numbers, spaces around a text, and blank lines."""
    (tmp_path / name).write_text(TABLES[name])
    model = changed(models["mood"], aliases={"Text": "sentence"})
    found = list(read_items(str(tmp_path / name), model))
    file = TaskFile(tmp_path / name, has_labels=name != "one.csv")
    trained = list(read_table(file, model.finetuned.task))
    assert [line.item for line in found] == [example.texts[0] for example in trained]
    assert [line.item for line in found] == ["good", "42"]
    assert [line.number for line in found] == [example.line for example in trained]


def test_a_name_of_two_columns_is_refused(
    models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    (tmp_path / "a.tsv").write_text("sentence\tsentence\ngood\tbad\n")
    with pytest.raises(UsageError, match="2 columns are named sentence; keep one"):
        check_input(str(tmp_path / "a.tsv"), models["mood"])


def test_a_sentence_that_is_not_text_is_named_by_its_own_line(
    models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    (tmp_path / "a.conll").write_bytes(b"anna O\nbo O\n\n\xff O\n\n\nbo O\n\xff O\n")
    found = list(read_items(str(tmp_path / "a.conll"), models["names"]))
    assert [(line.number, line.fault) for line in found] == [
        (1, ""), (4, "not UTF-8"), (7, "not UTF-8")
    ]  # fmt: skip


def test_a_model_of_documents_needs_them(
    models: dict[str, FinetunedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without -DOCSTART- the whole file was held as one document; training refuses such a file."""
    model = changed(models["names"], context="document")
    (tmp_path / "a.conll").write_text("anna O\n\nbo O\n")
    with pytest.raises(UsageError, match=r"begin each of them with a line -DOCSTART-"):
        check_input(str(tmp_path / "a.conll"), model)
    assert len(list(read_items(str(tmp_path / "a.conll"), models["names"]))) == 2
    monkeypatch.setattr(sentences, "LONGEST_DOCUMENT", 2)
    (tmp_path / "a.conll").write_text("-DOCSTART- O\n\nanna O\n\nbo O\nin O\n")
    with pytest.raises(UsageError, match="line 5: the document has more than 2 words"):
        list(read_items(str(tmp_path / "a.conll"), model))


def test_a_model_is_on_the_best_device(
    models: dict[str, FinetunedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions on a machine with a GPU were computed on its CPU."""
    asked: list[str] = []

    def best(accelerator: str) -> torch.device:
        asked.append(accelerator)
        return torch.device("meta")

    monkeypatch.setattr(inference, "choose_device", best)
    model = load_model(models["mood"].folder).finetuned.model
    assert model.device == torch.device("meta") and asked == ["auto"]
    assert {each.device.type for each in model.parameters()} == {"meta"}
