"""`sesame bench train`: a training step, against transformers in a plain loop and its limits.

Both sides have the same rows (BERT's mix of lengths at 128 positions, or packed rows of the
configured corpus), threads and optimizer, and they alternate. The peer pads to the longest row and
computes logits at all positions, as `BertForPreTraining` does. Further figures: FLOPs, both those
the model needs and those we compute, against a plain matrix product of the feed-forward layer's
size; the time of a real run outside its steps; and memory, with one process per side.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.bench.figures import Figure, compared
from pipeline.bench.turns import alternate
from pipeline.bench.usage import peak_bytes
from pipeline.config.schema import Config
from pipeline.data.batch import Batch, collate
from pipeline.models.bert.architectures import BERT
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.cost import BertCost
from pipeline.models.bert.network import BertForPretraining
from pipeline.stages import STAGES
from pipeline.tracking.config import TrackingConfig

VOCAB, LENGTH, MASKED, SHORT = 30_522, 128, 0.15, 0.1
PAD = 0
MEMORY_STEPS = 3


@dataclass(frozen=True)
class Size:
    """A model and the amount of work per round."""

    name: str
    config: BertConfig
    rows: int
    rounds: int


MINI = Size("bert_mini", BertConfig(layers=4, hidden=256, heads=4, intermediate=1024), 32, 9)
SIZES = (
    Size("bert_tiny", BertConfig(layers=2, hidden=128, heads=2, intermediate=512), 32, 15),
    MINI,
    Size("bert_base", BertConfig(), 8, 3),
)


def measure(config: Config) -> list[Figure]:
    """Return all figures about training."""
    figures = [_against_peer(size, _rows(size), "") for size in SIZES]
    figures += [
        _against_product(size, name, count)
        for name, count in (
            ("model FLOPs", BertCost.model_flops_per_token),
            ("computed FLOPs", BertCost.flops_per_token),
        )
        for size in SIZES[1:]
    ]
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer, examples = _packed_examples(config, Path(scratch))
        packed = _first_rows(tokenizer, examples, MINI.rows)
        figures.append(_against_peer(MINI, packed, ", packed rows of the corpus"))
        figures += _outside_of_steps(tokenizer, examples, Path(scratch))
    return [*figures, *(_memory(size) for size in SIZES[1:])]


def _against_peer(size: Size, batch: Batch, rows: str) -> Figure:
    """Return the useful tokens per second of a whole step."""
    step, peer_step = _our_step(size, batch), _peer_step(size, batch)
    step(), peer_step()  # the first step allocates
    rounds = alternate(step, peer_step, size.rounds)
    return compared(f"{size.name}, useful tokens{rows}", len(batch.tokens_N), "tokens/s", rounds)


def _against_product(size: Size, what: str, per_token: Callable[..., float]) -> Figure:
    """Return FLOPs per second, against plain products of the feed-forward layer's size."""
    batch = _rows(size)
    tokens, length = len(batch.tokens_N), float((batch.lengths**2).sum() / batch.lengths.sum())
    flops = tokens * per_token(BertCost(size.config, VOCAB), length, MASKED)
    left = torch.randn(tokens, size.config.hidden)
    right = torch.randn(size.config.hidden, size.config.intermediate)
    out = left @ right
    times = round(flops / (2 * left.numel() * right.shape[1]))

    def product() -> None:
        for _ in range(times):
            torch.mm(left, right, out=out)

    step = _our_step(size, batch)
    step()
    product()
    rounds = alternate(step, product, size.rounds)
    return compared(f"{size.name}, {what} against a plain product", flops / 1e9, "GFLOP/s", rounds)


def _packed_examples(config: Config, scratch: Path) -> tuple[Path, Path]:
    """Return the configuration's tokenizer, and its examples packed into rows of LENGTH."""
    from data_prep.examples.build import build
    from pipeline.store.outputs import Store
    from pipeline.workflow.execute import execute_all
    from pipeline.workflow.graph import Graph

    own = replace(config.examples, max_seq_length=LENGTH, packing=True, masking="dynamic")
    graph = Graph(Store(Path(config.paths.store)), STAGES)
    examples = graph.add("examples", replace(config, examples=own))
    execute_all([node for node in graph.nodes.values() if node is not examples])
    out = scratch / "examples"
    out.mkdir()
    build(examples.inputs["shard"].path, examples.inputs["tokenizer"].path, out, own)
    return examples.inputs["tokenizer"].path, out


def _first_rows(tokenizer: Path, examples: Path, count: int) -> Batch:
    from data_prep.examples.chunks import ChunkStore
    from data_prep.examples.masking import MaskRule, Vocabulary, mask_rows
    from data_prep.tokenizers import Tokenizer

    rows = ChunkStore(examples, "train").read(0).between(0, count)
    vocabulary = Vocabulary.of(Tokenizer.load(tokenizer))
    numbers, rule = np.arange(count), MaskRule(MASKED)
    return collate(mask_rows(rows, 0, np.zeros(count, np.int64), numbers, vocabulary, rule))


