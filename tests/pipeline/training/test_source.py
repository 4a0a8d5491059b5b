"""Going on from a model: another architecture or vocabulary is refused, missing heads are named."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import transformers

from data_prep.errors import UsageError
from pipeline.config.compose import compose_config
from pipeline.models.bert.architectures import BERT
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.network import BertForPretraining
from pipeline.models.elmo.allennlp import write_allennlp
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import Elmo
from pipeline.stages.pretrain import Pretrain, make_job
from pipeline.training.build import start_from
from pipeline.training.job import Job
from tests.pipeline.toy_pretraining import VOCABULARY, Toy, toy_config

SIZE = len(VOCABULARY)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy.make(tmp_path_factory.mktemp("toy"))


def job(toy: Toy, source: Path) -> Job:
    return replace(make_job(toy.work("continued", toy_config()), None), source=str(source))


def save(folder: Path, vocab_size: int = SIZE, **changes: int) -> Path:
    """A bare encoder of the toy's architecture, without any head, as many are shared."""
    model = toy_config().model
    assert isinstance(model, BertConfig)
    stated = BERT.stated(replace(model, **changes), vocab_size, 0)
    config = transformers.BertConfig(**stated)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def test_missing_heads_start_fresh_and_are_listed(toy: Toy, tmp_path: Path) -> None:
    said: list[str] = []
    own = job(toy, save(tmp_path / "bare"))
    start_from(BertForPretraining(own.model, SIZE), own, said.append)
    assert said == ["pooler, masked-LM head, pair head not in init.source: starting fresh"]


def test_another_vocabulary_is_refused_with_both_sizes(toy: Toy, tmp_path: Path) -> None:
    own = job(toy, save(tmp_path / "larger", vocab_size=99))
    with pytest.raises(UsageError, match=rf"of 99 tokens, but the tokenizer has {SIZE}"):
        start_from(BertForPretraining(own.model, SIZE), own, sys.stdout.write)


def test_another_architecture_is_refused_before_any_work_with_what_to_set(tmp_path: Path) -> None:
    folder = save(tmp_path / "other", layers=3, intermediate=70)
    config = compose_config(
        [
            "experiment=bert_tiny", f"init.source={folder}", f"paths.store={tmp_path / 'store'}",
            "model.hidden=30",
            "model.max_positions=64", "examples.max_seq_length=64", "pretrain.phases=[]",
        ]
    )  # fmt: skip
    with pytest.raises(UsageError) as raised:
        Pretrain().inputs(config)
    assert str(raised.value) == (
        "model.layers=2, model.intermediate=512: the model of init.source is another; "
        "set model.layers=3 model.intermediate=70"
    )


def test_an_allennlp_pair_of_other_sizes_is_refused_before_any_work(tmp_path: Path) -> None:
    write_allennlp(tmp_path, Elmo(ElmoConfig(cell=12, projection=6, filters=[[1, 4], [2, 6]])))
    source = [f"init.source={tmp_path}", f"paths.store={tmp_path / 'store'}", "corpus.paths=texts"]
    sizes = ["model.cell=14", "model.projection=6", "model.highways=2"]
    with pytest.raises(UsageError) as raised:
        Pretrain().inputs(compose_config(["experiment=elmo_tiny", *source, *sizes]))
    assert str(raised.value).endswith(
        "the model of init.source is another; set model.cell=12 'model.filters=[[1, 4], [2, 6]]'"
    )
    with pytest.raises(UsageError, match=r"model\.kind=bert: .* is of kind elmo"):
        Pretrain().inputs(compose_config(["experiment=bert_tiny", *source]))
