"""An exported ELMo: AllenNLP's pair with all that going on training needs, or a clear account."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from data_prep.errors import SesameError, UsageError
from data_prep.examples.masking import MaskRule
from data_prep.tokenizers.vocabulary import read_vocabulary
from pipeline.config.schema import TrackingConfig
from pipeline.encoders import load_encoder
from pipeline.export import allennlp as export_room
from pipeline.export.card import Facts
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.family import SOFTMAX
from pipeline.models.elmo.network import Elmo, ElmoForPretraining
from pipeline.training.config import OptimConfig, PhaseConfig, TrainerConfig
from pipeline.training.job import Job
from pipeline.training.network import make_network, start_from
from tests.pipeline.toy_streams import PREDICTED, make_tokenizer

MODEL = ElmoConfig(
    cell=12, projection=6, character_dim=4, max_characters=12, filters=[[1, 4], [2, 6]], highways=1
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ElmoForPretraining]:
    """An export, and the model it was made of."""
    root = tmp_path_factory.mktemp("export")
    torch.manual_seed(3)
    model = ElmoForPretraining(MODEL, PREDICTED)
    out = root / "out"
    out.mkdir()
    tokenizer = make_tokenizer(root / "tokenizer")
    counts = export_room.export_allennlp(
        model.state_dict(), MODEL, PREDICTED, tokenizer, out, Facts(step=40, tokens=1000)
    )
    assert counts["step"] == 40
    return out, model


def job(source: Path, model: ElmoConfig = MODEL, vocab_size: int = PREDICTED) -> Job:
    return Job(
        name="toy", model=model, optim=OptimConfig(), trainer=TrainerConfig(global_batch_size=4),
        tracking=TrackingConfig(mode="disabled"), masks=MaskRule(), phases=[PhaseConfig()],
        examples=[], tokenizer="", vocab_size=vocab_size, source=str(source), checkpoint=None,
    )  # fmt: skip


def test_the_folder_is_complete_and_loads_as_an_encoder(
    made: tuple[Path, ElmoForPretraining],
) -> None:
    out, _ = made
    assert len(read_vocabulary(out / "vocabulary.txt")) == PREDICTED
    card = (out / "README.md").read_text()
    assert "3 layers, 12 wide" in card and "optimizer steps: 40" in card
    encoder = load_encoder(out)
    encoded = encoder.encode_texts([("w1 w2 rare3 unseen",)], 32)
    assert len(encoder(encoded.batch(torch.arange(1).numpy()))) == MODEL.layers + 1


def test_a_pair_that_reads_otherwise_is_no_export(
    made: tuple[Path, ElmoForPretraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_room, "load_allennlp", lambda folder: Elmo(MODEL))
    with pytest.raises(SesameError, match="the export is not valid"):
        export_room._prove(made[1].elmo.float(), made[0])


def test_going_on_takes_the_softmax_along(made: tuple[Path, ElmoForPretraining]) -> None:
    out, model = made
    network, _ = make_network(job(out))
    said: list[str] = []
    start_from(network, job(out), said.append)
    assert not said
    expected = model.float().state_dict()
    for name, weight in network.state_dict().items():
        assert torch.allclose(weight, expected[name], atol=1e-6), name


def test_a_published_pair_starts_its_softmax_fresh_and_says_so(
    made: tuple[Path, ElmoForPretraining], tmp_path: Path
) -> None:
    for name in ("options.json", "weights.hdf5"):
        (tmp_path / name).write_bytes((made[0] / name).read_bytes())
    assert not (tmp_path / SOFTMAX).exists()
    network, _ = make_network(job(tmp_path, vocab_size=17))
    said: list[str] = []
    start_from(network, job(tmp_path, vocab_size=17), said.append)
    assert said == ["the softmax over words not in init.source: starting fresh"]


def test_another_shape_or_vocabulary_is_refused(made: tuple[Path, ElmoForPretraining]) -> None:
    other = job(made[0], replace(MODEL, cell=14))
    with pytest.raises(UsageError, match=r"model\.cell=14: .*set model\.cell=12"):
        start_from(make_network(other)[0], other, print)
    other = job(made[0], vocab_size=20)
    with pytest.raises(UsageError, match="vocabulary of 43 tokens"):
        start_from(make_network(other)[0], other, print)
