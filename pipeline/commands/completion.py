"""Tab completion of commands, options, config groups and keys, as Hydra gives it.

    eval "$(sesame -sc install=bash)"

The shell calls `sesame -sc query` with the line so far in COMP_LINE and the cursor in COMP_POINT.
"""

import os

from data_prep.errors import UsageError
from pipeline.commands.catalogue import COMMANDS

_BASH = """\
_sesame_complete() {
  local IFS=$'\\n'
  COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
  COMPREPLY=($(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" sesame -sc query 2>/dev/null))
}
complete -o nospace -o default -F _sesame_complete sesame"""
_FISH = """\
function _sesame_complete
  COMP_LINE=(commandline -cp) sesame -sc query 2>/dev/null
end
complete -c sesame -f -a '(_sesame_complete)'"""
INSTALL = {
    "bash": _BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}",
    "fish": _FISH,
}
UNINSTALL = {
    "bash": "complete -r sesame",
    "zsh": "complete -r sesame",
    "fish": "complete -ec sesame",
}


def shell_completion(words: list[str]) -> None:
    """Print the shell's code for `install=<shell>` or `uninstall=<shell>`, or answer `query`."""
    asked, _, shell = (words or [""])[0].partition("=")
    if asked == "query":
        line = os.environ.get("COMP_LINE", "")
        print("\n".join(complete(line[: int(os.environ.get("COMP_POINT", len(line)))])))
        return
    scripts = {"install": INSTALL, "uninstall": UNINSTALL}.get(asked, {})
    if shell not in scripts:
        raise UsageError(
            f"--shell-completion {' '.join(words)}: must be install=<shell> or uninstall=<shell>, "
            f"for one of {', '.join(INSTALL)}"
        )
    print(scripts[shell])


def complete(line: str) -> list[str]:
    """Return the words that can stand at the end of a command line that begins so."""
    before, _, word = line.rpartition(" ")
    words = before.split()[1:]
    if not words:
        return sorted(name for name in [*COMMANDS, "--help", "--version"] if name.startswith(word))
    command = COMMANDS.get(words[0])
    if command is None:
        return []
    if word.startswith("-"):
        return sorted(option for option in command.options if option.startswith(word))
    overrides = [each for each in words[1:] if not each.startswith("-") and "=" in each]
    return [found for found in _of_hydra(overrides, word) if not found.startswith("hydra.")]


def _of_hydra(overrides: list[str], word: str) -> list[str]:
    """Return groups, options and keys from Hydra's own completion."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.plugins.completion_plugin import DefaultCompletionPlugin

    from pipeline.config.compose import CONF, prepared, register

    register()
    try:
        ready = prepared(overrides)
    except UsageError:  # the line is not finished yet
        return []
    with initialize_config_dir(str(CONF), version_base="1.3", job_name="sesame"):
        plugin = DefaultCompletionPlugin(GlobalHydra.instance().config_loader())
        found: list[str] = plugin._query("config", " ".join([*ready, word]))
    return found
