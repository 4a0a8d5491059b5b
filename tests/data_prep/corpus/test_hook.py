"""The user's function changes and drops documents; its faults are told in one sentence."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data_prep.config import CorpusConfig
from data_prep.errors import SesameError, UsageError
from pipeline.config.schema import Config
from pipeline.models.bert.config import BertConfig
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.graph import Graph
from tests.data_prep.small_shards import digests, everything, shard

MODULE = """\
from data_prep.corpus.hook import Drop, Facts

def keep(text, facts: Facts):
    if facts.id == "3":
        return Drop("third")
    if facts.group == "b":
        return text + "\\ue000\\x00 ask bo@example.org"
    assert facts.file == "a.jsonl"

def fails(text, facts):
    return text + 1

def odd(text, facts):
    return Drop("Quillfeather was here")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "hooks" / "my_hooks.py"
    path.parent.mkdir()
    path.write_text(MODULE)
    monkeypatch.syspath_prepend(path.parent)
    yield path
    sys.modules.pop("my_hooks", None)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    records = [
        {"id": str(n), "patient": "ab"[n % 2], "text": f"Quillfeather's text number {n} is here."}
        for n in range(40)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_documents_are_kept_changed_and_dropped(module: Path, corpus: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "hook": "my_hooks.keep", "group_field": "patient", "redact": ["email"],
    }  # fmt: skip
    counts = [
        shard(tmp_path / str(workers), corpus, 500, workers=workers, **keys) for workers in (1, 2)
    ]
    assert digests(tmp_path / "1") == digests(tmp_path / "2")
    assert counts[0]["documents"]["dropped"] == {"hook_third": 1}
    assert counts[0]["redacted"] == {"EMAIL": 19}, "what the hook adds is cleaned and redacted"
    texts = {section.id: " ".join(section.sentences) for section in everything(tmp_path / "1")}
    assert texts["2"] == "Quillfeather's text number 2 is here."
    assert texts["5"] == "Quillfeather's text number 5 is here.\ue000 ask [EMAIL]"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", r"corpus\.hook=my_hooks\.fails: TypeError in line 11, at a\.jsonl, document 0; "),
        ("odd", r"corpus\.hook=my_hooks\.odd: gave a Drop that .*, at a\.jsonl, document 0; "),
    ],
)
def test_a_fault_names_the_place_and_no_text(
    module: Path, corpus: Path, tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(SesameError, match=message) as caught:
        shard(tmp_path / "out", corpus, hook=f"my_hooks.{name}")
    assert "Quill" not in str(caught.value)


def test_an_unknown_function_is_refused(module: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"corpus\.hook=my_hooks\.absent: cannot be imported"):
        shard(tmp_path / "out", corpus, hook="my_hooks.absent")


def test_its_source_enters_the_fingerprint(module: Path, corpus: Path, tmp_path: Path) -> None:
    def fingerprint(hook: str | None) -> str:
        config = Config(corpus=CorpusConfig(paths=[str(corpus)], hook=hook), model=BertConfig())
        graph = Graph(Store(tmp_path / "store"), STAGES)
        return graph.add("shard", config).output.fingerprint

    before = fingerprint("my_hooks.keep")
    assert len({before, fingerprint(None), fingerprint("my_hooks.odd")}) == 3
    module.write_text(MODULE + "\nTHRESHOLD = 2\n")
    assert fingerprint("my_hooks.keep") != before
    with pytest.raises(UsageError, match=r"corpus\.hook=nowhere\.keep: there is no Python module"):
        fingerprint("nowhere.keep")
