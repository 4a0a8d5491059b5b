"""Tasks of `corpus.decontaminate` are found by name; their files enter the fingerprint."""

from pathlib import Path

import pytest

from data_prep.config import CorpusConfig
from data_prep.errors import UsageError
from pipeline.config.schema import Config
from pipeline.models.bert.config import BertConfig
from pipeline.stages import STAGES
from pipeline.stages.benchmarks import benchmark_files
from pipeline.store.outputs import Store
from pipeline.workflow.graph import Graph


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    for name in ("train", "dev", "test"):
        (folder / f"{name}.tsv").write_text(f"sentence\tlabel\na film of {name}\t1\n")
    return tmp_path / "glue"


def names(*entries: str) -> list[str]:
    return [name for name, _ in benchmark_files(entries)]


def test_the_scored_files_of_a_task_are_found(glue: Path) -> None:
    sst2 = [f"corpus.decontaminate/table/sst2/{name}.tsv" for name in ("dev", "test")]
    assert names(f"sst2:{glue / 'SST-2'}") == sst2
    assert names(f"glue:{glue}") == sst2, "tasks of a suite without a folder are skipped"
    (glue / "eng.testa").write_text("Ann B-PER\n")
    (glue / "eng.testb").write_text("Bo B-PER\n")
    found = benchmark_files([f"conll2003:{glue}"])
    assert [file.form for _, file in found] == ["conll", "conll"]


def test_texts_of_json_lines_are_read_without_their_keys(glue: Path) -> None:
    row = '{"premise": "a \\"film\\"", "question": "cause", "choice1": "b", "choice2": "c"}\n'
    (glue / "val.jsonl").write_text(row)
    [(name, file)] = benchmark_files([f"copa:{glue}"])
    assert name == "corpus.decontaminate/json/copa/val.jsonl"
    assert list(file.texts()) == ['a "film"', "cause", "b", "c"]


def test_files_of_one_name_stay_apart(glue: Path) -> None:
    other = glue / "dev.tsv"
    other.write_text("x\n")
    assert names(str(other), str(glue / "SST-2" / "dev.tsv")) == [
        "corpus.decontaminate/table/dev.tsv",
        "corpus.decontaminate/table/dev.tsv#2",
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("sst2", r"corpus\.decontaminate=sst2: the task names no folder; write sst2:<folder>"),
        ("sst2:/nowhere", r"corpus\.decontaminate=sst2:/nowhere: there is no file dev\.tsv"),
        ("mentions", r"corpus\.decontaminate=mentions: .*cuts its test set"),
        ("conll2012:/x", r"=conll2012:/x: the texts of task\.reader=conll2012 .*lines:<file>"),
        ("glue:/nowhere", r"corpus\.decontaminate=glue:/nowhere: no task"),
        ("ssst2", r"corpus\.decontaminate=ssst2: neither a task nor a file"),
    ],
)
def test_what_cannot_be_found_is_refused_with_a_remedy(entry: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        names(entry)


def test_the_content_enters_the_fingerprint_and_the_place_does_not(
    glue: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("Some text to train on.\n")

    def fingerprint(*entries: str) -> str:
        corpus = CorpusConfig(paths=[str(tmp_path / "texts.txt")], decontaminate=[*entries])
        graph = Graph(Store(tmp_path / "store"), STAGES)
        return graph.add("shard", Config(corpus=corpus, model=BertConfig())).output.fingerprint

    entry = f"sst2:{glue / 'SST-2'}"
    before = fingerprint(entry)
    assert before != fingerprint()
    moved = tmp_path / "moved"
    (glue / "SST-2").rename(moved)
    assert fingerprint(f"sst2:{moved}") == before
    (moved / "dev.tsv").write_text("sentence\tlabel\nanother film\t1\n")
    assert fingerprint(f"sst2:{moved}") != before
