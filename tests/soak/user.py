"""A user of the soak: a tiny corpus and task, and one command per stage."""

import random
from pathlib import Path

from tests.test_data_stages import WORDS, write_texts

COMMON = ("tracking=none", "seed=3", "corpus.paths=texts", "corpus.workers=1",
          "tokenizer.workers=1", "examples.workers=1")  # fmt: skip
BERT = (
    *COMMON, "experiment=bert_tiny", "tokenizer.vocab_size=120", "examples.max_seq_length=32",
    "model.layers=2", "model.hidden=16", "model.heads=2", "model.intermediate=24",
    "model.max_positions=32", "trainer.global_batch_size=8", "trainer.micro_batch_size=4",
    "trainer.max_steps=12", "trainer.checkpoint_every=3", "trainer.eval_every=6",
    "trainer.eval_rows=8", "trainer.log_every=1", "trainer.threads=1", "finetune.epochs=2",
    "finetune.max_seq_length=32",
    "vectors.width=8", "vectors.epochs=1", "vectors.min_count=2",
)  # fmt: skip
ELMO = (
    *COMMON, "experiment=elmo_tiny", "tokenizer.vocab_size=30", "examples.max_seq_length=12",
    "examples.chunk_rows=64", "model.cell=12", "model.projection=6", "model.character_dim=4",
    "model.filters=[[1,4],[2,4]]", "model.window=5", "model.samples=8",
    "trainer.global_batch_size=4", "trainer.max_steps=12", "trainer.checkpoint_every=3",
    "trainer.eval_every=6", "trainer.eval_rows=8", "trainer.log_every=1", "trainer.threads=1",
)  # fmt: skip
TASK = ("task=sst2", "task.data_dir=task", "task.dev=null", "task.test=null",
        "task.unlabelled={}")  # fmt: skip

# In the order of the pipeline: each command needs the outputs of those before it.
STAGES: dict[str, list[str]] = {
    "shard": ["shard", *BERT],
    "tokenizer": ["tokenizer", *BERT],
    "vectors": ["vectors", *BERT],
    "examples": ["examples", *BERT],
    "pretrain": ["pretrain", *BERT],
    "export": ["export", *BERT],
    "finetune": ["finetune", *BERT, *TASK, "encoder=bert_tiny"],
    "report": ["report", *BERT, "runs=[bert_tiny]"],
}
TRAININGS: dict[str, list[str]] = {
    "single": ["pretrain", *BERT],
    "ddp": ["pretrain", *BERT, "trainer.strategy=ddp", "trainer.devices=2"],
    "zero1": ["pretrain", *BERT, "trainer.strategy=zero1", "trainer.devices=2"],
    "zero2": ["pretrain", *BERT, "trainer.strategy=zero2", "trainer.devices=2"],
    "zero3": ["pretrain", *BERT, "trainer.strategy=zero3", "trainer.devices=2"],
    "ELMo": ["pretrain", *ELMO, "trainer.strategy=ddp", "trainer.devices=2"],
}


def write_files(folder: Path) -> None:
    """Write the user's corpus and task."""
    write_texts(folder / "texts")
    (folder / "task").mkdir()
    draw = random.Random(7)
    rows = [f"{' '.join(draw.choices(WORDS, k=6))}\t{number % 2}" for number in range(80)]
    (folder / "task" / "train.tsv").write_text("sentence\tlabel\n" + "\n".join(rows) + "\n")
