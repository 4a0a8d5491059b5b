"""Estimate a pretraining by arithmetic alone: memory, tokens, FLOPs, disk, hours and cost.

Reads the configuration and, if they exist, the statistics of its examples in the store. Needs no
torch and writes nothing.
Try it: sesame estimate experiment=bert_base trainer.devices=8
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from data_prep.examples.columns import token_dtype
from data_prep.reading.sources import survey
from pipeline.config.schema import Config
from pipeline.data.cursor import BatchSchedule
from pipeline.estimate.memory import Memory, model_memory
from pipeline.models.cost import Cost, Pass
from pipeline.models.registry import family_of
from pipeline.store.outputs import Store
from pipeline.store.references import Folder, resolve
from pipeline.training.gpus import Gpu
from pipeline.training.schedule import plan_phases
from pipeline.workflow.graph import Graph, Stages

BYTES_PER_PIECE = 4.4  # bytes of text per token: English, 30,000 tokens; used without examples
UNPACKED = {"": 1.0, ".gz": 2.8, ".zst": 3.0, ".bz2": 3.8, ".xz": 3.8}  # prose: expansion factor
USABLE = 0.94  # share of a GPU's memory; the rest is used by CUDA and lost to fragmentation
PIECE_BYTES = 40  # bytes per token in a vocabulary's files
CHECKPOINT_BYTES = 12  # bytes per parameter: fp32 weight and two moments


@dataclass(frozen=True)
class Rows:
    """Counts of a phase's training rows; None where the corpus is not known."""

    tokens_per_row: float
    mean_length: float  # mean length of an example
    count: float | None  # rows per epoch
    tokens: float | None  # tokens per epoch
    size: int | None  # bytes on disk; None if the examples are not made yet


@dataclass(frozen=True)
class PhaseEstimate:
    """The estimate of one phase of pretraining."""

    length: int
    steps: int | None  # None if the budget is in hours
    rows: Rows
    tokens_per_step: float
    flops_per_token: float
    micro_batch: int
    memory: Memory
    epochs: float | None  # over the corpus

    @property
    def flops_per_step(self) -> float:
        return self.flops_per_token * self.tokens_per_step


@dataclass(frozen=True)
class Estimate:
    """The estimate of one pretraining."""

    parameters: int
    vocab_size: int
    ranks: int
    phases: list[PhaseEstimate]
    disk: dict[str, float | None]  # bytes by stage; None if the corpus is not known
    corpus: str  # source of the sizes

    @property
    def tokens(self) -> float | None:
        """Total tokens read; None if the budget is in hours."""
        return _total([phase.tokens_per_step for phase in self.phases], self.phases)

    @property
    def flops(self) -> float | None:
        """Total FLOPs; None if the budget is in hours."""
        return _total([phase.flops_per_step for phase in self.phases], self.phases)


@dataclass(frozen=True)
class Offer:
    """Hours, cost and fit of a pretraining on one kind of GPU."""

    gpu: Gpu
    hours: float
    tokens: float
    cost: float
    needs: float  # bytes per device in the most demanding phase
    remedy: str  # empty if it fits


