"""Universal Dependencies: words and their universal tags."""

from pathlib import Path

import pytest

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.conllu import read_conllu
from pipeline.tasks.examples import Example, TaskFile

TASK = TaskConfig(name="pos", kind="tag", reader="conllu", metric="accuracy")
REST = "\t_\t_\t0\troot\t_\t_"
TEXT = f"""# newdoc id = one
# text = Vámonos al mar
1-2\tVámonos\t_\t_{REST}
1\tVamos\tir\tVERB{REST}
2\tnos\tnosotros\tPRON{REST}
2.1\t_\t_\t_{REST}
3\tmar\tmar\tNOUN{REST}

# newdoc id = two
1\tSí\tsí\tINTJ{REST}
"""


def read(path: Path, text: str, **changed: object) -> list[Example]:
    path.write_text(text)
    task = TaskConfig(**(vars(TASK) | changed))  # type: ignore[arg-type]
    return list(read_conllu(TaskFile(path), task))


def test_parts_of_contractions_are_words_and_empty_nodes_are_not(tmp_path: Path) -> None:
    first, second = read(tmp_path / "x.conllu", TEXT)
    assert first.texts == ("Vamos", "nos", "mar")
    assert first.gold == ("VERB", "PRON", "NOUN")
    assert (second.texts, second.gold, second.line) == (("Sí",), ("INTJ",), 10)


def test_documents_can_be_groups(tmp_path: Path) -> None:
    grouped = read(tmp_path / "x.conllu", TEXT, group_field="newdoc id")
    assert [example.group for example in grouped] == ["one", "two"]


def test_without_labels_the_words_are_enough(tmp_path: Path) -> None:
    (tmp_path / "x.conllu").write_text(TEXT.replace("VERB", "_"))
    file = TaskFile(tmp_path / "x.conllu", has_labels=False)
    assert [example.gold for example in read_conllu(file, TASK)] == [None, None]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1\tone\n", "2 columns, expected 10"),
        (TEXT.replace("VERB", "_"), "4: the word has no"),
        (TEXT.replace("\n3\t", "\n3a\t"), ":7: column 1 is not a word's number"),
        (TEXT.replace("\n3\t", "\n²\t"), ":7: column 1 is not a word's number"),
        (TEXT.replace("\tmar\t", "\t\t"), ":7: column 2 has no word"),
    ],
)
def test_faults_are_named_by_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SesameError, match=rf"x\.conllu.*{told}"):
        read(tmp_path / "x.conllu", text)
