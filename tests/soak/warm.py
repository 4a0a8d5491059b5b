"""Run `sesame` commands in forks of one process that has all imports done.

Importing torch, Lightning and DeepSpeed takes longer than the tiny runs of the soak. A command and
its ranks are forks; a fork can be killed at any moment like a process of its own.
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

TRACEBACK = 99  # exit code of a command that ended with an exception


def import_everything() -> None:
    """Import what any stage needs, and let pretraining fork its ranks."""
    os.environ.update(
        DS_ACCELERATOR="cpu", HF_HUB_OFFLINE="1", WANDB_MODE="offline", OMP_NUM_THREADS="1",
        TOKENIZERS_PARALLELISM="false", TTY_COMPATIBLE="0",
    )  # fmt: skip
    import deepspeed
    import gensim.models
    import torch
    import transformers
    from transformers import BertForPreTraining

    import pipeline.commands.stages
    import pipeline.report.page
    import pipeline.tasks.finetuning
    import pipeline.training.build
    from pipeline.stages import STAGES
    from pipeline.training import processes

    loaded = (deepspeed, gensim.models, transformers, BertForPreTraining, pipeline, STAGES)
    assert all(loaded)
    torch.set_num_threads(1)
    processes.subprocess = SimpleNamespace(  # type: ignore[assignment]
        Popen=ForkedRank, DEVNULL=subprocess.DEVNULL, run=subprocess.run
    )


def start(folder: Path, words: list[str], log: Path, prepare: Callable[[], None]) -> "Process":
    """Start a command in `folder`; `prepare` is called first in its process."""
    from pipeline.commands.main import run

    def work() -> int:
        os.chdir(folder)
        os.environ.pop("SESAME_STORE", None)
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        prepare()
        return run(words)

    return Process(work)


class Process:
    """A fork that runs a function and exits with the code it returns."""

    def __init__(self, work: Callable[[], int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            code = TRACEBACK
            try:
                os.setsid()
                code = work()
            except SystemExit as ended:
                code = int(ended.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the process runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, seconds: float = 300.0) -> int | None:
        """Return the exit code, or None if the process runs longer than `seconds`."""
        end = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        self.send_signal(signal.SIGKILL)
        self.wait()


class ForkedRank(Process):
    """A rank of a pretraining, with the arguments of subprocess.Popen that `launch` gives."""

    def __init__(
        self,
        command: list[str],
        *,
        env: dict[str, str],
        stdout: IO[bytes],
        stderr: IO[bytes] | None,
        preexec_fn: Callable[[], None],
        **_: Any,
    ) -> None:
        from pipeline.training.rank import main

        def work() -> int:
            preexec_fn()
            os.environ.clear()
            os.environ.update(env)
            os.dup2(stdout.fileno(), 1)
            if stderr is not None:
                os.dup2(stderr.fileno(), 2)
            return main(Path(command[-1]))

        super().__init__(work)
