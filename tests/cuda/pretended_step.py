"""Runs one optimizer step per recipe and precision on a pretended CUDA device; prints JSON.

    python -m tests.cuda.pretended_step <shared object of pretended_cuda.cpp>

FakeTensorMode computes the shape, dtype and device of every operation, and no values. Any read of a
value by the host raises an error, except in `Engine.read`, which is replaced and counted here.
`Watch` sees every operation before it is dispatched.

Out of reach: the kernels themselves (flash attention, cuDNN), pinned memory (`_pinned` only notes
its argument), streams, generators, `torch.autocast("cuda")` (its dispatch key is set instead) and
everything in `torch.cuda`.
"""

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RECIPES = {  # by the name of the case: overrides
    "bert_base": ["experiment=bert_base"],
    "bert_large": ["experiment=bert_large"],
    "bert_modern": ["experiment=bert_modern"],
    "bert_24h": ["experiment=bert_24h"],
    "bert_base by lamb": ["experiment=bert_base", "optim=lamb"],
    "bert_base by stable_adamw": ["experiment=bert_base", "optim=stable_adamw"],
    "bert_base by muon": ["experiment=bert_base", "optim=muon"],
    "elmo_original": ["experiment=elmo_original"],
    "elmo without clips": [
        "experiment=elmo_original",
        "model.cell_clip=0",
        "model.projection_clip=0",
    ],
}
PRECISIONS = ("fp32", "bf16-mixed")
VOCABULARY = 30_000
ROWS = 8


def load_device(shared_object: str) -> None:
    """Register the pretended device. Must be called before torch is imported."""
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None and "torch" not in sys.modules
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(Path(spec.origin).parent / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(shared_object, mode=ctypes.RTLD_GLOBAL)


def run(recipe: str, precision: str, checkpointing: bool = False) -> dict[str, Any]:
    """Return what was seen in the second of two steps: the first also creates optimizer state."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from pipeline.config.compose import compose_config
    from pipeline.models.registry import family_of
    from tests.cuda.watch import Watch

    config = compose_config([*RECIPES[recipe], f"trainer.precision={precision}"])
    config.trainer = replace(
        config.trainer, strategy="single", activation_checkpointing=checkpointing, max_steps=10
    )
    config.model = replace(config.model, layers=2)  # all layers run the same lines
    if family_of(config.model).reads_words:
        config.model = replace(config.model, window=3)  # and so do all words of a window
    first, second = make_step(config), make_step(config)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    reads: list[int] = []

    def read(values: torch.Tensor) -> list[float]:
        reads.append(len(values))
        return [1.0] * len(values)

    with mode:
        module = make_module(config)
    module.engine.read = read
    for step in (first, second):
        module._agree(step)  # counts real values, on the host
        reads.clear()
        with mode, precision_key(precision), Watch() as watch:
            module.training_step(step, 0)
    homes = {str(part.device) for part in module.model.parameters()}
    dtypes = {str(state.dtype) for each in module.engine.optimizers[0].state.values()
              for state in each.values() if torch.is_tensor(state)}  # fmt: skip
    return watch.report() | {
        "reads": reads,
        "homes": sorted(homes),
        "moments": sorted(dtypes),
        "by_row": sorted(module.row_gradients),
    }


@contextmanager
def precision_key(precision: str) -> Iterator[None]:
    """Set CUDA's autocast key: `torch.autocast("cuda")` disables itself without a real device."""
    import torch

    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.set_autocast_enabled("cuda", precision == "bf16-mixed")
    yield
    torch.set_autocast_enabled("cuda", False)


def make_module(config: Any) -> Any:
    """Return the training module of a config with its engine, all on the pretended device."""
    import torch

    from pipeline.data.cursor import Cursor, Identity
    from pipeline.models.registry import family_of
    from pipeline.training.checkpoint import TrainingState
    from pipeline.training.schedule import Phase
    from pipeline.training.strategy import make_engine
    from pipeline.training.train_step import TrainingModule
    from pipeline.training.updates import PretrainingUpdates

    trainer = config.trainer
    with torch.device("meta"):  # initial weights have no values
        network, objective = family_of(config.model).build(
            config.model,
            VOCABULARY,
            rows=ROWS,
            seed=0,
            checkpoint_activations=trainer.activation_checkpointing,
        )
    engine = make_engine("single", "cuda", config.optim.clip, timeout=None)  # type: ignore[arg-type]
    move(network, engine.root_device)
    identity = Identity("examples", "shards", 0, 32, ROWS, 0)
    state = TrainingState(Cursor(0, 0, (), identity))
    module = TrainingModule(
        network, objective,
        PretrainingUpdates(config.optim, family_of(config.model).stacked_matrices),
        replace(trainer, precision="fp32"), state, [Phase(0, 0, 10)], [identity], lambda: False,
    )  # fmt: skip
    if config.optim.updates_rows("single"):
        family = family_of(config.model)
        module.row_gradients = family.keep_row_gradients(config.model, network, VOCABULARY)
    module.trainer = SimpleNamespace(strategy=engine)  # type: ignore[assignment]
    module._device = engine.root_device
    engine._lightning_module = module
    engine._model = module
    engine._optimizers = [module.configure_optimizers()]
    engine.accumulate_gradients = lambda loss: loss.backward()  # type: ignore[method-assign]
    return module


def move(network: Any, device: Any) -> None:
    """Replace parameters and buffers by empty ones on the device, in place."""
    import torch

    for part in network.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                empty = torch.empty(weight.shape, dtype=weight.dtype, device=device)
                part._parameters[name] = torch.nn.Parameter(empty)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=device)


