"""Files that change under the stage's hands stop it: nothing is finished, written or cached."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from data_prep.corpus import clean
from data_prep.corpus.build import make_shards
from data_prep.corpus.cache import PieceCache
from data_prep.errors import SesameError
from data_prep.files import sha256
from data_prep.reading.source_files import Part
from data_prep.reading.sources import discover
from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.execute import execute
from pipeline.workflow.graph import Graph
from tests.data_prep.small_shards import (
    PIECE_BYTES,
    config_for,
    document,
    sentence,
    write_documents,
)


@pytest.mark.parametrize("change", ["cut", "grown", "rewritten", "replaced", "gone"])
def test_a_file_that_changes_while_it_is_read_stops_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    changing = tmp_path / "corpus"
    changing.mkdir()
    rng = random.Random(7)
    write_documents(changing / "a.jsonl", [document(rng) for _ in range(30)])
    path = changing / "b.txt"
    path.write_text("\n\n".join(sentence(rng) for _ in range(500)))
    original = clean.read_documents

    def read_while_it_changes(part: Part, *others: Any) -> Any:
        for number, found in enumerate(original(part, *others)):
            if part.file.name == "b.txt" and number == 3 and path.exists():
                data = path.read_bytes()
                if change == "cut":
                    os.truncate(path, len(data) // 2)
                elif change == "grown":
                    path.write_bytes(data + b"more")
                elif change == "rewritten":  # with the same bytes: others may have been read
                    path.write_bytes(data)
                elif change == "replaced":
                    shutil.copy2(path, tmp_path / "other")
                    os.replace(tmp_path / "other", path)
                else:
                    path.unlink()
            yield found

    monkeypatch.setattr(clean, "read_documents", read_while_it_changes)
    checksums = {file.name: sha256(file.path) for file in discover(str(changing))}
    cache = PieceCache(tmp_path / "cache", checksums, version=1, most_bytes=1 << 30)
    with pytest.raises(SesameError, match=r"^b\.txt (changed|is gone).* while the corpus was read"):
        make_shards(config_for(changing), tmp_path / "out", PIECE_BYTES, cache)
    assert not list((tmp_path / "out").glob("*.tar")) and not (tmp_path / "cache").exists()


def test_a_file_that_changed_since_its_fingerprint_stops_the_stage(tmp_path: Path) -> None:
    path = write_documents(tmp_path / "x.jsonl", [f"Document number {n} here." for n in range(20)])
    config = Config()
    config.paths.store = str(tmp_path / "store")
    config.corpus.paths = str(path)
    graph = Graph(Store(tmp_path / "store"), STAGES)
    node = graph.add("shard", config)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SesameError, match=r"^x\.jsonl changed .* run the same command again"):
        execute(node)
    assert not node.output.is_done and not list(node.output.path.glob("*.tar"))
    path.write_bytes(whole)
    execute(Graph(Store(tmp_path / "store"), STAGES).add("shard", config))
    assert node.output.is_done
