"""Writes checkpoints behind training; `checkpoint` describes the files.

At a checkpoint every rank copies its part of the state to the CPU, and training goes on. A thread
of each rank writes and hashes that part. When all parts are on disk, rank 0 renames the folder:
only then the checkpoint exists.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from data_prep.files import sha256, sync_directory, write_atomically
from pipeline.store.checkpoints import CHECKSUMS
from pipeline.training.checkpoint import STATE, TrainingState, remove_old
from pipeline.training.host_group import HostGroup
from pipeline.training.parameter_state import ParameterState, to_host


class Saved(Protocol):
    """The part of an engine that checkpoints need; see `Engine`."""

    @property
    def rank(self) -> int:
        """The number of this rank."""

    @property
    def ranks(self) -> int:
        """The number of all ranks."""

    def state(self) -> Iterator[ParameterState]:
        """Yield copies of the parameters that this rank saves."""

    def make_host_group(self) -> HostGroup:
        """Return a group for the use of another thread."""


@dataclass(frozen=True)
class Part:
    """One rank's part of a checkpoint, in memory. Training does not change it."""

    step: int
    state: str  # content of state.json
    files: dict[str, dict[str, Tensor]]  # tensors by key, by file name
    best: int | None  # step of the best checkpoint, which is kept


@dataclass(frozen=True)
class Spent:
    """The seconds of one checkpoint on this rank."""

    step: int
    waited: float  # while the state was copied, and for the checkpoint before
    written: float  # behind training, until all ranks had finished


def copy_part(
    engine: Saved,
    state: TrainingState,
    carried: Tensor | None,
    extra: Mapping[str, dict[str, Tensor]] = MappingProxyType({}),
    best: int | None = None,
) -> Part:
    """Copy this rank's part of the state to the CPU. Collective: every rank must call it.

    `carried` is the state of this rank's streams, if the objective has one. `extra`: further files
    of the checkpoint, by the beginning of their name. `best`: see `Part`.
    """
    name = f"{engine.rank:05d}-of-{engine.ranks:05d}.safetensors"
    weights: dict[str, Tensor] = {}
    moments: dict[str, Tensor] = {}
    for parameter in engine.state():
        weights[parameter.name] = parameter.weight
        for key, moment in parameter.moments.items():
            moments[f"{key}/{parameter.name}"] = moment
    files = {f"weights-{name}": weights, f"moments-{name}": moments}
    if carried is not None:
        files[f"carried-{name}"] = {"state": to_host(carried)}
    for kind, tensors in extra.items():
        files[f"{kind}-{name}"] = {key: to_host(tensor) for key, tensor in tensors.items()}
    files = {name: tensors for name, tensors in files.items() if tensors}
    return Part(state.step, state.as_json(), files, best)


