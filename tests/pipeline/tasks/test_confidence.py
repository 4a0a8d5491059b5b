"""Confidence is a probability of the model: checked against its logits, and by brute force."""

from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from pipeline.encoders import random_encoder
from pipeline.models.bert.config import BertConfig
from pipeline.tasks.answers import Prediction
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.crf import Crf
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuned import Finetuned
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.splits import Splits
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

WORDS = ["good", "fine", "bad", "dull", "film", "plot"]
TAGS = ["O", "B-X", "I-X"]
MODEL = BertConfig(layers=1, hidden=16, heads=2, intermediate=32, max_positions=32)
CONFIG = FinetuneConfig(lr=5e-3, epochs=1, max_seq_length=32, accelerator="cpu")


def trained(
    folder: Path, task: TaskConfig, splits: Splits, config: FinetuneConfig
) -> tuple[Finetuned, list[Prediction]]:
    encoder = random_encoder(MODEL, write_toy_tokenizer(folder, WORDS), seed=0)
    kept: list[Finetuned] = []
    outcome = finetune(encoder, splits, task, config, keep=kept.append)
    return kept[0], outcome.predictions


def test_a_label_has_its_softmax(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 4)) for _ in range(120)]
    every = [Example((text,), "yes" if "good" in text else "no", text, 0) for text in texts]
    splits = Splits(every[:60], every[60:80], every[80:], ["no", "yes"])
    model, predictions = trained(tmp_path, TaskConfig(name="toy"), splits, CONFIG)
    logits = model.logits(splits.test)
    assert [guess.confidence for guess in predictions] == pytest.approx(softmax(logits, 1).max(1))
    assert len({round(guess.confidence, 6) for guess in predictions}) > 10  # not a constant


@pytest.mark.parametrize("crf", [False, True])
def test_a_sentence_has_the_probability_of_its_least_certain_word(
    tmp_path: Path, crf: bool
) -> None:
    """With a CRF a word's probability is the share of all taggings in which it has its tag."""
    rng = np.random.default_rng(0)
    sentences = [tuple(str(w) for w in rng.choice(WORDS, rng.integers(1, 5))) for _ in range(60)]
    every = [
        Example(words, tuple("B-X" if w == "good" else "O" for w in words), "", 0)
        for words in sentences
    ]
    splits = Splits(every[:30], every[30:40], every[40:], TAGS)
    task = TaskConfig(name="toy", kind="tag", reader="conll", metric="accuracy")
    config = FinetuneConfig(**{**vars(CONFIG), "crf": crf, "epochs": 2, "head_lr": 0.1})
    model, predictions = trained(tmp_path, task, splits, config)
    head = model.model.head
    head.requires_grad_(False)
    chain = head.crf
    head.crf = None  # now `logits` gives the scores of single words
    for example, guess in zip(splits.test, predictions, strict=True):
        assert isinstance(guess.answer, tuple)
        logits = model.logits([example])[:, :3].astype(np.float64)
        tags = [TAGS.index(tag) for tag in guess.answer]
        if chain is None:
            chances = softmax(logits, 1)[np.arange(len(tags)), tags]
        else:
            paths = list(product(range(3), repeat=len(tags)))
            scores = np.array([path_score(logits, chain, path) for path in paths])
            chances = np.array([
                np.exp(logsumexp(scores[[path[n] == tag for path in paths]]) - logsumexp(scores))
                for n, tag in enumerate(tags)
            ])  # fmt: skip
        assert guess.confidence == pytest.approx(chances.min(), rel=1e-4)


def path_score(logits: np.ndarray, chain: Crf, path: tuple[int, ...]) -> float:
    """The score of one tagging: its words, its transitions, its first and its last tag."""
    words = sum(logits[n, tag] for n, tag in enumerate(path))
    steps = sum(float(chain.follows[a, b]) for a, b in pairwise(path))
    return float(words) + steps + float(chain.begins[path[0]]) + float(chain.ends[path[-1]])
