"""CoNLL files become BIO sentences whatever their scheme, as conlleval reads them."""

from pathlib import Path

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from data_prep.errors import SesameError
from pipeline.config.compose import compose_config
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.conll import read_conll, to_bio
from pipeline.tasks.examples import Example, TaskFile
from pipeline.tasks.metrics import entities
from pipeline.tasks.splits import read_splits

TASK = TaskConfig(kind="tag", reader="conll", metric="entity_f1")


def read(folder: Path, content: str) -> list[Example]:
    path = folder / "t.conll"
    path.write_text(content)
    return list(read_conll(TaskFile(path), TASK))


def test_two_columns_with_tabs(tmp_path: Path) -> None:
    examples = read(tmp_path, "Empire\tB-place\nState\tI-place\n=\tO\n\n\n\t\nESB\tB-place\n")
    assert [(e.texts, e.gold, e.line) for e in examples] == [
        (("Empire", "State", "="), ("B-place", "I-place", "O"), 1),
        (("ESB",), ("B-place",), 7),
    ]


def test_four_columns_in_iob1_with_document_marks(tmp_path: Path) -> None:
    content = (
        "-DOCSTART- -X- -X- O\r\n\r\nU.N. NNP I-NP I-ORG\r\nofficial NN I-NP O\r\n"
        "Ekeus NNP I-NP I-PER\r\nRolf NNP I-NP B-PER\r\n"
    )
    (example,) = read(tmp_path, content)
    assert example.texts == ("U.N.", "official", "Ekeus", "Rolf")
    assert example.gold == ("B-ORG", "O", "B-PER", "B-PER")


def test_tags_that_continue_nothing_are_mended_and_counted_where_iob1_does_not_explain_them(
    tmp_path: Path,
) -> None:
    """O I-PER is a fault in a file that begins names with B, and the rule in one that does not."""
    path = tmp_path / "t.conll"
    for content, count in (
        ("Ann B-PER\nsaw O\nBo I-PER\n", 1),
        ("Ann I-PER\nBo B-PER\nsaw O\n\nIda I-PER\n", 0),
        ("Ann S-PER\nsaw O\nBo E-PER\n", 1),
    ):
        path.write_text(content)
        file = TaskFile(path)
        examples = list(read_conll(file, TASK))
        assert file.repairs["tags"] == count
        assert not any(tag.startswith("I") for example in examples for tag in example.gold or ())


def test_a_file_without_labels_may_have_words_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.conll"
    path.write_text("-DOCSTART-\n\nAnn\nleft\n\nBo\n")
    examples = list(read_conll(TaskFile(path, has_labels=False), TASK))
    assert [(e.texts, e.gold) for e in examples] == [(("Ann", "left"), None), (("Bo",), None)]


def test_comments_are_skipped_and_words_that_look_like_them_are_not(tmp_path: Path) -> None:
    content = "# id = 1\nAnn B-PER\n#love=me O\n# B-X\n# O\n"
    [example] = read(tmp_path, content)
    assert example.texts == ("Ann", "#love=me", "#", "#")


def test_chunks_of_conll2000_are_read_as_published(tmp_path: Path) -> None:
    sentence = "Confidence NN B-NP\nin IN B-PP\nthe DT B-NP\npound NN I-NP\n. . O\n\n"
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_text("".join(f"w{n} NN B-NP\n{sentence}" for n in range(30)))
    splits = read_splits(compose_config(["task=conll2000", f"task.data_dir={tmp_path}"]).task, 0)
    assert len(splits.test) == 30 and len(splits.train) + len(splits.dev) == 30
    assert splits.test[0].texts[1:4] == ("Confidence", "in", "the")
    assert splits.test[0].gold == ("B-NP", "B-NP", "B-PP", "B-NP", "I-NP", "O")
    assert splits.labels == ["O", "B-NP", "I-NP", "B-PP", "I-PP"]


@pytest.mark.parametrize(
    ("tags", "bio", "repaired"),
    [
        ("O I-PER I-PER", "O B-PER I-PER", 1),
        ("B-PER I-LOC O", "B-PER B-LOC O", 1),
        ("S-PER B-LOC I-LOC E-LOC S-LOC", "B-PER B-LOC I-LOC I-LOC B-LOC", 0),
        ("B-PER E-PER I-PER", "B-PER I-PER B-PER", 1),
        ("B-PER B-PER O", "B-PER B-PER O", 0),
    ],
)
def test_schemes_become_bio(tags: str, bio: str, repaired: int) -> None:
    assert to_bio(tags.split()) == (bio.split(), repaired)
    reference = {(kind, start, end + 1) for kind, start, end in get_entities(tags.split())}
    assert entities(bio.split()) == reference


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("a\tO\nsecret\n", r"t\.conll:2: 1 columns, expected 2"),
        ("a NN O\n\nsecret O\n", r"t\.conll:3: 2 columns, expected 3"),
        ("secret\n", r"t\.conll:1: 1 columns, expected 2"),
        ("a\tO\nsecret\tX-PER\n", r"t\.conll:2: the last column is not a tag"),
        ("a\tsecret\n", r"t\.conll:1: the last column is not a tag"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, content: str, fault: str) -> None:
    with pytest.raises(SesameError, match=fault) as caught:
        read(tmp_path, content)
    assert "secret" not in str(caught.value)