def estimate(config: Config, stages: Stages) -> Estimate:
    """Return the estimate of one configuration; raise a UsageError for models other than BERT."""
    model, trainer = config.model, config.trainer
    phases = config.phases
    vocab_size = _vocab_size(config)
    cost = family_of(model).cost(model, vocab_size)
    weights = cost.parameters()
    made = _made_examples(config, stages)
    text = _text_bytes(config)
    rows = [
        _rows_made(path) if path else _rows_guessed(config, phase.max_seq_length, text)
        for path, phase in zip(made, phases, strict=True)
    ]
    plans = plan_phases(
        trainer, [phase.share for phase in phases], [r.tokens_per_row for r in rows]
    )
    estimates = []
    for plan in plans:
        phase, known = phases[plan.number], rows[plan.number]
        micro = (
            phase.micro_batch_size
            or trainer.micro_batch_size
            or trainer.global_batch_size // trainer.world_size
        )
        steps = None if plan.end is None else plan.end - plan.first
        estimates.append(
            PhaseEstimate(
                length=phase.max_seq_length,
                steps=steps,
                rows=known,
                tokens_per_step=trainer.global_batch_size * known.tokens_per_row,
                flops_per_token=cost.flops_per_token(known.mean_length, config.examples.mask_rate),
                micro_batch=min(micro, trainer.global_batch_size // trainer.world_size),
                memory=_memory(config, cost, known, micro),
                epochs=_epochs(config, plan.first, plan.end, known),
            )
        )
    source = "examples in the store" if all(made) else "corpus.paths" if text else ""
    disk = _disk(config, weights, vocab_size, rows, text, estimates)
    return Estimate(weights, vocab_size, trainer.world_size, estimates, disk, source)


def offers(
    found: Estimate, config: Config, gpus: list[Gpu], utilisation: float, price: float | None
) -> list[Offer]:
    """Return one offer per kind of GPU, with all ranks on the same kind."""
    return [_offer(found, config, gpu, utilisation, price) for gpu in gpus]


def _offer(
    found: Estimate, config: Config, gpu: Gpu, utilisation: float, price: float | None
) -> Offer:
    speed = gpu.peak(config.trainer.precision) * utilisation * found.ranks
    hours, tokens = config.trainer.max_hours, found.tokens
    if hours is None:
        assert found.flops is not None
        hours = found.flops / speed / 3600
    if tokens is None:
        tokens = hours * 3600 * speed / found.phases[0].flops_per_token
    hungriest = max(found.phases, key=lambda phase: phase.memory.total)
    needs = hungriest.memory.total
    return Offer(
        gpu,
        hours,
        tokens,
        hours * found.ranks * (gpu.price if price is None else price),
        needs,
        "" if needs <= USABLE * gpu.memory else _remedy(found, config, gpu, hungriest),
    )


def _remedy(found: Estimate, config: Config, gpu: Gpu, phase: PhaseEstimate) -> str:
    """Return the smallest change with which a phase fits into a GPU."""
    cost = family_of(config.model).cost(config.model, found.vocab_size)

    def fits(own: Config, micro: int) -> bool:
        return _memory(own, cost, phase.rows, micro).total <= USABLE * gpu.memory

    rows = phase.micro_batch
    smaller = [size for size in range(rows - 1, 0, -1) if rows % size == 0]
    for size in smaller:
        if fits(config, size):
            return f"micro_batch_size={size} at {phase.length} positions"
    saving = replace(config, trainer=replace(config.trainer, activation_checkpointing=True))
    for size in [rows, *smaller]:
        if fits(saving, size):
            return f"trainer.activation_checkpointing=true and micro_batch_size={size}"
    return "more ranks with trainer.strategy=zero2 or zero3, or a larger GPU"


def _memory(config: Config, cost: Cost, rows: Rows, micro: int) -> Memory:
    """Return the memory of one device in the phase's largest forward pass, with full rows."""
    trainer, examples = config.trainer, config.examples
    share = trainer.global_batch_size // trainer.world_size
    tokens = min(micro, share) * max(rows.tokens_per_row, rows.mean_length)
    one = Pass(
        tokens=tokens,
        mean_length=rows.mean_length,
        predictions=tokens * examples.mask_rate,
        precision=trainer.precision,
        on_host=trainer.accelerator == "cpu",
        checkpointing=trainer.activation_checkpointing,
    )
    states = model_memory(
        cost.parameters(), trainer.strategy, trainer.world_size, trainer.precision
    )
    return replace(states, activations=cost.activation_bytes(one))


def _vocab_size(config: Config) -> int:
    """Return the vocabulary size: as configured, or of the tokenizer or model to start from."""
    store = Store(Path(config.paths.store))
    if config.tokenizer.source is not None:
        from data_prep.tokenizers import Tokenizer

        return Tokenizer.load(_place("tokenizer", config.tokenizer.source, store)).size
    if config.init.source is not None:  # a pretraining and a Hugging Face folder both have it
        stated = _place("pretrain", config.init.source, store) / "config.json"
        return int(json.loads(stated.read_text())["vocab_size"])
    return config.tokenizer.vocab_size


def _place(stage: str, reference: str, store: Store) -> Path:
    key = {"tokenizer": "tokenizer.source", "pretrain": "init.source"}[stage]
    found = resolve(key, reference, stage, store)
    return found.path if isinstance(found, Folder) else found.output.path


def _made_examples(config: Config, stages: Stages) -> list[Path | None]:
    """Return the finished examples of each phase; None for a phase without."""
    store = Store(Path(config.paths.store))
    if not config.corpus.paths or not any(out.is_done for out in store.outputs("examples")):
        return [None] * len(config.phases)
    graph = Graph(store, stages)
    nodes = [
        graph.add(
            "examples",
            replace(config, examples=replace(config.examples, max_seq_length=phase.max_seq_length)),
        )
        for phase in config.phases
    ]
    return [node.output.path if node.output.is_done else None for node in nodes]


def _rows_made(path: Path) -> Rows:
    counted = json.loads((path / "statistics.json").read_text())["train"]
    rows, tokens = max(counted["rows"], 1), counted["tokens"]
    size = sum(file.stat().st_size for file in path.iterdir())
    return Rows(tokens / rows, tokens / max(counted["examples"], 1), rows, tokens, size)


def _rows_guessed(config: Config, length: int, text: float | None) -> Rows:
    """Estimate the rows from the size of the text, assuming full rows."""
    if text is None:
        return Rows(length, length, None, None, None)
    tokens = config.examples.duplicates * text / BYTES_PER_PIECE
    return Rows(length, length, tokens / length, tokens, None)


def _text_bytes(config: Config) -> float | None:
    """Return the uncompressed size of the corpus, correct to about a third if compressed."""
    if not config.corpus.paths and not config.corpus.sources:
        return None
    files = survey(config.corpus.paths, config.corpus.sources).files
    text = sum(file.path.stat().st_size * UNPACKED.get(file.compression, 3.0) for file in files)
    return config.corpus.fraction * text


def _epochs(config: Config, first: int, end: int | None, rows: Rows) -> float | None:
    if end is None or rows.count is None:
        return None
    trainer = config.trainer
    batches = BatchSchedule(trainer.global_batch_size, trainer.ramp_steps)
    ramp = range(first, min(end, max(first, trainer.ramp_steps)))
    read = sum(map(batches.size, ramp)) + (end - first - len(ramp)) * trainer.global_batch_size
    return config.examples.duplicates * read / rows.count


def _disk(
    config: Config,
    weights: int,
    vocab_size: int,
    rows: list[Rows],
    text: float | None,
    phases: list[PhaseEstimate],
) -> dict[str, float | None]:
    """Return the bytes of each stage's output; for pretraining the maximum, while it saves."""
    trainer = config.trainer
    steps = sum(phase.steps or 0 for phase in phases)
    analysed = steps // trainer.keep_every if trainer.keep_every else 0
    saved = (trainer.keep_checkpoints + 1 + analysed) * CHECKPOINT_BYTES * weights
    piece = np.dtype(token_dtype(vocab_size)).itemsize
    # A static mask stores per prediction a position (2 bytes) and the input token there.
    masks = config.examples.mask_rate * (2 + piece) if config.examples.masking == "static" else 0.0
    sizes = [
        row.size if row.size is not None else row.tokens and row.tokens * (piece + masks)
        for row in rows
    ]
    examples = None if None in sizes else float(sum(size or 0.0 for size in sizes))
    return {
        "shard": text,
        "tokenizer": float(PIECE_BYTES * vocab_size),
        "examples": examples,
        "pretrain": float(saved),
        "export": 4.0 * weights,
    }


def _total(per_step: list[float], phases: list[PhaseEstimate]) -> float | None:
    if any(phase.steps is None for phase in phases):
        return None
    return sum(each * (phase.steps or 0) for each, phase in zip(per_step, phases, strict=True))