def make_step(config: Any) -> Any:
    """Return one step of two micro-batches, with tensors of the host as a loader makes them."""
    from pipeline.data.loader import Step
    from pipeline.models.registry import family_of

    make = make_word_batch if family_of(config.model).reads_words else make_batch
    halves = [slice(0, ROWS // 2), slice(ROWS // 2, ROWS)]
    return Step(0, 0, ROWS, ROWS, [make(config, half) for half in halves])


def make_batch(config: Any, rows: slice) -> Any:
    import numpy as np
    import torch

    from pipeline.data.batch import Batch

    lengths = np.array([128, 128, 90, 17, 9])  # packed rows: several examples of any length
    tokens, predictions = int(lengths.sum()), 40
    return Batch(
        *(torch.zeros(tokens, dtype=torch.int64) for _ in range(3)),
        lengths,
        *(torch.zeros(predictions, dtype=torch.int64) for _ in range(2)),
        torch.zeros(len(lengths), dtype=torch.int64),
    )


def make_word_batch(config: Any, streams: slice) -> Any:
    import numpy as np

    from data_prep.tokenizers.characters import Spelling
    from pipeline.data.streams import Words

    words = [f"w{number}" * (1 + number % 9) for number in range(50)]
    ids = np.arange(4 * (ROWS // 2) * config.model.window).reshape(4, ROWS // 2, -1) % len(words)
    return Words(Spelling(words, config.model.max_characters), 40, 0).batch(ids, streams)


def control() -> dict[str, Any]:
    """Return what is seen of operations that no step may contain."""
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

    from pipeline.data.device import send
    from tests.cuda.watch import Watch

    pinned, plain, refused = torch.zeros(3), torch.zeros(3), False
    with FakeTensorMode(allow_non_fake_inputs=True), Watch() as watch:
        send(pinned, "cuda:0")
        there = plain.to("cuda:0", non_blocking=True)  # not pinned, so the host waits
        there.cpu()
        try:
            there.sum().item()
        except DataDependentOutputException:
            refused = True
    return watch.report() | {"refused": refused}


def main(shared_object: str) -> None:
    load_device(shared_object)
    cases = [(recipe, precision, False) for recipe in RECIPES for precision in PRECISIONS]
    cases += [("bert_base", "fp32", True)]  # recomputation enters torch.autocast, see above
    names = [" ".join(case[:2]) + (" checkpointing" if case[2] else "") for case in cases]
    from pipeline.models import attention
    from pipeline.models.elmo import sampled_softmax

    attention._capability = lambda index: (8, 0)  # type: ignore[assignment, return-value]
    sampled_softmax._seeded = lambda device, seed: None  # type: ignore[assignment, return-value]
    report = {name: run(*case) for name, case in zip(names, cases, strict=True)}
    print(json.dumps({"control": control()} | report))
    sys.stdout.flush()
    os._exit(0)  # autograd's thread for the pretended device cannot be joined


if __name__ == "__main__":
    main(sys.argv[1])
