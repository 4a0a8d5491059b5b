"""Runs the stages on configs that record every read of a key, in a process of its own.

    python -m tests.pipeline.stages.recorded_reads <folder>

Writes `<folder>/reads.json`: per output, its stage, the keys that it and the outputs before it
hash, and the keys that the stage read while it ran. Copies of a config (`dataclasses.replace`,
`asdict`, pickle) and the hashing itself are no reads. Ranks and workers run in this process, so
that their reads are seen.
"""

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from data_prep.fields import rule_of
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config
from pipeline.models.registry import FAMILIES
from pipeline.stages import STAGES
from pipeline.stages.report import add_report, reported
from pipeline.store.outputs import Store
from pipeline.training import launch as launching
from pipeline.training.config import PhaseConfig
from pipeline.training.environment import local_variables
from pipeline.training.job import Job
from pipeline.workflow.execute import execute
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Request, Stage, Work
from tests.test_data_stages import write_texts

# Files whose code copies, compares, prints, hashes or checks a whole config.
COPIERS = ("dataclasses.py", "fields.py", "copyreg.py", "<string>", "pickle.py", "copy.py")
TINY = [
    "corpus.paths=texts", "corpus.workers=1", "tokenizer.workers=1", "examples.workers=1",
    "examples.max_seq_length=32", "trainer.max_steps=2", "trainer.global_batch_size=8",
    "trainer.micro_batch_size=8", "trainer.accelerator=cpu", "trainer.eval_rows=16",
    "trainer.threads=1", "tracking=none", "finetune.accelerator=cpu", "finetune.epochs=1",
    "paths.store=store",
]  # fmt: skip
BERT = [*TINY, "experiment=bert_tiny", "tokenizer.vocab_size=120", "model.hidden=16",
        "model.intermediate=16"]  # fmt: skip
ELMO = [*TINY, "experiment=elmo_tiny", "tokenizer.vocab_size=30", "model.cell=16",
        "model.projection=8", "model.filters=[[1,4]]", "model.samples=8"]  # fmt: skip
GIVEN = [*BERT, "tokenizer.source=vocab.txt", "tokenizer.lowercase=false"]
TABLE = [
    "task.name=toy", "task.data_dir=.", "task.train=faulty.tsv", "task.faulty=drop",
    "finetune.batch_size=16",
]  # fmt: skip
TAGS = [
    "task.name=tags", "task.data_dir=.", "task.train=train.conll", "task.kind=tag",
    "task.reader=conll", "task.metric=entity_f1",
]  # fmt: skip
SPANS = [
    "task.name=spans", "task.data_dir=.", "task.train=train.json", "task.kind=span",
    "task.reader=squad", "task.metric=f1",
]  # fmt: skip
HEADS = ["layers.seeds=1", "layers.width=8", "layers.epochs=2", "layers.patience=1"]
SCENARIOS: tuple[tuple[str, list[str]], ...] = (
    ("pretrain", [*BERT, "examples.masking=static", "examples.packing=true"]),
    ("pretrain", [*BERT, "examples.mask_unit=span", "optim.schedule=wsd", "trainer.ramp_steps=1"]),
    ("pretrain", [*BERT, "trainer.max_steps=null", "trainer.max_tokens=500"]),
    ("export", ELMO),
    ("export", BERT),
    ("tokenizer", [*BERT, "tokenizer=bpe"]),
    ("tokenizer", GIVEN),
    ("vectors", [*BERT, "vectors.min_count=1", "vectors.epochs=1"]),
    ("vectors", [*BERT, "vectors.source=glove.txt"]),
    ("finetune", [*BERT, *TABLE, "encoder=random", "finetune.epochs=2", "finetune.patience=1"]),
    ("finetune", [*ELMO, *TABLE, "encoder=random"]),
    ("finetune", [*BERT, *TABLE, "encoder=tfidf"]),
    ("finetune", [*BERT, *TABLE, "encoder=majority"]),
    ("finetune", [*BERT, *TABLE, "encoder=glove.txt", "task.kind=regress", "task.metric=pearson"]),
    ("finetune", [*BERT, *TAGS, "encoder=glove.txt", "finetune.crf=true", "finetune.head=bilstm"]),
    ("finetune", [*BERT, *SPANS, "encoder=random"]),
    ("finetune", [*BERT, "task=suite", "encoder=majority"]),
    ("model", [*BERT, *TABLE, "encoder=random"]),
    ("model", [*BERT, *TAGS, "encoder=glove.txt"]),
    ("report", [*BERT, *TABLE, "encoder=majority"]),
    ("layers", [*BERT, *TAGS, *HEADS, "encoder=glove.txt"]),
    ("layers", [*BERT, *TABLE, *HEADS, "encoder=glove.txt"]),
    ("layers", [*BERT, *SPANS, *HEADS, "encoder=random"]),
)


WORDS = ["the", "river", "was", "old", "and", "slow", "but", "children"]
SUITE = "name: suite\nmetric: average\ndata_dir: .\nmembers:\n  toy: {name: toy, train: train.tsv}"


