"""Entry point of the command line: `sesame <command> [options] [Hydra overrides]`.

No import here imports torch, so that help and usage errors appear at once.
"""

import errno
import importlib
import os
import select
import sys
from importlib.metadata import version

from data_prep.errors import SesameError
from data_prep.progress import console
from pipeline.commands.arguments import parse, show_error
from pipeline.commands.catalogue import COMMANDS
from pipeline.commands.help import show_command_help, show_help
from pipeline.training.exits import Interrupted

READER_GONE = 141  # exit code of a program killed by a closed pipe: 128 + SIGPIPE


def main() -> None:
    """Run the `sesame` script and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run a command and return its exit code; a SesameError is printed as one sentence."""
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


def _is_reader_gone() -> bool:
    """Return True if standard output or error is a pipe that nobody reads any more."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        poll.register(stream.fileno(), 0)  # poll always reports errors, even with an empty mask
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _stay_off_the_hub() -> None:
    """Keep transformers off the network; it reads these variables when it is imported.

    Values set by the user are kept.
    """
    offline = os.environ.get("HF_HUB_OFFLINE", os.environ.get("TRANSFORMERS_OFFLINE", "1"))
    os.environ.setdefault("HF_HUB_OFFLINE", offline)
    os.environ.setdefault("TRANSFORMERS_OFFLINE", offline)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def _wait_passively() -> None:
    """Let torch's threads sleep while they wait for each other; OpenMP reads this when it starts.

    If another process takes a core, spinning threads use the time that the thread they wait for
    needs, and a second of work can take a minute. A value set by the user is kept.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _run(argv: list[str]) -> int:
    _stay_off_the_hub()
    _wait_passively()
    if not argv or argv[0] in ("-h", "--help", "help"):
        show_help()
        return 0
    if argv[0] == "--version":
        print(version("sesame-encoders"))
        return 0
    try:
        if _is_job_script():
            from pipeline.cluster.requeue import listen

            listen()
        arguments = parse(argv)
        if "--help" in arguments.options:
            show_command_help(arguments.command)
        elif "--cfg" in arguments.options:  # handled here, so that every command supports it
            from pipeline.commands.configuration import print_config

            print_config(arguments)
        else:
            module, _, function = COMMANDS[arguments.command].function.partition(":")
            getattr(importlib.import_module(module), function)(arguments)
    except SesameError as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        code = show_error(argv[0], error)
        if isinstance(error, Interrupted) and _is_job_script():
            return _continue_job(argv[0], error)
        return code
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        full = f"{error.strerror}: {error.filename or 'the store'}"
        remedy = "make room and run the same command again; what is finished is kept"
        return show_error(argv[0], SesameError(f"{full}; {remedy}"))
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on from here")
        return 130
    return 0


def _continue_job(command: str, interrupted: Interrupted) -> int:
    """Requeue or chain an interrupted job; return the exit code. SLURM's errors are printed."""
    from pipeline.cluster.requeue import continue_job

    try:
        return continue_job(str(interrupted))
    except SesameError as error:
        return show_error(command, error)


def _is_job_script() -> bool:
    """Return True in a job started by a script of slurm/, which sets SESAME_CONTINUE."""
    return "SESAME_CONTINUE" in os.environ and "SLURM_JOB_ID" in os.environ


if __name__ == "__main__":
    main()
