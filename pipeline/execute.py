"""Does the work of a plan: takes the lease, runs the stage, writes the manifest last."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.files import write_atomically
from data_prep.pieces import Share
from data_prep.progress import console
from pipeline.graph import Node, stage_module
from pipeline.lease import lease
from pipeline.stages.work import Work
from pipeline.store import LEASE, MANIFEST, Output, run_facts

PIECES = ".pieces"  # the folder in which stages keep theirs


def execute(node: Node) -> None:
    """Make one output, or find it made."""
    if node.output.is_done:
        return

    def say(text: str) -> None:
        console.print(f"{node.stage} {node.output.fingerprint[:8]}: {text}")

    with lease(node.output.path / LEASE, lambda: node.output.is_done, say) as held:
        if held is None or node.output.is_done:
            return
        started, clock = datetime.now(UTC), time.monotonic()
        counts = _work(node, None)
        held.check()
        seconds = time.monotonic() - clock
        node.output.finish(node.request, counts, run_facts(node.config.name, started, seconds))


def make_share(node: Node, share: Share) -> None:
    """Make a share of an output's pieces, beside others that make theirs; `execute` goes on.

    The share leaves its name when it is made, so that only missing ones are made again.
    """
    if not node.output.is_done and share not in shares_made(node.output, share.count):
        _work(node, share)
        write_atomically(_share_path(node.output, share), "")


def shares_made(output: Output, count: int) -> set[Share]:
    """Which of `count` shares of an unfinished output are made."""
    every = (Share(number, count) for number in range(count))
    return {share for share in every if _share_path(output, share).exists()}


def _share_path(output: Output, share: Share) -> Path:
    return output.path / PIECES / f".share-{share.number}-of-{share.count}"


def _work(node: Node, share: Share | None) -> dict[str, Any]:
    for role, item in node.inputs.items():
        if not (item.path / MANIFEST).exists() and not item.reference.startswith("folder/"):
            raise SesameError(f"{node.stage}: its input {role} ({item.path}) is not finished")
    node.output.begin(node.request)
    inputs = {role: item.path for role, item in node.inputs.items()}
    work = Work(node.config, inputs, node.output.path, node.output.fingerprint, share)
    counts: dict[str, Any] = stage_module(node.stage).run(work)
    return counts


def execute_all(nodes: list[Node]) -> None:
    """Make every output in turn, saying how long each took."""
    for node in nodes:
        if node.output.is_done:
            continue
        clock = time.monotonic()
        execute(node)
        title = f"{node.stage} [dim]{node.label}[/]" if node.label else node.stage
        console.print(f"[green]✓[/] {title} in {time.monotonic() - clock:.1f} s")


def refuse_to_pretrain(nodes: list[Node], command: str, overrides: list[str]) -> None:
    """Only `run` and `pretrain` pretrain; other commands stop with the command to run."""
    for node in nodes:
        if node.stage == "pretrain" and not node.output.is_done:
            words = " ".join(_quoted(word) for word in overrides)
            raise UsageError(
                f"{command}: its encoder is not pretrained yet ({node.output.path}); "
                f"run: sesame pretrain {words}".rstrip()
            )


def _quoted(word: str) -> str:
    return f"'{word}'" if any(mark in word for mark in ' []{}$*?&;<>|()"') else word
