"""The command line: `sesame <command> [options] [Hydra overrides]`.

Nothing imported here imports torch, so that help and usage errors answer at once.
"""

import errno
import importlib
import os
import select
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

from rich.table import Table

from data_prep.errors import SesameError, UsageError
from data_prep.progress import console
from pipeline.training.exits import Interrupted

READER_GONE = 141  # the exit code of programs that a closed pipe ends: 128 + SIGPIPE


@dataclass(frozen=True)
class Command:
    """A command: the function that does it, its options, and its line in the help."""

    function: str  # module:function
    help: str
    options: dict[str, str] = field(default_factory=dict)  # option to meaning
    takes: str = "[overrides]"


CONFIG_OPTIONS = {
    "--cfg=": "print the configuration (job, hydra or all) and do nothing",
    "--resolve": "with --cfg: resolve interpolations",
    "--package=": "with --cfg: only this part",
}
STAGE_OPTIONS = {
    "-m": "sweep: comma-separated values run one after another, or through hydra/launcher",
    **CONFIG_OPTIONS,
}
TASK_OPTIONS = {
    **STAGE_OPTIONS,
    "--at-once=": "make so many fine-tunings at a time, each with its share of the cores; "
    "as many as cores and memory allow where not said",
}
ARRAY_OPTIONS = {
    **STAGE_OPTIONS,
    "--share=": "make only this share of the pieces, 0/8 to 7/8, beside others; see slurm/",
}
_STAGE = "pipeline.commands.stages:stage"
COMMANDS = {
    "run": Command(
        "pipeline.commands.stages:run",
        "everything the experiment names, skipping what is done",
        {
            "--until=": "stop after this stage",
            "--from=": "start at this stage; those before must be done",
            **TASK_OPTIONS,
        },
    ),
    "plan": Command(
        "pipeline.commands.stages:show_plan", "what run would do, reuse, and why", CONFIG_OPTIONS
    ),
    "shard": Command(_STAGE, "raw text to cleaned, split document shards", ARRAY_OPTIONS),
    "tokenizer": Command(_STAGE, "document shards to a vocabulary", STAGE_OPTIONS),
    "vectors": Command(_STAGE, "document shards, or a given file, to word vectors", STAGE_OPTIONS),
    "examples": Command(_STAGE, "document shards to masked training rows", ARRAY_OPTIONS),
    "pretrain": Command(_STAGE, "training rows to a pretrained encoder", STAGE_OPTIONS),
    "export": Command(_STAGE, "a pretrained encoder to a folder others can load", STAGE_OPTIONS),
    "finetune": Command(_STAGE, "an encoder and a task to scores", TASK_OPTIONS),
    "layers": Command(_STAGE, "scores of every choice of an encoder's layers", STAGE_OPTIONS),
    "report": Command(_STAGE, "one page about a run", STAGE_OPTIONS),
    "submit": Command(
        "pipeline.commands.cluster:submit",
        "run's work as SLURM jobs, what is done or queued left out",
        {
            "--dry-run": "print every script and submit nothing",
            "--until=": "stop after this stage",
            "--from=": "start at this stage; those before must be done",
            "-m": "a graph for every combination of comma-separated values; common stages once",
            **CONFIG_OPTIONS,
        },
    ),
    "status": Command(
        "pipeline.commands.cluster:status",
        "a submission's jobs: state, progress, logs",
        {"--once": "print and leave, also on a terminal"},
        takes="[submission] [overrides]",
    ),
    "cancel": Command(
        "pipeline.commands.cluster:cancel",
        "end what a submission has waiting or running",
        takes="[submission] [overrides]",
    ),
    "job": Command(
        "pipeline.commands.cluster:job",
        "one stage of a submission; what its scripts run",
        {"--share=": "only this share of its pieces"},
        takes="<store/submissions/…/nodes/….json>",
    ),
    "path": Command(
        "pipeline.commands.stages:path",
        "where a stage's output is or would be",
        CONFIG_OPTIONS,
        takes="<stage> [overrides]",
    ),
    "list": Command("pipeline.commands.keeping:list_runs", "runs with state, step and results"),
    "du": Command("pipeline.commands.keeping:disk_usage", "bytes and files by stage and run"),
    "clean": Command(
        "pipeline.commands.keeping:clean",
        "remove outputs no run needs",
        {
            "--yes": "really remove",
            "--forget=": "first forget this run",
            "--forget-earlier=": "first forget what this run made under earlier settings",
        },
    ),
    "sync": Command(
        "pipeline.commands.sync:sync_run",
        "upload a pretraining to wandb as one run, rebuilt from metrics.jsonl",
        takes="<run or fingerprint> [paths.store=…]",
    ),
    "inspect": Command(
        "pipeline.commands.looking:inspect_examples",
        "decoded examples with masks, segments and labels",
        takes="[count=5] [shard=<file to check>] [overrides]",
    ),
    "estimate": Command(
        "pipeline.commands.estimate:estimate_pretraining",
        "memory, tokens, operations, disk, hours and cost of a pretraining",
        {
            "--gpu=": "only this one, such as A100-80",
            "--utilisation=": "share of the GPU's peak that training reaches (0.4)",
            "--price=": "dollars an hour of one GPU",
            **CONFIG_OPTIONS,
        },
    ),
    "similarity": Command(
        "pipeline.commands.similarity:similarity",
        "cosines of words beside people's judgements (SimLex-999, WordSim-353)",
        takes="[pairs=<file>] [overrides]",
    ),
    "embed": Command(
        "pipeline.commands.embed:embed",
        "contextual vectors of sentences, one a line, words between spaces",
        takes="encoder=<run or folder> input=<file> [output=vectors.safetensors or .npy] "
        "[layers=all, top or mix] [weights=0.2,0.3,0.5] [gamma=1] [overrides]",
    ),
    "fill": Command(
        "pipeline.commands.fill:fill",
        "what a BERT puts into the blanks of a text, with probabilities",
        takes="encoder=<run or folder> 'text=The film was [MASK].' [top=5] [overrides]",
    ),
    "senses": Command(
        "pipeline.commands.senses:senses",
        "a word's occurrences as encoders see them, on a page: which senses lie apart",
        takes="word=bank 'encoder=[a,b]' [sentences=<file: a sentence, or sentence tab label, a "
        "line>] [count=200] [output=senses] [overrides]",
    ),
    "doctor": Command("pipeline.commands.doctor:doctor", "what this machine can do, with remedies"),
    "bench": Command(
        "pipeline.commands.bench:bench", "timings against peers in one run", takes="<what>"
    ),
}


