"""`sesame bench data`: every step from raw text to batches.

First the figures of `sesame bench corpus`. Then, on one core: making examples from text shards,
against the tokenizer library alone, and the speed of the loader. Uses the shards and vocabulary of
the configuration (by default the demo's) and makes them if they are missing.
"""

import itertools
import os
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from data_prep.examples.config import ExamplesConfig
from pipeline.bench import corpus
from pipeline.bench.figures import Figure, compared
from pipeline.bench.turns import alternate, spent
from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.execute import execute_all
from pipeline.workflow.graph import Graph

ROUNDS = 3
BATCH, LENGTH, STEPS = 256, 128, 400
FAR = 10_000_000  # a late step; resuming there must be as fast as at the start


def measure(config: Config) -> list[Figure]:
    """Return all figures about data."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    graph = Graph(Store(Path(config.paths.store)), STAGES)
    examples = graph.add("examples", config)
    execute_all([node for node in graph.nodes.values() if node is not examples])
    shards, tokenizer = examples.inputs["shard"].path, examples.inputs["tokenizer"].path
    with tempfile.TemporaryDirectory() as scratch:
        return [
            *corpus.measure(config),
            _examples(shards, tokenizer, Path(scratch)),
            *_loading(shards, tokenizer, Path(scratch)),
        ]


def _examples(shards: Path, tokenizer: Path, scratch: Path) -> Figure:
    """Compare making validated static examples with only tokenising the text by the library."""
    from data_prep.corpus.shard_format import parts, read_sections
    from data_prep.examples.build import build
    from data_prep.tokenizers import Tokenizer

    library = Tokenizer.load(tokenizer).library
    texts = [
        sentence
        for split in ("train", "heldout")
        for part in parts(shards, split)
        for section in read_sections(part.path, part.start, part.end)
        for sentence in section.sentences
    ]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    config = ExamplesConfig(masking="static", seed=0, workers=1)
    out = scratch / "examples"

    def ours() -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        build(shards, tokenizer, out, config)

    def peer() -> None:
        for batch in _batches(texts):
            library.encode_batch(batch, add_special_tokens=False)

    ours()  # let numba compile first
    rounds = alternate(ours, peer, ROUNDS)
    return compared("text to static NSP examples, against encode_batch", megabytes, "MB/s", rounds)


def _batches(texts: list[str], size: int = 1000) -> list[list[str]]:
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def _loading(shards: Path, tokenizer: Path, scratch: Path) -> list[Figure]:
    """Return the loader's rows per second and the time to resume."""
    from data_prep.examples.build import build
    from data_prep.examples.chunks import ChunkStore
    from data_prep.examples.masking import Vocabulary
    from data_prep.examples.rows import mask_rule
    from data_prep.tokenizers import Tokenizer
    from pipeline.data.cursor import BatchSchedule, Place
    from pipeline.data.loader import Loader
    from pipeline.data.order import Order

    out = scratch / "dynamic"
    out.mkdir()
    config = ExamplesConfig(masking="dynamic", max_seq_length=LENGTH, seed=0)
    build(shards, tokenizer, out, replace(config, workers=0))
    rows = ChunkStore(out, "train")
    vocabulary = Vocabulary.of(Tokenizer.load(tokenizer))
    rule = mask_rule(config, "train")

    def load(first: int, count: int) -> None:
        order = Order(rows.rows_per_chunk, 0, 32)
        schedule = BatchSchedule(BATCH, 0)
        place = Place(step=first, position=first * BATCH)
        loader = Loader(rows, order, vocabulary, rule, schedule, place=place)
        for _ in itertools.islice(loader, count):
            pass

    load(0, 2)
    speed = BATCH * STEPS / min(spent(lambda: load(0, STEPS)).seconds for _ in range(ROUNDS))
    resume = [spent(partial(load, step, 1)).seconds for step in (10, FAR)]
    return [
        Figure("load, mask and collate", speed, "examples/s"),
        Figure("first batch at step 10", resume[0], "s"),
        Figure(f"first batch at step {FAR:,}", resume[1], "s"),
    ]
