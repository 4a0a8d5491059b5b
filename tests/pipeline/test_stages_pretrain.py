"""Settings that a kind of model knows nothing of are refused before anything starts."""

import pytest

from data_prep.errors import UsageError
from pipeline.compose import compose_config
from pipeline.stages.pretrain import inputs


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (
            "tokenizer=unigram",
            r"tokenizer\.kind=unigram: .* words; use tokenizer=words",
        ),
        ("pretrain.phases=[{max_seq_length: 32}]", r"pretrain\.phases=.* has no lengths"),
        ("trainer.ramp_steps=5", r"trainer\.ramp_steps=5: .*; set it to 0"),
        ("trainer.loader_workers=1", r"trainer\.loader_workers=1: .*; set it to 0"),
        ("trainer.activation_checkpointing=true", r"keeps its activations; set it to false"),
        ("trainer.compile=true", r"trainer\.compile=True: .* set it to false"),
    ],
)
def test_elmo_refuses_what_it_has_no_use_for(setting: str, says: str) -> None:
    config = compose_config(["experiment=elmo_tiny", "corpus.paths=texts", setting])
    with pytest.raises(UsageError, match=says):
        inputs(config)


def test_bert_refuses_whole_words() -> None:
    config = compose_config(["experiment=bert_tiny", "corpus.paths=texts", "tokenizer=words"])
    with pytest.raises(UsageError, match=r"tokenizer\.kind=words: .* has no \[MASK\]"):
        inputs(config)
