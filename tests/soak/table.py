"""The soak: kill every stage at random moments and let every kind of write fail, and count.

    python -m tests.soak.table                      # all rows, in an order of minutes each
    python -m tests.soak.table 'kill shard' --times 5
A trial survives if the same command, run again, ends with outputs that are byte-equal to those of
an undisturbed run. docs/reliability.md has the table.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from pipeline.store.checkpoints import checkpoints
from tests.soak import faults, user, warm
from tests.soak.warm import TRACEBACK, Process

KILLS, TRAINING_KILLS = 50, 34  # per stage, and per kind of training
FLIPS = 3  # per kind of file
# Files that hold times and hosts. A checkpoint's state.json has the seconds of training, so that
# the checksums of state.json differ too; state.json itself is compared without them.
DIFFERING = ("run.json", "timing.jsonl", "launches.jsonl", "checksums.json")


@dataclass
class Row:
    """The outcome of one row of the table."""

    tried: int = 0
    lost: list[str] = field(default_factory=list)  # the trials after which the output differs
    untold: list[str] = field(default_factory=list)  # the trials that ended with a traceback

    def __str__(self) -> str:
        survived = self.tried - len(self.lost)
        return f"{self.tried} | {survived} | {len(self.lost)} | {len(self.untold)}"


class Soak:
    """A user whose runs nobody disturbed, and copies of that user to be disturbed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._trials = 0
        self.whole = root / "undisturbed"
        self.whole.mkdir()
        user.write_files(self.whole)
        for words in user.STAGES.values():
            self.finish(self.whole, words)

    def copy(self, stage: str = "") -> Path:
        """Copy the undisturbed user, without the outputs of a stage if one is given."""
        self._trials += 1
        folder = self._root / f"trial-{self._trials}"
        shutil.copytree(self.whole, folder)
        if stage:
            shutil.rmtree(folder / "store" / stage)
        return folder

    def start(
        self, folder: Path, words: list[str], prepare: Callable[[], None] = lambda: None
    ) -> Process:
        return warm.start(folder, words, folder / "log.txt", prepare)

    def finish(self, folder: Path, words: list[str]) -> None:
        """Run a command to its end; raises AssertionError if it fails."""
        code = self.start(folder, words).wait()
        assert code == 0, (folder / "log.txt").read_text()[-2000:]

    def fault_after(
        self,
        folder: Path,
        words: list[str],
        expected: dict[str, bytes],
        stage: str = "",
        needs_all: bool = False,
    ) -> str:
        """Run a command; return how the outputs of its stage differ, or an empty string."""
        process = self.start(folder, words)
        if process.wait() is None:
            process.kill()
            return "the command hangs"
        if process.returncode != 0:
            return f"exit code {process.returncode}: {_last_line(folder / 'log.txt')}"
        found = contents(folder / "store" / (stage or words[0]), needs_all)
        return ", ".join(
            name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
        )


def contents(outputs: Path, needs_all: bool = False) -> dict[str, bytes]:
    """Return what an undisturbed run of a stage would give again: its files, except hidden ones.

    Of a pretraining's checkpoints only the last is needed: one that cannot be saved or is damaged
    is left out, and training goes on. With `needs_all` all are compared.
    """
    older = [] if needs_all else [
        step for run in outputs.glob("*/checkpoints") for step in checkpoints(run)[:-1]
    ]  # fmt: skip
    found = {path.relative_to(outputs): path for path in sorted(outputs.rglob("*"))}
    return {
        str(name): _without_times(path)
        for name, path in found.items()
        if path.is_file()
        and name.name not in DIFFERING
        and path.parent not in older
        and not any(part.startswith(".") for part in name.parts)
    }


def _without_times(path: Path) -> bytes:
    content = path.read_bytes()
    if path.name == "state.json":
        return json.dumps(json.loads(content) | {"seconds": 0}).encode()
    if path.name == "manifest.json" and path.parents[1].name == "pretrain":
        stated = json.loads(content)
        return json.dumps({key: stated[key] for key in stated if key != "files"}).encode()
    return content


def kill(soak: Soak, words: list[str], times: int, prior: list[list[str]]) -> Row:
    """Kill a command at random moments, at least `times` times; a run is killed once or more.

    `prior` are commands that make its inputs. Half of the kills in a training hit one rank only.
    """
    row, draw = Row(), random.Random(" ".join(words))
    base = soak.copy(words[0])
    for command in prior:
        soak.finish(base, command)
    reference = base.with_name(f"{base.name}-reference")
    shutil.copytree(base, reference)
    began = time.monotonic()
    soak.finish(reference, words)
    seconds = time.monotonic() - began
    expected = contents(reference / "store" / words[0], needs_all=True)
    while row.tried < times:
        folder = base.with_name(f"{base.name}-killed")
        shutil.copytree(base, folder)
        killed = 0
        while not killed or draw.random() < 0.5:
            process = soak.start(folder, words)
            process.wait(draw.uniform(0, seconds))
            if process.poll() is not None:
                break
            killed += 1
            _strike(process, draw)
        fault = soak.fault_after(folder, words, expected, needs_all=True)
        row.tried += killed
        if fault and killed:
            row.lost += [fault] * killed
        shutil.rmtree(folder)
    return row