@dataclass(frozen=True)
class Arguments:
    """A parsed command line."""

    command: str
    words: list[str]  # plain words: a stage's name, what to bench
    overrides: list[str]
    options: dict[str, str]


def parse(argv: list[str]) -> Arguments:
    """Split a command line into command, options, plain words and overrides."""
    name = argv[0]
    if name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"{name}: no such command{hint}; sesame --help lists them")
    words, overrides, options = [], [], {}
    rest = iter(argv[1:])
    for word in rest:
        option = word.partition("=")[0]
        if option in ("-h", "--help"):
            options["--help"] = ""
        elif option == "--multirun":
            options["-m"] = ""
        elif word.startswith("-"):
            options[option] = _option_value(name, word, rest)
        elif "=" in word or word.startswith(("~", "+")):
            overrides.append(word)
        else:
            words.append(word)
    for option in ("--resolve", "--package"):
        if option in options and "--cfg" not in options:
            raise UsageError(f"{option}: goes with --cfg, which prints the configuration")
    return Arguments(name, words, overrides, options)


def _option_value(command: str, word: str, rest: Iterator[str]) -> str:
    """The value of an option that the command declares; nothing for one that takes none."""
    known = COMMANDS[command].options
    option, _, value = word.partition("=")
    if f"{option}=" in known:
        value = value or next(rest, "")
        if not value:
            raise UsageError(f"{option}: needs a value; sesame {command} --help says which")
        return value
    if option not in known:
        close = get_close_matches(option, [key.rstrip("=") for key in known], n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"{word}: sesame {command} has no such option{hint}")
    if "=" in word:
        raise UsageError(f"{word}: {option} takes no value")
    return ""


def take_own(overrides: list[str], defaults: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """A command's own keys, with their defaults, and the overrides that are left for Hydra."""
    own, others = dict(defaults), []
    for override in overrides:
        key, _, value = override.partition("=")
        if key in own:
            own[key] = value
        else:
            others.append(override)
    return own, others


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
        _show_help()
        return 0
    try:
        if _is_job_script():
            from pipeline.cluster.continuing import listen

            listen()
        arguments = parse(argv)
        if "--help" in arguments.options:
            _show_command_help(arguments.command)
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


def show_error(command: str, error: SesameError) -> int:
    """Say in one sentence what went wrong; returns the exit code."""
    console.print(f"[red]sesame {command}:[/] ", end="")
    console.print(str(error), markup=False, soft_wrap=True)
    return error.exit_code


def _show_help() -> None:
    print("usage: sesame <command> [options] [Hydra overrides]\n")
    print("Pretrain BERT and ELMo from raw text to scored, loadable models. Commands:\n")
    for name, command in COMMANDS.items():
        print(f"  {name:<10} {command.help}")
    print("\nTry: sesame run experiment=demo; sesame pretrain --help lists that stage's keys.")


# Sections that a stage obeys without their keys being part of its fingerprint.
TOLD_BESIDE = {"pretrain": ("init", "tracking")}


def _show_command_help(name: str) -> None:
    from pipeline.config.compose import CONF, describe_keys, group_options
    from pipeline.workflow.graph import STAGES, stage_module

    command = COMMANDS[name]
    print(f"usage: sesame {name} [options] {command.takes}\n\n{command.help}\n")
    for option, meaning in command.options.items():
        print(f"  {option.rstrip('='):<12} {meaning}")
    if name not in STAGES and name not in ("run", "plan"):
        return
    sections = stage_module(name).SECTIONS if name in STAGES else ("name", "seed", "paths")
    sections += TOLD_BESIDE.get(name, ())
    table = Table(box=None, pad_edge=False)
    for heading in ("key", "default", "meaning"):
        table.add_column(heading, overflow="fold")
    for key, default, meaning in describe_keys(("paths", *sections)):
        table.add_row(key, "" if default is None else str(default), meaning.replace("[", "\\["))
    from rich import print as show

    show(table)
    groups = [group for group in sections if (CONF / group).is_dir()]
    for group in groups if name in STAGES else ["experiment"]:
        print(f"\n{group}= one of: {', '.join(group_options(group))}")


if __name__ == "__main__":
    main()
