"""Entry point of the command line: `sesame <command> [options] [Hydra overrides]`.

No import here imports torch, so that help and usage errors appear at once.
"""

import errno
import os
import select
import signal
import sys
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from data_prep.errors import SesameError, UsageError
from data_prep.files import is_text
from data_prep.progress import console
from pipeline.commands.arguments import Arguments, call, parse, show_error
from pipeline.commands.help import show_command_help, show_help
from pipeline.commands.signals import Stopped, stop_on_signals
from pipeline.training.exits import Interrupted

REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EROFS: "mount the disk writable, or set paths.store to another folder",
    errno.EACCES: "change its permissions, or set paths.store to another folder",
    errno.EPERM: "change its permissions, or set paths.store to another folder",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ENOTDIR: "name a folder instead",
    errno.EISDIR: "name a file instead",
}
SPINS = "3000"  # about a tenth of a millisecond; docs/results.md has its effect
READER_GONE = 141  # exit code of a program killed by a closed pipe: 128 + SIGPIPE


def main() -> None:
    """Run the `sesame` script and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run a command and return its exit code; a SesameError is printed as one sentence."""
    Console.on_broken_pipe = _raise_again  # type: ignore[method-assign]
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if not _is_reader_gone():  # another pipe, perhaps a worker's
            raise
    # Nobody reads the output any more, for example after `| head`: discard the rest.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return READER_GONE


def _raise_again(self: Console) -> None:
    """Let a BrokenPipeError through, where rich would end the process with exit code 1."""
    raise


def _is_reader_gone() -> bool:
    """Return True if standard output or error is a pipe that nobody reads any more."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        poll.register(stream.fileno(), 0)  # poll always reports errors, even with an empty mask
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _stay_off_the_hub(argv: list[str]) -> None:
    """Keep transformers off the network; it reads these variables when it is imported.

    Values set by the user are kept. Without one, only `publish --upload` may go online.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if argv[:1] == ["publish"] and "--upload" in argv:
        return
    offline = os.environ.get("HF_HUB_OFFLINE", os.environ.get("TRANSFORMERS_OFFLINE", "1"))
    os.environ.setdefault("HF_HUB_OFFLINE", offline)
    os.environ.setdefault("TRANSFORMERS_OFFLINE", offline)


def _wait_briefly() -> None:
    """Let torch's threads sleep where they wait long for each other; read when OpenMP starts.

    If another process takes a core, spinning threads use the time that the thread they wait for
    needs, and a second of work can take a minute. But most waits are shorter than falling asleep:
    so threads spin first (GNU's OpenMP, about a tenth of a millisecond). A value set by the user is
    kept.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def _run(argv: list[str]) -> int:
    _stay_off_the_hub(argv)
    _wait_briefly()
    if not argv or argv[0] in ("-h", "--help", "help"):
        show_help()
        return 0
    if argv[0] == "--version":
        print(version("sesame-encoders"))
        return 0
    if argv[0] in ("-sc", "--shell-completion"):
        argv = ["completion", *argv[1:]]
    try:
        with nullcontext() if _is_job_script() else stop_on_signals():
            _perform(argv)
    except SesameError as error:
        if _wants_traceback():
            raise
        code = show_error(argv[0], error)
        if isinstance(error, Interrupted) and _is_job_script():
            return _continue_job(argv[0], error)
        return code
    except OSError as error:
        if error.errno is None or isinstance(error, ConnectionError) or _wants_traceback():
            raise
        remedy = REMEDIES.get(error.errno, "check the path and the disk")
        said = f"{error.strerror}: {error.filename or 'the store'}; {remedy}"
        again = "then run the same command again; what is finished is kept"
        return show_error(argv[0], SesameError(f"{said}, {again}"))
    except KeyboardInterrupt as error:
        stopped = error if isinstance(error, Stopped) else Stopped(signal.SIGINT)
        name = stopped.signal.name
        console.print(f"stopped by {name}; the same command goes on from here", markup=False)
        return stopped.exit_code
    return 0


def _perform(argv: list[str]) -> None:
    """Parse the command line and run its command."""
    if _is_job_script():
        from pipeline.cluster.requeue import listen

        listen()
    _refuse_odd_arguments(argv)
    if argv[0] == "completion":
        from pipeline.commands.completion import shell_completion

        shell_completion(argv[1:])
        return
    arguments = parse(argv)
    if "--config-dir" in arguments.options:
        from pipeline.config.recipes import use_folder

        use_folder(Path(arguments.options["--config-dir"]))
    if "--help" in arguments.options:
        show_command_help(arguments.command)
    elif arguments.options.keys() & {"--cfg", "--info"}:  # here, so that every command has them
        from pipeline.commands.configuration import print_config, print_info

        (print_config if "--cfg" in arguments.options else print_info)(arguments)
    else:
        _refuse_unused_hydra(arguments)
        call(arguments)


def _refuse_unused_hydra(arguments: Arguments) -> None:
    """Raise `UsageError` for a launcher or sweeper of a command that does not sweep."""
    swept_only = ("hydra/", "hydra.launcher", "hydra.sweeper")
    for word in arguments.overrides:
        if word.lstrip("+~").startswith(swept_only) and "-m" not in arguments.options:
            raise UsageError(f"{word}: only a sweep uses it; add -m, or leave it out")


def _wants_traceback() -> bool:
    return os.environ.get("HYDRA_FULL_ERROR") == "1"


def _refuse_odd_arguments(argv: list[str]) -> None:
    """Raise `UsageError` for an argument that is not text: it could be neither stored nor shown."""
    for number, word in enumerate(argv, 1):
        if not is_text(word):
            raise UsageError(f"argument {number}: is not valid UTF-8; rename the file or folder")


def _continue_job(command: str, interrupted: Interrupted) -> int:
    """Requeue or chain an interrupted job; return the exit code. SLURM's errors are printed."""
    from pipeline.cluster.requeue import continue_job

    try:
        return continue_job(interrupted.progress or str(interrupted), interrupted.store)
    except SesameError as error:
        return show_error(command, error)


def _is_job_script() -> bool:
    """Return True in a job started by a script of slurm/, which sets SESAME_CONTINUE."""
    return "SESAME_CONTINUE" in os.environ and "SLURM_JOB_ID" in os.environ


if __name__ == "__main__":
    main()
