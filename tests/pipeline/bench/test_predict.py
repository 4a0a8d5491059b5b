"""The two sides of `sesame bench predict` answer the same."""

from pathlib import Path

import pytest

from pipeline.bench import predict
from pipeline.models.bert.config import BertConfig

TINY = BertConfig(layers=2, hidden=16, heads=2, intermediate=32, max_positions=128)


@pytest.mark.parametrize("kind", list(predict.TASKS))
@pytest.mark.parametrize("has_files", [False, True])
def test_both_sides_give_the_same_answers(kind: str, has_files: bool, tmp_path: Path) -> None:
    (tmp_path / "glue" / "SST-2").mkdir(parents=True)
    (tmp_path / "ner").mkdir()
    sentences = "sentence\tlabel\na fine film .\t1\nnot so good\t0\n"
    (tmp_path / "glue/SST-2/dev.tsv").write_text(sentences)
    (tmp_path / "ner/wnut17train.conll").write_text("Bo\tB-person\n's\tO\nfilm\tO\n\nYes\tO\n")
    items = predict._items(kind, str(tmp_path) if has_files else None)[:40]
    assert len(items) == (2 if has_files else 40)
    folder = tmp_path / "model"
    folder.mkdir()
    predict._write_model(folder, TINY, predict.TASKS[kind], predict.LABELS[kind], items)
    peer = {"sentences": predict._Classifier, "tags": predict._Tagger}[kind]
    ours, theirs = predict._Ours(str(folder), items)(), peer(str(folder), items)()
    assert ours == theirs
    assert [len(each) for each in ours] == [len(each) for each in theirs]
