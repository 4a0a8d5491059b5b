"""A corpus that gives nothing is told with the key at fault and what was found, never with text."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.errors import SesameError, UsageError
from tests.data_prep.small_shards import shard, write_documents


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"min_characters": 10_000}, r"corpus\.min_characters=10000 took 9"),
        ({"fraction": 0.0}, r"corpus\.fraction=0\.0 took 9"),
    ],
)
def test_nothing_left_is_an_error_that_names_the_filter(
    tmp_path: Path, values: dict[str, Any], reason: str
) -> None:
    path = write_documents(tmp_path / "x.jsonl", [f"Document number {n} here." for n in range(9)])
    wanted = f"none of 9 documents is left: {reason}; loosen the filters named here"
    with pytest.raises(SesameError, match=wanted):
        shard(tmp_path / "out", path, **values)


WRONG_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"text_field": "body"}, "corpus.text_field=body: no record has the field body; found: "),
    ({"id_field": "key"}, "corpus.id_field=key: no record has the field key; found: "),
    (
        {"group_field": "patient_id"},
        "corpus.group_field=patient_id: no record has the field patient_",
    ),
    ({"where": {"kin": "note"}}, "corpus.where.kin=note: no record has the field kin; found: "),
    ({"where": {"patient": "SECRET"}}, "corpus.where={'patient': 'SECRET'} took 9; set corpus.wh"),
    ({"text_field": "patient"}, "missing_text took 9; set corpus.text_field to a field that holds"),
]


@pytest.mark.parametrize(("values", "says"), WRONG_KEYS)
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_wrong_key_is_named_with_the_fields_found(
    tmp_path: Path, values: dict[str, Any], says: str, ending: str
) -> None:
    path = tmp_path / f"x.{ending}"
    records = [{"text": f"CANARY number {n} here.", "patient": n, "datum": "x"} for n in range(9)]
    if ending == "jsonl":
        path.write_text("\n".join(map(json.dumps, records)))
    else:
        pq.write_table(pa.Table.from_pylist(records), path)
    if "body" in values.values() and ending == "parquet":
        says = "corpus.text_field=body: x.parquet has no such column; found: "
    with pytest.raises(SesameError) as caught:
        shard(tmp_path / "out", path, **values)
    said = str(caught.value)
    assert says in said and "loosen" not in said and "CANARY" not in said
    if "found: " in says:
        assert "found: text, patient, datum; set corpus." in said


def test_found_fields_are_shown_only_where_they_look_like_names(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("Anna was seen today and CANARY,yes\nmore,no\n")
    with pytest.raises(UsageError, match="found: yes, 1 that do not look like names") as caught:
        shard(tmp_path / "out", tmp_path / "x.csv")
    assert "CANARY" not in str(caught.value)
    (tmp_path / "x.txt").write_text("Plain text has no fields at all, sir.\n")
    with pytest.raises(SesameError, match=r"corpus\.group_field=patient: the files have no fields"):
        shard(tmp_path / "none", tmp_path / "x.txt", group_field="patient")
