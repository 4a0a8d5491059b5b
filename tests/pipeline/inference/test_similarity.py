"""Word similarity agrees with gensim's own evaluation, and bad lists are refused."""

from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.test.utils import datapath

from data_prep.errors import SesameError
from data_prep.vectors.table import VectorTable
from pipeline.commands.main import run
from pipeline.encoders import StaticEncoder, random_encoder
from pipeline.inference.similarity import measure, read_pairs
from tests.pipeline.inference.small_models import BERT
from tests.pipeline.toy_tokenizer import write_toy_tokenizer


@pytest.mark.parametrize("name", ["simlex999.txt", "wordsim353.tsv"])
def test_correlations_are_those_of_gensim(name: str) -> None:
    path = Path(datapath(name))
    words = sorted({word.lower() for a, b, _ in read_pairs(path) for word in (a, b)})[::2]
    vectors = np.random.default_rng(0).normal(size=(len(words), 8)).astype(np.float32)
    theirs = KeyedVectors(8)
    theirs.add_vectors(words, vectors)
    ours = measure(StaticEncoder(VectorTable(words, vectors)), path)
    _, expected, unknown = theirs.evaluate_word_pairs(str(path))
    assert ours.spearman == pytest.approx(expected.statistic, abs=1e-6)
    assert -1 < ours.pearson < 1
    assert ours.used == round(ours.pairs * (1 - unknown / 100))


def test_sentence_pairs_of_a_task_are_compared_by_cosine(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cosines of mean vectors: 1, 0, and 0.8; so the ranks agree and the numbers nearly."""
    monkeypatch.chdir(tmp_path)
    Path("vectors.txt").write_text("a 1 0\nb 0 1\nc 4 3\n")
    rows = ["a a\ta\t5", "a\tb\t0", "a\tc\t4"]
    Path("dev.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    Path("train.tsv").write_text(Path("dev.tsv").read_text())
    asked = ["similarity", "encoder=./vectors.txt", "task=stsb", "task.data_dir=."]
    assert run(asked) == 0
    assert "1.000 │   1.000 │ 3 of 3" in capfd.readouterr().out
    for layers in ("last", "top"):  # as `sesame embed` calls it, and AllenNLP
        assert run([*asked, f"layers={layers}"]) == 0
    assert run([*asked, "pooling=last"]) == 2
    assert "pooling=last: must be one of mean, first, max" in capfd.readouterr().err
    assert run(["similarity", "encoder=./vectors.txt", "task=sst2", "task.data_dir=."]) == 2
    assert "task=sst2: needs pairs with a number" in capfd.readouterr().err


def test_pooling_and_layers_hold_for_lists_of_words_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were accepted, and ignored."""
    monkeypatch.chdir(tmp_path)
    Path("tokenizer").mkdir()
    words = ["good", "bad", "film", "plot", "cast", "fine"]
    write_toy_tokenizer(Path("tokenizer"), words)
    Path("bert").mkdir()
    random_encoder(BERT, Path("tokenizer"), seed=0).save(Path("bert"))
    rng = np.random.default_rng(0)
    pairs = [f"{a}\t{b}\t{rng.random():.3f}" for a in words for b in words if a < b]
    Path("pairs.txt").write_text("\n".join(pairs) + "\n")
    asked = ["similarity", "encoder=./bert", "pairs=pairs.txt"]
    shown = []
    for own in ([], ["pooling=mean", "layers=last"], ["pooling=max"], ["layers=mix"]):
        assert run([*asked, *own]) == 0
        shown.append(capfd.readouterr().out)
    assert shown[0] == shown[1]  # the defaults
    assert len(set(shown)) == 3


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("word\tother\tjudged\na\tb\t1\nc\td\n")
    with pytest.raises(SesameError, match=":3: not two words and a number"):
        read_pairs(path)


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_judgement_must_be_a_number(number: str, tmp_path: Path) -> None:
    """Correlations with it would be no numbers, or perfect."""
    path = tmp_path / "pairs.tsv"
    path.write_text(f"a\tb\t1\nc\td\t{number}\n")
    with pytest.raises(SesameError, match=":2: not two words and a number"):
        read_pairs(path)


def test_names_of_lists_are_shown_as_they_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "v.txt").write_text("a 1 0\nb 0 1\nc 4 3\n")
    (tmp_path / "p[red].txt").write_text("a\tb\t1\na\tc\t2\n")
    asked = ["similarity", f"encoder={tmp_path}/v.txt", f"pairs={tmp_path}/p[red].txt"]
    assert run(asked) == 0
    assert "p[red]" in capfd.readouterr().out
    assert run([*asked, "more"]) == 2
    assert "more: not an override" in capfd.readouterr().err
