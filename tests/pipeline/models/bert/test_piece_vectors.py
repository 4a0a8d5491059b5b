"""Embeddings that start from word vectors keep what these say, of every piece they tell of."""

from pathlib import Path

import numpy as np
import pytest
import torch

from data_prep.errors import UsageError
from data_prep.examples.masking import MaskRule
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from data_prep.vectors.table import VectorTable
from pipeline.config.compose import compose_config
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.network import BertForPretraining
from pipeline.models.bert.piece_vectors import piece_vectors
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.tracking.config import TrackingConfig
from pipeline.training.config import OptimConfig, TrainerConfig
from pipeline.training.job import Job
from pipeline.training.network import make_network, start_from
from pipeline.workflow.graph import Graph

PIECES = ["river", "town", "play", "##ed", "##ing", "never"]
WORDS = ["river", "town", "playing", "played", "play"]
WIDTH = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    vocabulary = [*Specials().names(), *PIECES]
    library = from_vocabulary(vocabulary, lowercase=True, strip_accents=False, specials=Specials())
    write_folder(folder, library, Specials(), None)
    return folder


@pytest.fixture
def table() -> VectorTable:
    drawn = np.random.default_rng(0).normal(1, 3, (len(WORDS), WIDTH))
    return VectorTable(WORDS, drawn.astype(np.float32))


def test_pieces_lie_as_their_words_do(folder: Path, table: VectorTable) -> None:
    tokenizer = Tokenizer.load(folder)
    pieces, vectors = piece_vectors(table, tokenizer, WIDTH, 0.02)
    named = dict(zip([tokenizer.piece(int(id)) for id in pieces], vectors, strict=True))
    assert set(named) == {"river", "town", "play", "##ed", "##ing"}
    of = dict(zip(table.words, table.vectors, strict=True))
    scale = (named["river"] - named["town"]) / (of["river"] - of["town"])
    np.testing.assert_allclose(scale, scale[0], rtol=1e-3)
    for piece, word in (("play", "play"), ("##ed", "played"), ("##ing", "playing")):
        moved = scale[0] * (of[word] - of["river"])
        np.testing.assert_allclose(named[piece] - named["river"], moved, atol=1e-5)
    assert vectors.std() == pytest.approx(0.02, rel=1e-3)


def test_a_network_starts_with_them(folder: Path, table: VectorTable, tmp_path: Path) -> None:
    table.write(tmp_path)
    model = BertConfig(layers=1, hidden=WIDTH, heads=2, intermediate=16, max_positions=8)
    tokenizer = Tokenizer.load(folder)
    job = Job(
        name="toy", model=model, optim=OptimConfig(), trainer=TrainerConfig(),
        tracking=TrackingConfig(mode="disabled"), masks=MaskRule(), phases=[], examples=[],
        tokenizer=str(folder), vocab_size=tokenizer.size, source=None, vectors=str(tmp_path),
        checkpoint=None,
    )  # fmt: skip
    network, _ = make_network(job)
    assert isinstance(network, BertForPretraining)
    before = network.bert.embeddings.tokens.weight.detach().clone()
    said: list[str] = []
    start_from(network, job, said.append)
    after = network.bert.embeddings.tokens.weight
    pieces, vectors = piece_vectors(table, tokenizer, WIDTH, model.init_std)
    torch.testing.assert_close(after[pieces], torch.from_numpy(vectors))
    changed = (before != after).any(1).nonzero()[:, 0]
    assert changed.tolist() == pieces.tolist()
    assert said == ["5 of 11 embeddings start from vectors of words"]


def test_vectors_of_another_width_are_refused(folder: Path, table: VectorTable) -> None:
    with pytest.raises(UsageError, match=r"8 wide, but model\.hidden=16"):
        piece_vectors(table, Tokenizer.load(folder), 16, 0.02)


def test_they_fit_the_model_and_tell_runs_apart(tmp_path: Path) -> None:
    store = f"paths.store={tmp_path}"
    plain = Graph(Store(tmp_path), STAGES).add(
        "pretrain", compose_config(["experiment=smoke", store])
    )
    graph = Graph(Store(tmp_path), STAGES)
    config = compose_config(["experiment=smoke", "init.vectors=true", store])
    node = graph.add("pretrain", config)
    assert node.output.fingerprint != plain.output.fingerprint
    [vectors] = [each for each in graph.nodes.values() if each.stage == "vectors"]
    assert vectors.config.vectors.width == config.model.hidden
    assert vectors.config.vectors.lowercase == config.tokenizer.lowercase


def test_models_that_have_their_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"init\.source brings its embeddings"):
        compose_config(["experiment=smoke", "init.vectors=true", "init.source=mine"])
    elmo = compose_config(["experiment=elmo_demo", "init.vectors=true", f"paths.store={tmp_path}"])
    with pytest.raises(UsageError, match=r"init\.vectors=True: model\.kind=elmo embeds char"):
        Graph(Store(tmp_path), STAGES).add("pretrain", elmo)