def _strike(process: Process, draw: random.Random) -> None:
    ranks = psutil.Process(process.pid).children()
    if ranks and draw.random() < 0.5:
        draw.choice(ranks).kill()
        if process.wait(60) is not None:
            return
    process.kill()
    psutil.wait_procs(ranks, timeout=30)  # ranks end with the process that started them


def fail(soak: Soak, words: list[str]) -> Row:
    """Let the first call of every site of a stage fail, one at a time.

    Writes fail in every way, other calls (fsync, rename, open, …) in one of the ways by turns.
    """
    row = Row()
    stage = words[0]
    expected = contents(soak.whole / "store" / stage)
    for turn, (site, number) in enumerate(_sites(soak, words).items()):
        for name, failure in faults.failures_of(site, turn).items():
            folder = soak.copy(stage)
            prepare = partial(faults.arm, folder / "store", number, failure)
            process = soak.start(folder, words, prepare)
            if process.wait(120) is None:
                process.kill()
            faults.disarm()
            row.tried += 1
            trial = f"{name} at {site.call} {site.path}"
            log = (folder / "log.txt").read_text()
            if process.returncode == TRACEBACK or "Traceback" in log:
                row.untold.append(f"{trial}: {_last_line(folder / 'log.txt')}")
            if fault := soak.fault_after(folder, words, expected):
                row.lost.append(f"{trial}: {fault}")
            shutil.rmtree(folder)
    return row


def flip(soak: Soak, stage: str) -> Row:
    """Flip a byte in every kind of file that an output's manifest lists, and in the manifest.

    `sesame verify` must fail, and after `sesame repair` the outputs must be the same as before.
    """
    row, draw = Row(), random.Random(stage)
    outputs = soak.whole / "store" / stage
    expected = contents(outputs)
    kinds: dict[str, Path] = {}
    for manifest in sorted(outputs.glob("*/manifest.json")):
        for name in ("manifest.json", *json.loads(manifest.read_text())["files"]):
            inside = (manifest.parent / name).relative_to(soak.whole)
            kinds.setdefault(faults.plain_name(name), inside)
    for inside in [path for path in kinds.values() for _ in range(FLIPS)]:
        folder = soak.copy()
        damaged = bytearray((folder / inside).read_bytes())
        place, bit = draw.randrange(len(damaged)), draw.randrange(8)
        damaged[place] ^= 1 << bit
        (folder / inside).write_bytes(damaged)
        row.tried += 1
        if soak.start(folder, ["verify"]).wait() != 1:
            row.lost.append(f"{inside}: bit {bit} of byte {place} not found by sesame verify")
        elif fault := soak.fault_after(folder, ["repair"], expected, stage):
            row.lost.append(f"{inside}: {fault}")
        if "Traceback" in (folder / "log.txt").read_text():
            row.untold.append(f"{inside}: {_last_line(folder / 'log.txt')}")
        shutil.rmtree(folder)
    return row


def _sites(soak: Soak, words: list[str]) -> dict[faults.Site, int]:
    folder = soak.copy(words[0])
    with (folder / "calls.txt").open("w") as journal:
        prepare = partial(faults.arm, folder / "store", journal=journal.fileno())
        soak.start(folder, words, prepare).wait()
        faults.disarm()
    return faults.read_sites(folder / "calls.txt", folder)


def _last_line(log: Path) -> str:
    lines = log.read_text().strip().splitlines()
    return lines[-1][:200] if lines else ""


def rows(times: int | None) -> Iterator[tuple[str, Callable[[Soak], Row]]]:
    """Yield the name of every row, and the function that makes it."""
    for stage, words in user.STAGES.items():
        yield f"kill {stage}", partial(kill, words=words, times=times or KILLS, prior=[])
    for name, words in user.TRAININGS.items():
        prior = [["examples", *words[1:]]] if name == "ELMo" else []
        row = partial(kill, words=words, times=times or TRAINING_KILLS, prior=prior)
        yield f"kill training, {name}", row
    for stage, words in user.STAGES.items():
        yield f"fail {stage}", partial(fail, words=words)
    for stage in user.STAGES:
        yield f"flip {stage}", partial(flip, stage=stage)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help="names, or beginnings of names; all without any")
    parser.add_argument("--times", type=int, help="kills per row")
    given = parser.parse_args()
    faults.preload()
    warm.import_everything()
    print("| trial | tried | survived | lost | tracebacks |\n| --- | --- | --- | --- | --- |")
    failed = False
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        soak = Soak(Path(name))
        for title, make in rows(given.times):
            if given.rows and not title.startswith(tuple(given.rows)):
                continue
            row = make(soak)
            print(f"| {title} | {row} |", flush=True)
            for fault in dict.fromkeys([*row.lost, *row.untold]):
                print(f"    {fault}", flush=True)
            failed = failed or bool(row.lost or row.untold)
    sys.exit(failed)


if __name__ == "__main__":
    main()
