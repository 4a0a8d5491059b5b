"""JSON that is not in lines: objects in an array, or one after another, in bounded memory."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.config import CorpusConfig
from data_prep.reading import json_values
from data_prep.reading.documents import RawDocument, cut_whole, read_documents
from data_prep.reading.json_values import split_objects
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.tally import Tally

values = st.recursive(
    st.none() | st.integers() | st.text('ab"\\{}[], \n'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('k"{'), inner, max_size=3),
    max_leaves=5,
)
records = st.lists(st.dictionaries(st.text('k"\\'), values, max_size=3), max_size=5)


def read(path: Path, tally: Tally) -> list[RawDocument]:
    part = Part(SourceFile(path, path.name), 0, path.stat().st_size)
    return list(read_documents(part, CorpusConfig(), tally))


@given(records, st.sampled_from(["array", "indented", "lines", "apart"]), st.integers(1, 9))
def test_objects_are_found_wherever_blocks_end(
    objects: list[dict[str, object]], form: str, block: int
) -> None:
    text = {
        "array": json.dumps(objects),
        "indented": json.dumps(objects, indent=1),
        "lines": "\n".join(map(json.dumps, objects)),
        "apart": " ".join(json.dumps(each, indent=2) for each in objects),
    }[form]
    data = text.encode()
    found = list(split_objects(data[at : at + block] for at in range(0, len(data), block)))
    assert [json.loads(each or b"") for _, each in found] == objects
    assert all(each and data[place:].startswith(each) for place, each in found)


def test_each_fault_is_one_record_and_its_neighbours_are_kept() -> None:
    text = b'[{"a": 1}, oops, {"b": "]"}, "loose {", {"c": 3}, {"d": '
    places, found = zip(*split_objects([text]), strict=True)
    assert found == (b'{"a": 1}', None, b'{"b": "]"}', None, b'{"c": 3}', None)
    assert list(places) == sorted(places)


def test_an_object_that_is_too_long_is_skipped_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_values, "LONGEST_BYTES", 1000)
    blocks = [b'[{"a": "', *[b"x" * 100] * 50, b'"}', b', {"b": 2}]']
    assert list(split_objects(blocks)) == [(1, None), (5012, b'{"b": 2}')]


@pytest.mark.parametrize("form", ["array", "lines", "one"])
def test_a_json_file_is_read_in_each_of_its_forms(tmp_path: Path, form: str) -> None:
    rows = [{"id": f"d{number}", "text": f"Text {number}"} for number in range(3)]
    texts = {
        "array": json.dumps(rows, indent=1),
        "lines": "\n".join(map(json.dumps, rows)),
        "one": json.dumps(rows[0]),
    }
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(texts[form].encode()))
    tally = Tally()
    found = read(path, tally)
    wanted = rows[:1] if form == "one" else rows
    assert [(each.id, each.text) for each in found] == [(row["id"], row["text"]) for row in wanted]
    assert tally.read == tally.kept == len(wanted)


def test_a_truncated_array_keeps_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('[{"text": "One."}, {"text": "Two."}, {"text": "Thr')
    tally = Tally()
    assert [each.text for each in read(path, tally)] == ["One.", "Two."]
    assert tally.dropped == {"malformed_json": 1}
    assert tally.notes == [("x.json", "byte 37", "malformed_json, document dropped")]


def test_json_in_lines_is_divided_and_other_json_is_not(tmp_path: Path) -> None:
    whole = cut_whole(CorpusConfig())
    for name, text in {
        "lines.json": '{"text": "a"}\n{"text": "b"}\n',
        "array.json": "[{}]",
    }.items():
        (tmp_path / name).write_text(text)
        assert whole(SourceFile(tmp_path / name, name)) == (name == "array.json")
