"""The table of a sweep over tokenizers."""

import json
from pathlib import Path

from rich.console import Console

from pipeline.commands.vocabularies import vocabulary_table


def test_a_row_a_tokenizer_told_by_what_differs(tmp_path: Path) -> None:
    heldout = {"fertility": 1.23456, "unknown_rate": 0.5, "coverage": 1.0, "changed_characters": 0}
    given = []
    for kind, content in (("bpe", {"heldout": heldout}), ("unigram", {})):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "statistics.json").write_text(json.dumps({"vocab_size": 8000, **content}))
        given.append(([f"tokenizer={kind}", "corpus.paths=texts"], folder))
    console = Console(width=140, record=True)
    console.print(vocabulary_table(given))
    said = console.export_text()
    assert "corpus.paths" not in said and "8,000" in said
    bpe, unigram = (line for line in said.splitlines() if "tokenizer=" in line)
    assert "1.235" in bpe and "50.000 %" in bpe and "100.000 %" in bpe
    assert unigram.count("–") == 4
