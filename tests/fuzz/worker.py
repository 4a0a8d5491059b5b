"""Feed damaged files to a reader in a process of its own, and count what happens.

A reader may return or raise SesameError. Anything else is a fault: another exception, a crash, five
seconds, a gigabyte. Input number n of a reader is always the same file, so a fault can be repeated:
    python -m tests.fuzz.worker                               # 10,000 inputs per reader
    python -m tests.fuzz.worker config.json --first 731 --inputs 1 --trace
"""

import argparse
import faulthandler
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from data_prep.errors import SesameError
from tests.fuzz.readers import READERS, Reader

SECONDS, MEGABYTES = 5, 1024
Files = dict[Path, bytes]


@dataclass
class Result:
    """Counts of one reader's inputs, and its faults by kind with the number of the first."""

    tried: int = 0
    read: int = 0
    refused: int = 0
    megabytes: int = 0
    slowest: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)

    def fail(self, kind: str, number: int) -> None:
        self.faults[kind] += 1
        self.first.setdefault(kind, number)

    def __str__(self) -> str:
        return (
            f"{self.tried:,} | {self.read:,} | {self.refused:,} | {self.faults.total():,} | "
            f"{self.slowest:.1f} | {self.megabytes:,}"
        )


def fuzz(reader: Reader, first: int, count: int, trace: bool = False) -> Result:
    """Feed inputs [first, first + count); a worker that hangs or dies is replaced."""
    result = Result()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        reader.make(folder)
        valid = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        number, end = first, first + count
        while number < end:
            number = _follow(
                _Worker(reader, folder, valid, range(number, end), trace), number, result
            )
    return result


def _follow(worker: "_Worker", number: int, result: Result) -> int:
    """Collect what a worker reports; return the number of the first input that is left."""
    while (report := worker.report()) is not None:
        kind, seconds, megabytes = report.split("\t")
        result.tried += 1
        result.slowest = max(result.slowest, float(seconds))
        result.megabytes = max(result.megabytes, int(megabytes))
        if kind == "read":
            result.read += 1
        elif kind == "refused":
            result.refused += 1
        else:
            result.fail(kind, number)
        number += 1
    ended = worker.end()
    if ended:
        result.tried += 1
        result.fail(ended, number)
        number += 1
    return number


class _Worker:
    """A forked process, which has all imports of its parent; reports one line per input."""

    def __init__(
        self, reader: Reader, folder: Path, valid: Files, numbers: range, trace: bool
    ) -> None:
        reading, writing = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(reading)
            _work(reader, folder, valid, numbers, writing, trace)
            os._exit(0)
        os.close(writing)
        self._reports = os.fdopen(reading, "rb", buffering=0)
        self._held = b""
        self._is_late = False

    def report(self) -> str | None:
        """Return the next report, or None at the end of the process or of its time."""
        while b"\n" not in self._held:
            if not select.select([self._reports], [], [], SECONDS)[0]:
                self._is_late = True
                return None
            block = self._reports.read(1 << 16)
            if not block:
                return None
            self._held += block
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()

    def end(self) -> str | None:
        """End the process; return its fault, or None if it had finished all inputs."""
        if self._is_late:
            os.kill(self._process, signal.SIGKILL)
        self._reports.close()
        status = os.waitpid(self._process, 0)[1]
        if self._is_late:
            return f"more than {SECONDS} seconds"
        if os.WIFSIGNALED(status):
            return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
        return None if os.WEXITSTATUS(status) == 0 else f"exit code {os.WEXITSTATUS(status)}"


def _work(
    reader: Reader, folder: Path, valid: Files, numbers: range, writing: int, trace: bool
) -> None:
    for path, content in valid.items():  # the worker before may have died
        path.write_bytes(content)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + (MEGABYTES << 20),) * 2)
    faulthandler.disable()  # pytest's would print the stack of a crash
    if not trace:  # libraries write their own messages
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in numbers:
        draw = random.Random(f"{reader.name} {number}")
        path = folder / draw.choice(reader.mutated)
        path.unlink(missing_ok=True)  # a reader may still have the last one mapped
        path.write_bytes(reader.mutate(valid[path], draw))
        began = time.perf_counter()
        kind = _outcome(reader, folder, trace)
        seconds = time.perf_counter() - began
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10
        path.unlink()
        path.write_bytes(valid[path])
        os.write(writing, f"{kind}\t{seconds:.3f}\t{megabytes}\n".encode())


def _outcome(reader: Reader, folder: Path, trace: bool) -> str:
    try:
        reader.read(folder)
    except SesameError as error:
        if trace:
            print(error)
        return "refused"
    except BaseException as error:
        if trace:
            traceback.print_exc()
        ours = [place for place in traceback.extract_tb(error.__traceback__)
                if "/data_prep/" in place.filename or "/pipeline/" in place.filename]  # fmt: skip
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        said = str(error).replace("\t", " ").replace("\n", " ")[:100]
        return f"{type(error).__name__} at {where}: {said}"
    return "read"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", default=list(READERS))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--trace", action="store_true", help="print messages and tracebacks")
    given = parser.parse_args()
    print("reader | inputs | read | refused | faults | slowest, s | memory, MB", flush=True)
    failed = False
    for name in given.readers:
        result = fuzz(READERS[name], given.first, given.inputs, given.trace)
        print(f"{name} | {result}", flush=True)
        for kind, count in result.faults.most_common():
            print(f"    {count} × {kind} (input {result.first[kind]})", flush=True)
        failed = failed or bool(result.faults)
    sys.exit(failed)


if __name__ == "__main__":
    main()
