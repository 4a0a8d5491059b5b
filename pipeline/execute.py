"""Does the work of a plan: takes the lease, runs the stage, writes the manifest last."""

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.files import write_atomically
from data_prep.pieces import Share, end_with_parent
from data_prep.progress import console, progress
from pipeline.graph import Node, stage_module
from pipeline.lease import lease
from pipeline.plan import titled
from pipeline.stages.work import Work
from pipeline.store import LEASE, MANIFEST, Output, run_facts

PIECES = ".pieces"  # the folder in which stages keep theirs
BESIDE = "finetune"  # the stage whose outputs may be made several at a time, in processes of one


def execute(node: Node) -> None:
    """Make one output, or find it made."""
    if node.output.is_done:
        return

    def say(text: str) -> None:
        console.print(f"{node.stage} {node.output.fingerprint[:8]}: {text}", markup=False)

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


def _unfinished(node: Node) -> str | None:
    """The role of an input that is not finished."""
    for role, item in node.inputs.items():
        is_enough = item.may_go_on or item.reference.startswith("folder/")
        if not is_enough and not (item.path / MANIFEST).exists():
            return role
    return None


def _work(node: Node, share: Share | None) -> dict[str, Any]:
    role = _unfinished(node)
    if role is not None:
        instead = ", or name a step that is kept: <run>@<step>" if role == "pretrain" else ""
        raise SesameError(
            f"{node.stage}: its input {role} ({node.inputs[role].path}) is not finished; "
            f"run what makes it to its end{instead}"
        )
    node.output.begin(node.request)
    inputs = {role: item.path for role, item in node.inputs.items()}
    work = Work(node.config, inputs, node.output.path, node.output.fingerprint, share)
    counts: dict[str, Any] = stage_module(node.stage).run(work)
    return counts


def execute_all(nodes: list[Node], at_once: int = 1) -> None:
    """Make every output in turn, fine-tunings `at_once` at a time; says how long each took."""
    for node in nodes:
        node.output.move_run_facts_out()
    left = [node for node in nodes if not node.output.is_done]
    while left:
        beside = [node for node in left if node.stage == BESIDE and _unfinished(node) is None]
        if at_once > 1 and len(beside) > 1:
            _execute_beside(beside, at_once)
        else:
            _say_made(left[0], _timed(left[0]))
        left = [node for node in left if not node.output.is_done]


def _execute_beside(nodes: list[Node], at_once: int) -> None:
    """Make outputs in processes of their own; all are tried before the first failure is raised."""
    pool = ProcessPoolExecutor(
        min(at_once, len(nodes)),
        multiprocessing.get_context("spawn"),
        initializer=_begin_process,
        initargs=(max(1, len(os.sched_getaffinity(0)) // at_once),),
    )
    failures: list[SesameError] = []
    with pool, progress(BESIDE, len(nodes)) as bar:
        futures = {pool.submit(_timed, node): node for node in nodes}
        try:
            for future in as_completed(futures):
                try:
                    _say_made(futures[future], future.result())
                except SesameError as error:
                    failures.append(error)
                bar.advance()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():  # each may have hours to go
                process.terminate()
            raise
    if failures:
        raise failures[0]


def _begin_process(threads: int) -> None:
    """Runs before anything imports torch, which reads the number of threads only then."""
    end_with_parent()
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ["TTY_COMPATIBLE"] = "0"  # several live bars would write over each other


def _timed(node: Node) -> float:
    clock = time.monotonic()
    execute(node)
    return time.monotonic() - clock


def _say_made(node: Node, seconds: float) -> None:
    console.print(f"[green]✓[/] {titled(node)} in {seconds:.1f} s")


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
