"""Counts by source and by language balance, and are there only if they tell something apart."""

import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.config import CorpusConfig, TokenizerConfig
from data_prep.corpus.build import make_shards
from data_prep.tokenizers.build import build_tokenizer

ENGLISH = "The ship {} sailed over the sea and it was late in the year, but the wind was with us."
SWEDISH = "Det var {} som kom till oss och han var inte glad, för det är så i den här staden."


def write_corpus(folder: Path, sources: dict[str, list[str]]) -> dict[str, str]:
    """One JSONL file per source; returns corpus.sources."""
    for name, texts in sources.items():
        (folder / name).mkdir(parents=True)
        lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
        (folder / name / "a.jsonl").write_text("\n".join(lines) + "\n")
    return {name: str(folder / name) for name in sources}


def texts(form: str, count: int, sentences: int = 12) -> list[str]:
    return [
        " ".join(form.format(f"{number}x{n}") for n in range(sentences)) for number in range(count)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("strata")
    english, swedish = texts(ENGLISH, 60), texts(SWEDISH, 50)
    sources = write_corpus(
        folder / "text",
        {
            "books": [*english, english[0], "short"],
            "news": [*swedish, *english[1:4], "12 34 56 78 90"],
        },
    )
    (folder / "shards").mkdir()
    config = CorpusConfig(sources=sources, min_characters=10, max_repetition=1.0, workers=1)
    return folder / "shards", make_shards(config, folder / "shards")


def test_read_is_kept_and_dropped_by_source_and_language(
    made: tuple[Path, dict[str, Any]],
) -> None:
    _, counts = made
    assert counts["by_source"] == {
        "books": {"read": 62, "kept": 60, "dropped": {"min_characters": 1, "repeated": 1}},
        "news": {"read": 54, "kept": 50, "dropped": {"min_letters": 1, "repeated": 3}},
    }
    assert counts["by_language"] == {
        "und": {"read": 2, "kept": 0, "dropped": {"min_characters": 1, "min_letters": 1}},
        "en": {"read": 64, "kept": 60, "dropped": {"repeated": 4}},
        "sv": {"read": 50, "kept": 50, "dropped": {}},
    }
    for each in (*counts["by_source"].values(), *counts["by_language"].values()):
        assert each["read"] == each["kept"] + sum(each["dropped"].values())
    for by in ("by_source", "by_language"):
        assert sum(each["kept"] for each in counts[by].values()) == counts["documents"]["kept"]


def test_one_language_without_named_sources_is_not_divided(tmp_path: Path) -> None:
    write_corpus(tmp_path / "text", {"a": texts(ENGLISH, 60)})
    (tmp_path / "shards").mkdir()
    counts = make_shards(
        CorpusConfig(paths=str(tmp_path / "text"), max_repetition=1.0, workers=1),
        tmp_path / "shards",
    )
    assert not {"by_source", "by_language"} & counts.keys()
    trained = build_tokenizer(
        tmp_path / "shards", tmp_path / "shards", TokenizerConfig("wordpiece", 100, workers=1)
    )
    assert not {"by_source", "by_language"} & trained["heldout"].keys()


@pytest.mark.parametrize("workers", [1, 2])
def test_vocabularies_are_measured_by_source_and_language(
    made: tuple[Path, dict[str, Any]], tmp_path: Path, workers: int
) -> None:
    shards, _ = made
    trained = build_tokenizer(shards, tmp_path, TokenizerConfig("bpe", 90, workers=workers))
    whole = trained["heldout"]
    assert whole["by_source"].keys() == {"books", "news"}
    assert whole["by_language"].keys() == {"en", "sv"}
    for by in ("by_source", "by_language"):
        for sum_ in ("words", "pieces", "characters"):
            assert sum(each[sum_] for each in whole[by].values()) == whole[sum_]
    english = whole["by_language"]["en"]
    assert english == whole["by_source"]["books"]
    assert english["fertility"] == english["pieces"] / english["words"]
