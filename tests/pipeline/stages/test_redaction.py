"""The symbols of redacted text become tokens by themselves, through the stages as they run."""

import json
import random
from pathlib import Path

import pytest

from pipeline.config.compose import compose_config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.execute import execute
from pipeline.workflow.graph import Graph
from tests.data_prep.small_shards import document

OVERRIDES = [
    "experiment=bert_tiny", "corpus.paths=notes.jsonl", "paths.store=store", "corpus.workers=1",
    "tokenizer.vocab_size=90", "tokenizer.workers=1", "examples.workers=1",
    "corpus.redact=[email]",
]  # fmt: skip


def test_symbols_are_tokens_of_a_lower_case_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    texts = [
        f"{document(rng)}\n\nMail quill{n}@canary.example about the {n} flowers. She sings."
        for n in range(60)
    ]
    Path("notes.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    config = compose_config([*OVERRIDES, "corpus.redact_patterns={FLOWER: '[0-9]+ flowers'}"])
    assert config.tokenizer.lowercase and config.tokenizer.user_symbols == []
    graph = Graph(Store(Path("store")), STAGES)
    graph.add("examples", config)
    for node in graph.nodes.values():
        execute(node)
    [vocabulary] = Path("store/tokenizer").glob("*/vocab.txt")
    assert {"[EMAIL]", "[FLOWER]"} <= set(vocabulary.read_text().splitlines())
    assert "several tokens" not in caplog.text
    written = [path for path in Path("store").rglob("*") if path.is_file()]
    assert not [path for path in written if b"canary.example" in path.read_bytes()]

    Path("given.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "mail"]))
    given = [
        "tokenizer.source=given.txt",
        "tokenizer.lowercase=false",
        "tokenizer.strip_accents=false",
    ]
    graph = Graph(Store(Path("store")), STAGES)
    graph.add("examples", compose_config([*OVERRIDES, *given]))
    for node in graph.nodes.values():
        if not node.output.is_done:
            execute(node)
    assert "splits [EMAIL] into several tokens" in caplog.text
