"""Entry of the command line: `sesame <command> [options] [Hydra overrides]`.

Nothing imported here imports torch, so that help and usage errors answer at once.
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

READER_GONE = 141  # the exit code of programs that a closed pipe ends: 128 + SIGPIPE


def main() -> None:
    """Entry of the `sesame` script."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Do a command; errors become one sentence and an exit code."""
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if not _is_reader_gone():  # some other pipe, of a worker perhaps
            raise
    # Nobody reads what is still to be said, such as after `| head`.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return READER_GONE


def _is_reader_gone() -> bool:
    """Whether standard output or error is a pipe that nobody reads any more."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        poll.register(stream.fileno(), 0)  # errors are told unasked
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _stay_off_the_hub() -> None:
    """Have transformers, which reads this when it is imported, ask nothing of the network.

    What the user has set stays.
    """
    offline = os.environ.get("HF_HUB_OFFLINE", os.environ.get("TRANSFORMERS_OFFLINE", "1"))
    os.environ.setdefault("HF_HUB_OFFLINE", offline)
    os.environ.setdefault("TRANSFORMERS_OFFLINE", offline)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def _wait_passively() -> None:
    """Have torch's threads sleep while they wait for each other, which OpenMP reads when it starts.

    Spinning threads use up the time that the thread they wait for needs, wherever another process
    takes a core: a second of work can take a minute. What the user has set stays.
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
            from pipeline.cluster.continuing import listen

            listen()
        arguments = parse(argv)
        if "--help" in arguments.options:
            show_command_help(arguments.command)
        elif "--cfg" in arguments.options:  # before any command, so that none can forget it
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
    """Requeue or chain an interrupted job; SLURM's refusal is one sentence too."""
    from pipeline.cluster.continuing import continue_job

    try:
        return continue_job(str(interrupted))
    except SesameError as error:
        return show_error(command, error)


def _is_job_script() -> bool:
    """Whether a script of slurm/ runs this, which says there how an interrupted job goes on."""
    return "SESAME_CONTINUE" in os.environ and "SLURM_JOB_ID" in os.environ


if __name__ == "__main__":
    main()
