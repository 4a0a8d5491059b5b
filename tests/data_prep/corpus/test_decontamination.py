"""Text that benchmarks are scored on leaves the corpus, in every script and file form."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.config import CorpusConfig
from data_prep.corpus.decontamination import SHORTEST, Benchmarks
from data_prep.errors import SesameError, UsageError
from data_prep.reading.benchmarks import BenchmarkFile
from data_prep.text.word_runs import hash_words, runs_of
from tests.data_prep.small_shards import digests, everything, shard, write_documents

TEXT = "It was the best of times, it was the worst of times; it was the age of wisdom (1859)."
OTHER = "A tale of two cities is a novel that was published in parts from April to November."


def benchmarks(folder: Path, texts: list[str], **keys: Any) -> Benchmarks:
    file = folder / f"{len(list(folder.iterdir()))}.txt"
    file.write_text("\n".join(texts))
    made = Benchmarks.of(CorpusConfig(decontaminate=[str(file)], **keys))
    assert made is not None
    return made


def test_a_paragraph_with_a_shared_run_goes_and_the_others_stay(tmp_path: Path) -> None:
    known = benchmarks(tmp_path, [TEXT])
    quoted = "He read: IT WAS THE BEST OF\nTIMES - it was “the worst” of times. It slept."
    text = f"{OTHER}\n\n{quoted}\n\nThe end of it."
    assert known.remove(text, "paragraphs") == f"{OTHER}\n\nThe end of it."
    assert known.remove(text, "documents") == ""
    assert known.remove(OTHER, "documents") == OTHER


def test_twelve_words_are_not_enough(tmp_path: Path) -> None:
    known = benchmarks(tmp_path, [TEXT])
    twelve = "it was the best of times it was the worst of times"
    assert len(twelve.split()) == 12
    assert known.remove(f"Then {twelve} again", "paragraphs") == f"Then {twelve} again"
    assert known.remove(f"Then {twelve} it rained", "paragraphs") == ""
    shorter = benchmarks(tmp_path, [TEXT], decontaminate_words=12)
    assert shorter.remove(f"Then {twelve} again", "paragraphs") == ""


def test_a_short_text_is_found_whole_and_a_very_short_one_is_counted(tmp_path: Path) -> None:
    eight = "a gorgeous, witty, seductive movie for all ages"
    assert len(eight.split()) == SHORTEST
    known = benchmarks(tmp_path, [eight, "good fun", "", "an utterly compelling film"])
    assert known.remove(f"I saw {eight} twice.", "paragraphs") == ""
    assert known.remove("A gorgeous, witty, seductive movie.", "paragraphs") != ""
    assert known.remove("It is good fun.", "paragraphs") != ""
    assert known.counts() == {"texts": 3, "too_short": 2, "runs": 1}


def test_a_run_across_paragraphs_takes_all_that_it_touches(tmp_path: Path) -> None:
    verses = ["It was the best of times,", "it was the worst of times;", "it was the age of"]
    known = benchmarks(tmp_path, [TEXT])
    assert known.remove("\n\n".join([OTHER, *verses, OTHER]), "paragraphs") == f"{OTHER}\n\n{OTHER}"


def test_scripts_without_spaces_are_compared_by_characters(tmp_path: Path) -> None:
    known = benchmarks(tmp_path, ["我能吞下玻璃而不伤身体,也不伤牙齿。"])
    assert known.remove("他说我能吞下玻璃,而不伤身体。也不疼", "paragraphs") == ""
    assert known.remove("他说我能吞下玻璃而不伤心", "paragraphs") != ""


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 5))
def test_runs_are_hashed_by_their_words(words: list[str], length: int) -> None:
    known: dict[str, int] = {}
    found = dict(runs_of(hash_words(words, known), [length]))
    runs = [tuple(words[n : n + length]) for n in range(len(words) - length + 1)]
    hashes = found.get(length, np.zeros(0, np.uint64)).tolist()
    assert len(hashes) == len(runs)
    assert len(set(zip(runs, hashes, strict=True))) == len(set(runs)) == len(set(hashes))


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a.txt", "one two\n\nthree\n", ["one two", "", "three"]),
        ("a.tsv", 'sentence\tlabel\n"so it\t1\n', ["sentence", "label", '"so it', "1"]),
        ("a.csv", 'text,label\n"so, it",1\n', ["text", "label", "so, it", "1"]),
        ("a.jsonl", '{"a": "x", "b": 1}\n\n{"c": ["y"]}\n', ["x", "y"]),
        (
            "a.json",
            '{"data": [{"paragraphs": [\n{"context": "c", "qas": [{"question": "q"}]}]}]}',
            ["c", "q"],
        ),
        ("a.conll", "-DOCSTART- O\n\nAnn B-PER\nsaw O\n\n# x = 1\nBo\n", ["Ann saw", "Bo"]),
    ],
)
def test_every_form_is_read(tmp_path: Path, name: str, content: str, texts: list[str]) -> None:
    (tmp_path / name).write_text(content)
    read = [text.strip("\n") for text in BenchmarkFile.parse(str(tmp_path / name)).texts()]
    assert [text for text in read if text] == [text for text in texts if text]


def test_a_form_may_be_stated(tmp_path: Path) -> None:
    (tmp_path / "eng.testb").write_text("Ann B-PER\nleft O\n")
    file = BenchmarkFile.parse(f"conll:{tmp_path / 'eng.testb'}")
    assert list(filter(None, file.texts())) == ["Ann left"]
    assert BenchmarkFile.parse(str(file)) == file
    with pytest.raises(UsageError, match=r"corpus\.decontaminate=.*state its form: lines:<file>"):
        BenchmarkFile.parse(str(tmp_path / "eng.testb"))
    with pytest.raises(UsageError, match=r"corpus\.decontaminate=.*no such file"):
        BenchmarkFile.parse("nowhere.txt")


def test_a_damaged_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": "x"}\n{"a": \n')
    with pytest.raises(SesameError, match=r"a\.jsonl, line 2: not JSON"):
        list(BenchmarkFile.parse(str(tmp_path / "a.jsonl")).texts())
    (tmp_path / "b.json").write_text('{"a": "x",\n oops}')
    with pytest.raises(SesameError, match=r"b\.json, line 2: not JSON"):
        list(BenchmarkFile.parse(str(tmp_path / "b.json")).texts())


@pytest.mark.parametrize("unit", ["paragraphs", "documents"])
def test_drops_are_counted_and_the_bytes_depend_on_no_worker(tmp_path: Path, unit: str) -> None:
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefgh", k=5)) for _ in range(400)]
    tests = [" ".join(rng.choices(words, k=20)) for _ in range(30)]
    texts = [" ".join(rng.choices(words, k=60)) for _ in range(120)]
    spoiled = [f"{text}\n\nNote: {test}" for text, test in zip(texts[:20], tests, strict=False)]
    whole = tests[20:25]
    paths = write_documents(tmp_path / "a.jsonl", [*spoiled, *whole, *texts[20:]])
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps({"s": test}) + "\n" for test in tests))
    keys = {"decontaminate": [str(tmp_path / "dev.jsonl")], "decontaminate_unit": unit}
    counts = [
        shard(tmp_path / str(workers), paths, workers=workers, languages="none", **keys)
        for workers in (1, 2)
    ]
    assert digests(tmp_path / "1") == digests(tmp_path / "2") and counts[0] == counts[1]
    documents = counts[0]["documents"]
    dropped, changed = (25, {}) if unit == "documents" else (5, {"decontaminated": 20})
    assert documents["dropped"] == {"decontaminate": dropped}
    assert documents["repaired"] == changed
    assert counts[0]["benchmarks"]["texts"] == 30
    left = " ".join(" ".join(section.sentences) for section in everything(tmp_path / "1"))
    assert not [test for test in tests if test in left]
