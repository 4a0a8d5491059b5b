"""Files that people give by mistake: each has a defined outcome, which names the file."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.inference.items import check_input, read_items
from pipeline.inference.models import FinetunedModel, read_model
from tests.pipeline.inference.small_models import TASKS, write_models


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FinetunedModel]:
    made = tmp_path_factory.mktemp("models")
    write_models(made)
    return {name: read_model(made / name) for name in TASKS}


def test_an_open_quote_does_not_swallow_the_rows_after_it_in_silence(
    models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    source = tmp_path / "a.csv"
    source.write_text('sentence\ngood\n"bad\nfilm\nbo\n')
    good, open_quote = read_items(str(source), models["mood"])
    assert good.item == "good"
    assert open_quote.number == 3 and open_quote.fault == "not CSV (unexpected end of data)"


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
    names = models["names"].finetuned
    task = replace(names.task, reader=reader)
    model = FinetunedModel(replace(names, task=task), models["names"].folder)
    found = [line.item for line in read_items(str(tmp_path / name), model)]
    assert found == SENTENCES["conll2012" if reader == "conll2012" else "conllu"]


def test_a_model_of_columns_still_reads_one_word_per_line(
    models: dict[str, FinetunedModel], tmp_path: Path
) -> None:
    (tmp_path / "a.conll").write_text("3 O\n3.1\tO\n\nbo\n")
    names = models["names"].finetuned
    for reader in ("conll", "conllu", "conll2012"):
        task = replace(names.task, reader=reader)
        model = FinetunedModel(replace(names, task=task), models["names"].folder)
        found = [line.item for line in read_items(str(tmp_path / "a.conll"), model)]
        assert found == [["3", "3.1"], ["bo"]]
