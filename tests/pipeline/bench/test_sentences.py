"""The F1 of sentence ends counts what it says it counts."""

from pathlib import Path

import pytest

from data_prep.config import CorpusConfig
from data_prep.corpus.clean import Splitters
from data_prep.errors import UsageError
from pipeline.bench.sentences import f1, read_paragraphs


def treebank(folder: Path, *lines: str) -> Path:
    path = folder / "xx_test.conllu"
    path.write_text("\n".join(lines) + "\n")
    return path


def score(path: Path) -> float:
    paragraphs = read_paragraphs(path)
    return f1(paragraphs, [Splitters(CorpusConfig()).of("en")] * len(paragraphs))


def test_paragraphs_start_where_the_treebank_says(tmp_path: Path) -> None:
    path = treebank(
        tmp_path,
        "# newdoc id = a", "# newpar", "# text = One.", "1\tOne\t_", "# text = Two.",
        "# newpar", "# text = Three.", "# newdoc id = b", "# text = Four.",
    )  # fmt: skip
    sentences = [paragraph.sentences for paragraph in read_paragraphs(path)]
    assert sentences == [["One.", "Two."], ["Three."], ["Four."]]


def test_without_paragraphs_ten_sentences_are_one(tmp_path: Path) -> None:
    path = treebank(tmp_path, *(f"# text = Sentence {number}." for number in range(25)))
    assert [len(each.sentences) for each in read_paragraphs(path)] == [10, 10, 5]


def test_inner_ends_are_scored_and_the_last_is_given(tmp_path: Path) -> None:
    assert score(treebank(tmp_path, "# text = It rained.", "# text = Then it stopped.")) == 1.0
    assert score(treebank(tmp_path, "# text = no end at all", "# text = Then this.")) == 0.0
    # One of two ends is found, and one is found that is none: 2 · 1 / (2 + 2).
    halves = "# text = a heading", "# text = It rained. It stopped.", "# text = Then this."
    assert score(treebank(tmp_path, *halves)) == 0.5
    assert score(treebank(tmp_path, "# text = 你好。", "# text = 再见。")) == 1.0


def test_a_file_without_sentences_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"xx_test\.conllu: has no line"):
        read_paragraphs(treebank(tmp_path, "1\tOne\t_"))
