"""Run SLURM's commands, also from inside a container that does not have them.

slurm/outside.sh starts a container and sets SESAME_CALLS, a folder that both sides see. A call is a
file `<name>.call` there, a bash script. outside.sh renames it to `<name>.sh`, runs it, and writes
`<name>.pid` at its start and `<name>.code`, the exit code, at its end.
"""

import os
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from data_prep.errors import SesameError
from data_prep.files import write_atomically
from data_prep.work_units import end_with_parent
from pipeline.training.processes import Process

LOOK_SECONDS = 0.05
ANSWER_SECONDS = 60.0  # for outside.sh to begin a call


def calls_folder() -> Path | None:
    """Return the folder for calls; None outside of containers."""
    folder = os.environ.get("SESAME_CALLS")
    return Path(folder) if folder else None


def exists(command: str) -> bool:
    """Return True if a command is on the path, outside of the container if there is one."""
    if calls_folder() is None:
        return shutil.which(command) is not None
    return run(["bash", "-c", f"command -v {shlex.quote(command)}"]).returncode == 0


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command and return its code and output. Raises FileNotFoundError without a code."""
    folder = calls_folder()
    if folder is None:
        return subprocess.run(command, capture_output=True, text=True)
    out, err = (folder / f"{uuid.uuid4().hex}.{kind}" for kind in ("out", "err"))
    redirections = f">{shlex.quote(str(out))} 2>{shlex.quote(str(err))}"
    code = _Call(folder, f"{shlex.join(command)} {redirections}").wait()
    return subprocess.CompletedProcess(command, code, out.read_text(), err.read_text())


class SlurmSteps:
    """Starts steps of this SLURM job; in a container site, each task in a container of its own."""

    def __init__(self, first_node: Callable[[], str]) -> None:
        self.first_node = first_node

    def start(self, options: list[str], command: list[str], variables: dict[str, str]) -> Process:
        """Start a command with srun, its options and more environment variables."""
        folder = calls_folder()
        if folder is None:
            return subprocess.Popen(
                ["srun", *options, *command],
                env=dict(os.environ) | variables,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        # The container's command stands as in the site file: the shell may expand variables in it.
        srun = f"{shlex.join(['srun', *options])} {os.environ['SESAME_CONTAINER']}"
        return _Call(folder, "\n".join([*exports, f"exec {srun} {shlex.join(command)} </dev/null"]))


class _Call:
    """A call that outside.sh runs."""

    def __init__(self, folder: Path, script: str) -> None:
        self._folder = folder
        self._name = uuid.uuid4().hex
        self._deadline = time.monotonic() + ANSWER_SECONDS
        write_atomically(folder / f"{self._name}.call", f"{script}\n")

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs. Raises `SesameError` without an answer."""
        code = self._folder / f"{self._name}.code"
        if code.exists():
            return int(code.read_text())
        if not self._pid.exists() and time.monotonic() > self._deadline:
            raise SesameError(
                f"{self._folder}: slurm/outside.sh does not answer; this process needs it to call "
                "SLURM from a container"
            )
        return None

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        while (code := self.poll()) is None:
            time.sleep(LOOK_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal; its process is outside, where this one's numbers may not hold."""
        if self._pid.exists() and self.poll() is None:
            name = signal.Signals(number).name.removeprefix("SIG")
            _Call(self._folder, f"kill -s {name} {self._pid.read_text().strip()}").wait()

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    @property
    def _pid(self) -> Path:
        return self._folder / f"{self._name}.pid"
