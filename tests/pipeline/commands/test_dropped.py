"""`sesame inspect dropped`: counts, a sample by reason, and remedies."""

import json
from pathlib import Path

import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.commands.arguments import parse
from pipeline.commands.inspect import inspect_examples
from pipeline.config.compose import compose_config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.execute import execute
from pipeline.workflow.graph import Graph


def test_dropped_documents_are_counted_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [f"An ordinary sentence about the number {n} and more." for n in range(30)]
    texts += ["[red]short[/]", "12 34 56 78 90 12 34 56 78 90", texts[0]]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    Path("notes.jsonl").write_text(lines)
    overrides = ["corpus.paths=notes.jsonl", "paths.store=store", "corpus.workers=1"]

    def inspect(*words: str) -> str:
        inspect_examples(parse(["inspect", "dropped", *words, *overrides]))
        return capsys.readouterr().out

    with pytest.raises(SesameError, match=r"no shards yet; run: sesame shard corpus\.paths=notes"):
        inspect()
    node = Graph(Store(Path("store")), STAGES).add("shard", compose_config(overrides))
    execute(node)
    capsys.readouterr()
    table = inspect()
    assert "3 of 33 documents dropped" in table
    rows = {line.split()[1]: line.split()[3::2] for line in table.splitlines() if "│" in line}
    assert rows["min_characters"] == rows["min_letters"] == ["1", "1", "1"]
    assert rows["duplicate"] == ["1", "1", "0"], "equal documents are counted only"
    shown = inspect("reason=min_characters")
    assert "notes.jsonl" in shown and "13 characters" in shown and "[red]short[/]" in shown
    with pytest.raises(UsageError, match=r"reason=fraction: .*: min_characters, min_letters"):
        inspect("reason=fraction")
    assert ".dropped.json" not in (node.output.path / "manifest.json").read_text()
    (node.output.path / ".dropped.json").unlink()
    with pytest.raises(SesameError, match=r"kept no sample .*sesame shard --force corpus\.paths"):
        inspect()
