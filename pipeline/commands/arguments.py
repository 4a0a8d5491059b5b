"""Parse the command line into command, options, words and overrides; print errors."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from data_prep.errors import SesameError, UsageError
from data_prep.progress import console
from pipeline.commands.catalogue import COMMANDS, SHORT


@dataclass(frozen=True)
class Arguments:
    """A parsed command line."""

    command: str
    words: list[str]  # words without `=`, for example a stage's name
    overrides: list[str]
    options: dict[str, str]

    def refuse_words(self) -> None:
        """Raise `UsageError` if there is a word that is neither an option nor an override."""
        if self.words:
            raise UsageError(f"{self.words[0]}: not an override; overrides look like key=value")


def parse(argv: list[str]) -> Arguments:
    """Split a command line; raise a UsageError for unknown commands and options."""
    name = argv[0]
    if name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"{name}: no such command{hint}; sesame --help lists them")
    words, overrides, options = [], [], {}
    rest = iter(argv[1:])
    for word in rest:
        option = word.partition("=")[0]
        if option in SHORT:
            word = SHORT[option] + word.removeprefix(option)
            option = SHORT[option]
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
    if options.get("--info") == "":
        options["--info"] = words.pop(0) if words else "all"
    for option in ("--resolve", "--package"):
        if option in options and "--cfg" not in options:
            raise UsageError(f"{option}: goes with --cfg, which prints the configuration")
    return Arguments(name, words, overrides, options)


def _option_value(command: str, word: str, rest: Iterator[str]) -> str:
    """Return the value of a declared option, taken from `rest` if needed; "" without a value."""
    known = COMMANDS[command].options
    option, _, value = word.partition("=")
    if option == "--info" and not value:  # as with Hydra, its value may follow or be left out
        return ""
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


def call(arguments: Arguments) -> None:
    """Run a command; only now is its module imported."""
    module, _, function = COMMANDS[arguments.command].function.partition(":")
    getattr(importlib.import_module(module), function)(arguments)


def take_own(overrides: list[str], defaults: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return a command's own keys, with defaults filled in, and the overrides left for Hydra."""
    own, others = dict(defaults), []
    for override in overrides:
        key, _, value = override.partition("=")
        if key in own:
            own[key] = value
        else:
            others.append(override)
    return own, others


def show_error(command: str, error: SesameError) -> int:
    """Print the error in one sentence; return its exit code."""
    console.print(f"[red]sesame {command}:[/] ", end="")
    console.print(str(error), markup=False, soft_wrap=True)
    return error.exit_code
