"""Going on from a model: the corpus has grown, and training goes on from what was learnt before."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from data_prep.examples.chunks import ChunkStore
from pipeline.data.loader import HeldOut
from pipeline.models.bert.huggingface import load_for_pretraining
from pipeline.models.bert.objective import MaskedTokens
from pipeline.models.elmo.allennlp import write_allennlp
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import Elmo
from pipeline.models.sums import Sums
from tests.conftest import Sesame
from tests.test_data_stages import SMALL_WORDS, write_texts

STEPS = 300
SPECIALS = 5  # the first pieces of a vocabulary, never asked for
# Half as many documents again, and rows of one length, on which a young model learns soon.
GROWN = (
    "experiment=smoke", "name=grown", "init.source=smoke", "corpus.fraction=0.03",
    "pretrain.phases=[]", "examples.max_seq_length=32", "trainer.strategy=single",
    "trainer.devices=1", "trainer.global_batch_size=32", f"trainer.max_steps={STEPS}",
    f"trainer.eval_every={STEPS}", f"trainer.checkpoint_every={STEPS}", "trainer.eval_rows=1000",
    "trainer.log_every=50", "trainer.threads=1", "optim.lr=2e-3", "tracking=none",
)  # fmt: skip


@pytest.fixture(scope="module")
def grown(smoke: Sesame, tmp_path_factory: pytest.TempPathFactory) -> Sesame:
    """A user whose corpus has grown since the smoke run, and who went on from its model."""
    user = Sesame(tmp_path_factory.mktemp("grown"))
    shutil.copytree(smoke.store, user.store)
    user.succeed("pretrain", *GROWN)
    return user


def output(user: Sesame, stage: str) -> Path:
    return user.folder / user.succeed("path", stage, *GROWN).stdout.strip()


def held_out_loss(user: Sesame, step: int) -> float:
    lines = map(json.loads, (output(user, "pretrain") / "metrics.jsonl").read_text().splitlines())
    (found,) = (line for line in lines if line["step"] == step and "heldout_loss" in line)
    loss: float = found["heldout_mlm_loss"]
    return loss


def test_the_vocabulary_comes_with_the_model_and_the_text_is_new(
    smoke: Sesame, grown: Sesame
) -> None:
    (before,) = smoke.store.glob("tokenizer/*")
    manifest = json.loads((output(grown, "pretrain") / "manifest.json").read_text())
    assert manifest["upstream"]["tokenizer"] == f"tokenizer/{before.name}"
    assert len(list(grown.store.glob("tokenizer/*"))) == 1
    (shards,) = smoke.store.glob("shard/*")
    assert output(grown, "shard").name != shards.name


def test_the_first_held_out_loss_is_the_source_models_own(smoke: Sesame, grown: Sesame) -> None:
    (export,) = smoke.store.glob("export/*")
    model, fresh = load_for_pretraining(export)
    assert fresh == []
    sums = Sums()
    with torch.no_grad():
        rows = ChunkStore(output(grown, "examples"), "heldout")
        for batch in HeldOut(rows, rows=1000, micro_batch_size=64):
            losses = model.eval()(batch)
            sums += MaskedTokens().count(batch) + Sums(
                {name: part.item() for name, part in losses._asdict().items()}
            )
    assert held_out_loss(grown, 0) == pytest.approx(sums.mean("mlm_sum", "predictions"), rel=1e-5)


def test_learning_is_real(grown: Sesame) -> None:
    """After a few hundred steps held-out pieces are guessed better than from their frequencies."""
    examples = output(grown, "examples")
    train, held_out = ChunkStore(examples, "train"), ChunkStore(examples, "heldout")
    seen = np.ones(train.vocab_size)  # one more of each, so that none is impossible
    for number in range(train.chunks):
        tokens = train.read(number).tokens
        seen += np.bincount(tokens[tokens >= SPECIALS], minlength=train.vocab_size)
    nats = -np.log(seen / seen.sum())
    asked = np.concatenate(
        [batch.labels_M.numpy() for batch in HeldOut(held_out, rows=1000, micro_batch_size=64)]
    )
    unigram = float(nats[asked].mean())
    assert 3 < unigram < math.log(train.vocab_size)
    assert held_out_loss(grown, STEPS) < unigram - 0.1


def test_a_published_elmo_goes_on_with_a_fresh_softmax(sesame: Sesame) -> None:
    """From a pair as others share it: no vocabulary and no softmax beside it."""
    write_texts(sesame.folder / "texts")
    (sesame.folder / "pair").mkdir()
    sizes = {"cell": 12, "projection": 6, "filters": [[1, 4], [2, 6]], "highways": 1}
    published = Elmo(ElmoConfig(**sizes))
    write_allennlp(sesame.folder / "pair", published)
    own = ["experiment=elmo_tiny", "init.source=pair", *SMALL_WORDS[1:], "tracking=none"]
    budget = ["trainer.global_batch_size=4", "trainer.max_steps=1", "optim.lr=0"]
    model = [f"model.{name}={value}".replace(" ", "") for name, value in sizes.items()]
    said = sesame.succeed("pretrain", *own, *budget, *model).stderr
    assert "the softmax over words not in init.source: starting fresh" in said
    (trained,) = sesame.store.glob("pretrain/*/checkpoints/*/weights-*.safetensors")
    weights = load_file(trained)
    for name, weight in published.state_dict().items():
        torch.testing.assert_close(weights[f"elmo.{name}"], weight, atol=1e-6, rtol=0)