class Saver:
    """Writes checkpoints below `folder`, one at a time, and removes old ones.

    keep        number of newest checkpoints to keep
    keep_every  also keep checkpoints at multiples of this step
    fence       raises if a later launch has taken over the run
    say         prints one line for the user
    best        returns the step of a checkpoint that is kept, if there is one
    """

    def __init__(
        self,
        folder: Path,
        engine: Saved,
        keep: int,
        keep_every: int | None,
        fence: Callable[[], None],
        say: Callable[[str], None],
        best: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._folder, self._engine = folder, engine
        self._best = best
        self._keep, self._keep_every = keep, keep_every
        self._fence, self._say = fence, say
        self._group: HostGroup | None = None  # of the writing threads
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._in_flight: Future[bool] | None = None
        self.spent: list[Spent] = []  # of the checkpoints that were written

    def start(
        self,
        state: TrainingState,
        carried: Tensor | None = None,
        extra: Mapping[str, dict[str, Tensor]] = MappingProxyType({}),
    ) -> None:
        """Copy the state and begin to write it. Collective: every rank must call it.

        Waits for the checkpoint before this one. `carried` and `extra` are as in `copy_part`.
        """
        started = time.monotonic()
        self.wait()
        if self._group is None:
            self._group = self._engine.make_host_group()
        # Asked now: while this is written, training may find a better one that is not saved yet.
        part = copy_part(self._engine, state, carried, extra, self._best())
        waited = time.monotonic() - started
        self._in_flight = self._thread.submit(self._save_timed, part, self._group, waited)

    def check(self) -> None:
        """Raise the error that stopped the writing thread, if any, without waiting for it."""
        if self._in_flight is not None and self._in_flight.done():
            self._in_flight.result()

    def wait(self) -> bool:
        """Wait until the last checkpoint is complete; return False if it could not be written.

        Raises the error that stopped the writing thread, such as that of `fence`.
        """
        return self._in_flight is None or self._in_flight.result()

    def close(self) -> None:
        """Wait for the checkpoint in flight, also after an error of training, and raise nothing."""
        if self._in_flight is not None:
            wait([self._in_flight])
        self._thread.shutdown()

    def _save_timed(self, part: Part, group: HostGroup, waited: float) -> bool:
        started = time.monotonic()
        saved = self._save(part, group)
        if saved:
            self.spent.append(Spent(part.step, waited, time.monotonic() - started))
        return saved

    def _save(self, part: Part, group: HostGroup) -> bool:
        """Write one checkpoint together with the threads of the other ranks.

        Returns False on every rank, after a warning, if any rank could not write; training can
        continue.
        """
        partial = self._folder / f".{part.step:08d}.tmp"
        first = self._engine.rank == 0
        if first:
            self._fence()  # before `_clear` removes files that a later launch may be writing
        checksums: dict[str, Any] = {}
        saved = (
            self._all_succeed(group, lambda: _clear(partial) if first else None)
            and self._all_succeed(group, lambda: checksums.update(write_files(partial, part.files)))
            and self._finish(group, partial, group.gather(checksums), part)
        )
        if first:
            if saved:
                remove_old(self._folder, self._keep, self._keep_every, part.best)
            else:
                shutil.rmtree(partial, ignore_errors=True)
        return saved

    def _all_succeed(self, group: HostGroup, write: Callable[[], None]) -> bool:
        """Call `write`; return True if it succeeded on every rank.

        Collective: every rank must call it. A failure to write is reported, never raised.
        """
        failures = 0
        try:
            write()
        except (OSError, SafetensorError) as error:
            failures = 1
            self._say(f"checkpoint not saved, training goes on: {error}")
        return group.sum([failures]) == [0]

    def _finish(
        self, group: HostGroup, partial: Path, checksums: list[dict[str, Any]], part: Part
    ) -> bool:
        first = self._engine.rank == 0
        return self._all_succeed(
            group, lambda: self._complete(partial, checksums, part) if first else None
        )

    def _complete(self, partial: Path, checksums: list[dict[str, Any]], part: Part) -> None:
        """Add state.json and checksums.json, then rename the folder to its final name."""
        write_atomically(partial / STATE, part.state)
        files = {STATE: _checksum(partial / STATE)}
        for of_rank in checksums:
            files |= of_rank
        write_atomically(partial / CHECKSUMS, json.dumps(files, indent=1, sort_keys=True))
        sync_directory(partial)
        self._fence()
        final = self._folder / f"{part.step:08d}"
        if final.exists():  # an earlier launch saved the same step
            shutil.rmtree(final)
        os.replace(partial, final)
        sync_directory(self._folder)


def _clear(partial: Path) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)


def write_files(folder: Path, files: dict[str, dict[str, Tensor]]) -> dict[str, Any]:
    """Write and sync tensors; return size and checksum by file name. Frees them one by one."""
    return {name: _write(folder / name, files.pop(name)) for name in list(files)}


def _write(path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    save_file(tensors, path)
    path.chmod(0o644)  # safetensors creates files that only their owner can read
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
    return _checksum(path)


def _checksum(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}