def _outside_of_steps(tokenizer: Path, examples: Path, scratch: Path) -> list[Figure]:
    """Return the time of a real bert_mini run outside forward, backward and update."""
    from data_prep.examples.masking import MaskRule
    from data_prep.tokenizers import Tokenizer
    from pipeline.cluster.slurm import steps
    from pipeline.training.config import OptimConfig, PhaseConfig, TrainerConfig
    from pipeline.training.job import Job
    from pipeline.training.launch import launch

    trainer = TrainerConfig(
        accelerator="cpu", global_batch_size=MINI.rows, max_steps=16, log_every=4, seed=0,
        eval_every=1000, eval_rows=1, loader_workers=0,
    )  # fmt: skip
    job = Job(
        name="bench", model=MINI.config, optim=OptimConfig(), trainer=trainer,
        tracking=TrackingConfig(mode="disabled"), masks=MaskRule(MASKED),
        phases=[PhaseConfig(LENGTH)], examples=[str(examples)], tokenizer=str(tokenizer),
        vocab_size=Tokenizer.load(tokenizer).size, source=None, checkpoint=None,
    )  # fmt: skip
    run_dir = scratch / "run"
    run_dir.mkdir()
    launch(run_dir, job, steps())
    lines = [json.loads(line) for line in (run_dir / "timing.jsonl").read_text().splitlines()]
    lines = lines[1:]  # the first line includes the first step, which allocates
    seconds = sum(line["seconds"] for line in lines)
    return [
        Figure(
            f"bert_mini, {what}",
            100 * sum(line[key] * line["seconds"] for line in lines) / seconds,
            "%",
        )
        for key, what in (
            ("overhead", "time outside of data and step"),
            ("data_wait", "time waiting for data"),
        )
    ]


def _memory(size: Size) -> Figure:
    """Return the peak memory of a few steps in a process, without its libraries."""
    ours, peer = (
        float(
            subprocess.run(
                [sys.executable, "-m", "pipeline.bench.train", side, size.name],
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
        )
        for side in ("ours", "peer")
    )
    return Figure(f"{size.name}, peak memory", ours / 1e6, "MB", peer / 1e6, peer / ours)


def _print_memory(side: str, name: str) -> None:
    """Run a few steps of one side and print its memory; `_memory` starts this."""
    size = next(size for size in SIZES if size.name == name)
    batch = _rows(size)
    before = peak_bytes()
    step = {"ours": _our_step, "peer": _peer_step}[side](size, batch)
    for _ in range(MEMORY_STEPS):
        step()
    print(peak_bytes() - before)


def _rows(size: Size) -> Batch:
    """Return rows with BERT's mix of lengths: a tenth of them is shorter."""
    rng = np.random.default_rng(0)
    short = rng.random(size.rows) < SHORT
    return _batch(np.where(short, rng.integers(8, LENGTH + 1, size.rows), LENGTH), rng)


def _our_step(size: Size, batch: Batch) -> partial[None]:
    torch.manual_seed(0)
    model = BertForPretraining(size.config, VOCAB).train()
    return partial(_ours, model, _optimizer(model), batch)


def _peer_step(size: Size, batch: Batch) -> partial[None]:
    from transformers import AutoModelForPreTraining
    from transformers import BertConfig as PeerConfig

    torch.manual_seed(0)
    stated = PeerConfig(**BERT.stated(size.config, VOCAB, PAD))
    model = AutoModelForPreTraining.from_config(stated).train()
    return partial(_peer, model, _optimizer(model), _padded(batch))


def _optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def _batch(lengths: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Batch:
    """Return random rows of these lengths, with masks and pair labels."""
    total = int(lengths.sum())
    positions = np.concatenate([np.arange(length) for length in lengths])
    targets = np.sort(rng.choice(total, int(MASKED * total), replace=False))
    return Batch(
        tokens_N=torch.from_numpy(rng.integers(5, VOCAB, total)),
        positions_N=torch.from_numpy(positions),
        segments_N=torch.from_numpy((positions >= LENGTH // 2).astype(np.int64)),
        lengths=lengths,
        targets_M=torch.from_numpy(targets),
        labels_M=torch.from_numpy(rng.integers(5, VOCAB, len(targets))),
        pair_labels_E=torch.from_numpy(rng.integers(0, 2, len(lengths))),
    )


def _padded(batch: Batch) -> dict[str, Tensor]:
    """Return the same rows, padded, as transformers takes them."""
    real_BL = torch.arange(LENGTH) < torch.from_numpy(batch.lengths)[:, None]
    labels_N = torch.full_like(batch.tokens_N, -100)
    labels_N[batch.targets_M] = batch.labels_M

    def spread(values_N: Tensor, fill: int) -> Tensor:
        padded_BL = torch.full(real_BL.shape, fill)
        padded_BL[real_BL] = values_N
        return padded_BL

    return {
        "input_ids": spread(batch.tokens_N, PAD),
        "token_type_ids": spread(batch.segments_N, 0),
        "attention_mask": real_BL.long(),
        "labels": spread(labels_N, -100),
        "next_sentence_label": batch.pair_labels_E,
    }


def _ours(model: BertForPretraining, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    losses = model(batch)
    loss = losses.mlm_sum / len(batch.labels_M) + losses.pair_sum / len(batch.lengths)
    _update(loss, optimizer)


def _peer(model: Any, optimizer: torch.optim.Optimizer, inputs: dict[str, Tensor]) -> None:
    _update(model(**inputs).loss, optimizer)


def _update(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    _print_memory(*sys.argv[1:])
