"""Writes and reads the tensors of a checkpoint; `checkpoint` describes the files."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from data_prep.errors import SesameError
from data_prep.files import sha256, sync_directory, write_atomically
from pipeline.store.checkpoints import CHECKSUMS
from pipeline.training.checkpoint import STATE, WEIGHTS, TrainingState, remove_old
from pipeline.training.strategy import Engine, ParameterState

CARRIED_STREAMS = 2  # index of the stream dimension in [layer, direction, stream, width]


def read_carried(checkpoint: Path) -> Tensor | None:
    """Return the carried state of all streams in order, [layer, direction, stream, width].

    None for an objective without carried state.
    """
    parts = [load_file(path)["state"] for path in sorted(checkpoint.glob("carried-*.safetensors"))]
    return torch.cat(parts, CARRIED_STREAMS) if parts else None


def read_parameters(checkpoint: Path, shapes: dict[str, torch.Size]) -> Iterator[ParameterState]:
    """Yield the saved state of each parameter in `shapes`, one at a time.

    Raises `SesameError` if names or shapes differ from the checkpoint's.
    """
    with ExitStack() as stack:
        files = [
            stack.enter_context(safe_open(path, "pt"))
            for path in [checkpoint / WEIGHTS, *sorted(checkpoint.glob("moments-*.safetensors"))]
        ]
        where = {key: file for file in files for key in file.keys()}  # noqa: SIM118 not a dict
        moments: dict[str, list[str]] = {}  # by parameter
        for key in sorted(where):
            moment, slash, name = key.partition("/")
            if slash:
                moments.setdefault(name, []).append(moment)
        weights = set(files[0].keys())
        if weights != set(shapes):
            odd = sorted(weights ^ set(shapes))[0]
            raise SesameError(f"{checkpoint / WEIGHTS}: does not fit the model at parameter {odd}")
        for name, shape in shapes.items():
            weight, *found = (
                where[key].get_tensor(key)
                for key in (name, *(f"{moment}/{name}" for moment in moments[name]))
            )
            if weight.shape != shape:
                raise SesameError(
                    f"{checkpoint / WEIGHTS}: {name} has shape {list(weight.shape)}, "
                    f"the model's has {list(shape)}"
                )
            yield ParameterState(name, weight, dict(zip(moments[name], found, strict=True)))


class Saver:
    """Writes checkpoints below `folder` and removes old ones.

    keep        number of newest checkpoints to keep
    keep_every  also keep checkpoints at multiples of this step
    fence       raises if a later launch has taken over the run
    say         prints one line for the user
    """

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        keep: int,
        keep_every: int | None,
        fence: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._folder, self._engine = folder, engine
        self._keep, self._keep_every = keep, keep_every
        self._fence, self._say = fence, say

    def save(self, state: TrainingState, carried: Tensor | None = None) -> bool:
        """Write one checkpoint. Collective: every rank must call it.

        `carried` is the state of this rank's streams, if the objective has one. Returns False on
        every rank, after a warning, if any rank could not write; training can continue.
        """
        partial = self._folder / f".{state.step:08d}.tmp"
        first = self._engine.rank == 0
        if first:
            self._fence()  # before `_clear` removes files that a later launch may be writing
        checksums: dict[str, Any] = {}
        saved = (
            self._all_ranks_succeed(lambda: _clear(partial) if first else None)
            and self._all_ranks_succeed(
                lambda: checksums.update(self._write_part(partial, carried))
            )
            and self._finish(partial, self._engine.gather(checksums), state)
        )
        if first:
            if saved:
                remove_old(self._folder, self._keep, self._keep_every)
            else:
                shutil.rmtree(partial, ignore_errors=True)
        return saved

    def _all_ranks_succeed(self, write: Callable[[], None]) -> bool:
        """Call `write`; return True if it succeeded on every rank.

        Collective: every rank must call it. A failure to write is reported, never raised.
        """
        failures = 0
        try:
            write()
        except (OSError, SafetensorError) as error:
            failures = 1
            self._say(f"checkpoint not saved, training goes on: {error}")
        return self._engine.all_reduce_sum([failures])[0] == 0

    def _finish(self, partial: Path, parts: list[dict[str, Any]], state: TrainingState) -> bool:
        first = self._engine.rank == 0
        return self._all_ranks_succeed(
            lambda: self._complete(partial, parts, state) if first else None
        )

    def _write_part(self, partial: Path, carried: Tensor | None) -> dict[str, Any]:
        """Write this rank's files; return their checksums by file name. Collective."""
        engine, rank = self._engine, self._engine.rank
        weights: dict[str, Tensor] = {}
        moments: dict[str, Tensor] = {}
        for number, parameter in enumerate(engine.state()):
            if rank == 0:
                weights[parameter.name] = parameter.weight
            if number % engine.ranks == rank:
                for key, moment in parameter.moments.items():
                    moments[f"{key}/{parameter.name}"] = moment
        part = f"{rank:05d}-of-{engine.ranks:05d}.safetensors"
        files = {f"moments-{part}": moments}
        if carried is not None:
            files[f"carried-{part}"] = {"state": carried.cpu()}
        if rank == 0:
            files[WEIGHTS] = weights
        return {name: _write(partial / name, tensors) for name, tensors in files.items()}

    def _complete(self, partial: Path, parts: list[dict[str, Any]], state: TrainingState) -> None:
        """Add state.json and checksums.json, then rename the folder to its final name."""
        write_atomically(partial / STATE, state.as_json())
        checksums = {STATE: _checksum(partial / STATE)}
        for part in parts:
            checksums |= part
        write_atomically(partial / CHECKSUMS, json.dumps(checksums, indent=1, sort_keys=True))
        sync_directory(partial)
        self._fence()
        final = self._folder / f"{state.step:08d}"
        if final.exists():  # an earlier launch saved the same step
            shutil.rmtree(final)
        os.replace(partial, final)
        sync_directory(self._folder)


def _clear(partial: Path) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)


def _write(path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    path.chmod(0o644)  # safetensors creates files that only their owner can read
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
    return _checksum(path)


def _checksum(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}
