"""Untrained models of every kind of task on disk, for tests that do not ask what they answer."""

from pathlib import Path

from pipeline.encoders import random_encoder
from pipeline.models.bert.config import BertConfig
from pipeline.tasks.answers import NumberAnswers
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.finetuned import build, save_model
from pipeline.tasks.kinds import restore
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

WORDS = ["good", "bad", "film", "anna", "bo"]
BERT = BertConfig(layers=1, hidden=16, heads=2, intermediate=32, max_positions=32)
SETTINGS = FinetuneConfig(max_seq_length=32, accelerator="cpu")
TASKS = {
    "mood": TaskConfig(name="mood", kind="classify"),
    "topics": TaskConfig(name="topics", kind="multilabel", metric="micro_f1"),
    "names": TaskConfig(name="names", kind="tag", reader="conll", metric="entity_f1"),
    "quiz": TaskConfig(name="quiz", kind="span", reader="squad", metric="f1"),
    "ends": TaskConfig(name="ends", kind="choice", choices=["one", "two"]),
    "alike": TaskConfig(name="alike", kind="regress", metric="pearson", text_a="a", text_b="b"),
}
LABELS = {"mood": ["down", "up"], "topics": ["film", "plot"], "names": ["O", "B-PER", "I-PER"]}


def write_models(folder: Path) -> None:
    """Write one folder per task below `folder`."""
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    write_toy_tokenizer(tokenizer, WORDS)
    for name, task in TASKS.items():
        encoder = random_encoder(BERT, tokenizer, seed=0)
        answers = (
            NumberAnswers(0.0, 1.0, 0.0, 5.0)
            if task.kind == "regress"
            else restore(task, {} if task.kind == "span" else {"labels": LABELS.get(name, [])})
        )
        (folder / name).mkdir()
        save_model(build(encoder, answers, task, SETTINGS), folder / name)
