"""Groups per split are counted in bounded memory, and a corpus without any is refused."""

import json
import random
from pathlib import Path

import pytest

from data_prep.errors import SesameError
from tests.data_prep.small_shards import document, shard


def test_a_group_field_that_is_always_empty_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    records = [{"text": f"Document number {n} here.", "patient": None} for n in range(9)]
    path.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(SesameError, match=r"corpus\.group_field=patient: no kept document has a"):
        shard(tmp_path / "out", path, group_field="patient")


def test_groups_are_counted_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(11)
    records = [{"text": document(rng), "patient": n % 60} for n in range(600)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, records)))
    whole = shard(tmp_path / "whole", tmp_path / "x.jsonl", group_field="patient")
    monkeypatch.setattr("data_prep.corpus.groups.GROUPS_AT_ONCE", 50)
    parts = shard(tmp_path / "parts", tmp_path / "x.jsonl", group_field="patient")
    assert parts["groups"] == whole["groups"]
    assert sum(parts["groups"].values()) == 60