def write_files(folder: Path) -> None:
    """The corpus, vectors, vocabulary and tasks that the recorded stages read."""
    draw = random.Random(0)
    sentences = [draw.choices(WORDS, k=4) for _ in range(60)]
    rows = [f"{' '.join(each)}\t{draw.randint(0, 1)}" for each in sentences]
    tagged = [f"{w}\t{'B-X' if w == 'old' else 'O'}" for each in sentences for w in (*each, "")]
    articles = []
    for number in range(40):
        context = f"river {number} was old and slow"
        answer = {"text": "old", "answer_start": context.index("old")}
        asked = {"id": str(number), "question": "was slow", "answers": [answer]}
        articles.append(
            {"title": f"t{number}", "paragraphs": [{"context": context, "qas": [asked]}]}
        )
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    write_texts(folder / "texts")
    (folder / "conf" / "task").mkdir(parents=True)
    for name, text in {
        "glove.txt": "".join(f"{word} {n} {n + 1}\n" for n, word in enumerate(WORDS)),
        "vocab.txt": "\n".join([*specials, *WORDS, *"abcdefghijklmnopqrstuvwxyz"]) + "\n",
        "train.tsv": "\n".join(["sentence\tlabel", *rows, ""]),
        "faulty.tsv": "\n".join(["sentence\tlabel", *rows, "\t1", ""]),
        "train.conll": "\n".join("" if line == "\tO" else line for line in tagged) + "\n",
        "train.json": json.dumps({"version": "1.1", "data": articles}),
        "conf/task/suite.yaml": SUITE,
    }.items():
        (folder / name).write_text(text)


@dataclass
class Recorder:
    """The reads of the stage that runs at the moment."""

    stage: str = ""
    reads: set[str] | None = None

    @contextmanager
    def of(self, stage: str) -> Iterator[set[str]]:
        before, self.stage, self.reads = self.reads, stage, set()
        yield self.reads
        self.reads = before


def watch(recorder: Recorder) -> None:
    """Make every config dataclass report the reads of its fields."""
    for section, schema in sections():
        names = {item.name for item in fields(schema)}
        original = schema.__getattribute__

        def read(
            self: Any,
            name: str,
            section: str = section,
            names: set[str] = names,
            original: Callable[..., Any] = original,
        ) -> Any:
            if recorder.reads is not None and name in names:
                caller = sys._getframe(1).f_code.co_filename
                if not caller.endswith(COPIERS):
                    recorder.reads.add(f"{section}{name}")
            return original(self, name)

        schema.__getattribute__ = read  # type: ignore[method-assign]


def sections() -> Iterator[tuple[str, type]]:
    """Yield prefix and dataclass of every section."""
    yield "", Config
    yield "pretrain.phases.", PhaseConfig
    for item in fields(Config):
        value = getattr(Config(), item.name)
        if is_dataclass(value) and item.name != "model":
            yield f"{item.name}.", type(value)
    for family in FAMILIES.values():
        yield "model.", family.config


def keys_of(config: dict[str, Any]) -> list[str]:
    """Return the keys of a request's config that are keys of the schema, not markers of a stage."""
    known = {f"{section}{item.name}" for section, schema in sections() for item in fields(schema)}
    keys = {f"{section}.{key}" for section, values in config.items() for key in values}
    for phase in config.get("pretrain", {}).get("phases", []):
        keys |= {f"pretrain.phases.{key}" for key in phase}
    return sorted(keys & known)


def result_keys_of(config: Config) -> dict[str, bool]:
    """Return for every result key whether it has its default."""
    found = {}
    for section, schema in sections():
        holder = getattr(config, section.rstrip("."), None) if section else config
        if type(holder) is schema:
            default = schema()
            for item in fields(holder):
                is_default = getattr(holder, item.name) == getattr(default, item.name)
                if rule_of(item).is_result:
                    found[f"{section}{item.name}"] = is_default
    return found


def train_here(run_dir: Path, job: Job, master: Any) -> None:
    """Train in this process instead of ranks of their own."""
    from pipeline.training.exits import REPORTS
    from pipeline.training.rank import train
    from pipeline.training.stopping import StopRequest

    (run_dir / REPORTS).mkdir(exist_ok=True)
    job.write(run_dir)
    os.environ.update(local_variables(job.trainer) | {"RANK": "0", "LOCAL_RANK": "0"})
    assert train(run_dir, StopRequest())


def main(folder: Path) -> None:
    """Make the outputs of all scenarios below `folder`, each once, and write what they read."""
    os.chdir(folder)
    recorder, rows = Recorder(), []
    watch(recorder)
    launching.launch = train_here
    for stage, overrides in SCENARIOS:
        config = compose_config(overrides)
        graph = Graph(Store(Path("store")), STAGES)
        graph.request(Request("finetune" if stage == "report" else stage, config))
        if stage == "report":
            add_report(graph, config, reported(graph))
        for node in graph.nodes.values():
            if node.output.is_done:
                continue
            with _recorded(node.maker, recorder) as reads:
                execute(node)
            before = graph.store.ancestors(node.output)
            rows.append(
                {
                    "stage": node.stage,
                    "overrides": overrides,
                    "hashed": keys_of(node.request["config"]),
                    "hashed_before": [k for o in before for k in keys_of(o.request()["config"])],
                    "read": sorted(reads),
                    "result_keys": result_keys_of(node.config),
                }
            )
    Path("reads.json").write_text(json.dumps(rows, indent=1))


@contextmanager
def _recorded(maker: Stage, recorder: Recorder) -> Iterator[set[str]]:
    """Record what `maker.run` reads, and nothing that the workflow around it reads."""
    run, reads = maker.run, set()

    def recorded(work: Work) -> dict[str, Any]:
        with recorder.of(maker.name) as found:
            counts = run(work)
        reads.update(found)
        return counts

    maker.run = recorded  # type: ignore[method-assign]
    try:
        yield reads
    finally:
        del maker.run  # type: ignore[method-assign]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
