"""Held-out examples by source and language: each counts once, and the whole loss is theirs."""

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from data_prep.config import CorpusConfig, TokenizerConfig
from data_prep.corpus.build import make_shards
from data_prep.examples.build import build
from data_prep.examples.chunks import ChunkStore, concatenate
from data_prep.tokenizers.build import build_tokenizer
from pipeline.data.loader import HeldOut
from pipeline.data.strata import Stratum, read_strata
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.network import BertForPretraining
from pipeline.models.bert.objective import MaskedTokens
from pipeline.training.callbacks import evaluate
from pipeline.training.whole_engines import SingleEngine
from tests.data_prep.corpus.test_strata import ENGLISH, SWEDISH, texts, write_corpus
from tests.data_prep.small_examples import config


@pytest.fixture(scope="module", params=[False, True], ids=["unpacked", "packed"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChunkStore:
    folder = tmp_path_factory.mktemp("strata")
    sources = write_corpus(
        folder / "text", {"books": texts(ENGLISH, 300, 4), "news": texts(SWEDISH, 250, 4)}
    )
    for name in ("shards", "tokenizer", "examples"):
        (folder / name).mkdir()
    corpus = CorpusConfig(sources=sources, max_repetition=1.0, workers=1)
    make_shards(corpus, folder / "shards")
    build_tokenizer(
        folder / "shards", folder / "tokenizer", TokenizerConfig("wordpiece", 120, workers=1)
    )
    settings = config(max_seq_length=128, packing=request.param)
    build(folder / "shards", folder / "tokenizer", folder / "examples", settings)
    return ChunkStore(folder / "examples", "heldout")


def examples(batches: Iterable[Any]) -> int:
    return sum(len(batch.pair_labels_E) for batch in batches)


def test_strata_divide_the_held_out_examples(store: ChunkStore) -> None:
    strata = read_strata(store)
    assert strata.keys() == {"source/books", "source/news", "language/en", "language/sv"}
    assert strata["source/books"] == strata["language/en"]
    whole = concatenate([store.read(number) for number in range(store.chunks)])
    for by in ("source", "language"):
        listed = sorted(
            document for name, own in strata.items() if name.startswith(by) for document in own
        )
        assert listed == sorted(set(whole.documents[:, 0].tolist()))
        counts = [
            examples(Stratum(store, own, rows=10**6, micro_batch_size=4))
            for name, own in strata.items()
            if name.startswith(by)
        ]
        assert sum(counts) == whole.examples and all(counts)


def test_ranks_have_equal_batches_and_share_the_examples(store: ChunkStore) -> None:
    own = read_strata(store)["language/sv"]
    alone = examples(Stratum(store, own, rows=10**6, micro_batch_size=3))
    ranks = [
        Stratum(store, own, rows=10**6, micro_batch_size=3, rank=rank, world=3) for rank in range(3)
    ]
    assert len({len(each) for each in ranks}) == 1
    assert sum(map(examples, ranks)) == alone


def test_only_the_rows_of_the_whole_evaluation_count(store: ChunkStore) -> None:
    own = sorted({document for each in read_strata(store).values() for document in each})
    few = concatenate([store.read(0)]).between(0, 5)
    assert examples(Stratum(store, own, rows=5, micro_batch_size=4)) == few.examples
    assert len(Stratum(store, [10**6], rows=5, micro_batch_size=4)) == 0


def test_the_whole_loss_is_that_of_its_strata(store: ChunkStore) -> None:
    torch.manual_seed(0)
    model = BertForPretraining(
        BertConfig(layers=1, hidden=16, heads=2, intermediate=32, positions=128), store.vocab_size
    )
    engine = SingleEngine(torch.device("cpu"))
    engine.model = model
    module: Any = SimpleNamespace(
        engine=engine, objective=MaskedTokens(), device=torch.device("cpu")
    )
    whole = evaluate(module, HeldOut(store, rows=10**6, micro_batch_size=4))
    sums = np.zeros(2)
    for name, documents in read_strata(store).items():
        if name.startswith("language"):
            batches = Stratum(store, documents, rows=10**6, micro_batch_size=4)
            loss = evaluate(module, batches)["mlm_loss"]
            predictions = sum(len(batch.labels_M) for batch in batches)
            sums += [(loss or 0.0) * predictions, predictions]
    assert sums[0] / sums[1] == pytest.approx(whole["mlm_loss"], rel=1e-5)


def test_a_corpus_without_division_has_no_strata(store: ChunkStore, tmp_path: Path) -> None:
    for file in store.folder.iterdir():
        if file.name != "heldout-strata.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    assert read_strata(ChunkStore(tmp_path, "heldout")) == {}
    assert json.loads((store.folder / "heldout-strata.json").read_text()).keys() == {
        "by_source", "by_language",
    }  # fmt: skip
