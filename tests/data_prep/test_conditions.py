"""`corpus.where`: equality for plain values, ranges of numbers and dates."""

import json
from pathlib import Path

import pytest

from data_prep.conditions import condition_of
from data_prep.config import CorpusConfig
from data_prep.errors import UsageError
from tests.data_prep.small_shards import everything, shard


@pytest.mark.parametrize(
    ("value", "inside", "outside"),
    [
        ("news", ["news"], ["News", "", "null"]),
        ("3", ["3"], ["3.0", "4"]),
        ("1.5", ["1.5"], ["1.50"]),
        (">=3", ["3", "3.0", "1e9"], ["2.999", "-4", "null", "true", "", "nan", "three"]),
        ("> 3", ["3.1"], ["3", "2"]),
        ("<0.5", ["0.49", "-7"], ["0.5", "x"]),
        ("3..5", ["3", "4.2", "5"], ["2.9", "5.1", "null"]),
        ("-1.5..2.5", ["-1.5", "0", "2.5"], ["-2", "3"]),
        (">=2019-06", ["2019-06-01", "2020-01-01T00:00:00"], ["2019-05-31", "7", "soon"]),
        ("2019-01..2020-06", ["2019-01-01", "2020-06-30"], ["2018-12-31", "2020-07-01"]),
        (">=2019", ["2019-01-01", "2020-06", "2019"], ["2018-12-31", "May"]),
        ("low..high", ["low..high"], ["low"]),
    ],
)
def test_a_condition_holds_inside_and_only_there(
    value: str, inside: list[str], outside: list[str]
) -> None:
    holds = condition_of("corpus.where.x", value)
    assert [holds(each) for each in inside] == [True] * len(inside)
    assert [holds(each) for each in outside] == [False] * len(outside)


@pytest.mark.parametrize("value", [">=many", "3..x", "x..3"])
def test_a_range_without_numbers_is_refused_with_its_key(value: str) -> None:
    with pytest.raises(UsageError, match=rf"corpus\.where\.score={value}: a range has numbers"):
        CorpusConfig(where={"score": value}).check()


def test_records_outside_a_range_are_dropped_and_counted(tmp_path: Path) -> None:
    records = [
        {"text": f"A document with the score {score} in it.", "score": score, "kind": "note"}
        for score in (1, 2, 3.5, 4, None, "5", "high")
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    where = {"score": ">=3", "kind": "note"}
    counts = shard(tmp_path / "out", path, where=where)
    assert counts["documents"]["dropped"] == {"where": 4}
    found = [section.sentences[0].split()[5] for section in everything(tmp_path / "out")]
    assert found == ["3.5", "4", "5"]
