"""Write job scripts from the templates in slurm/, a site's options and an environment."""

import re
import shlex
import sys
from pathlib import Path

from pipeline.cluster.site import Site

# In the repository slurm/ is beside the packages; in a wheel it is inside `pipeline`.
_INSIDE = Path(__file__).parents[1] / "slurm"
TEMPLATES = _INSIDE if _INSIDE.is_dir() else Path(__file__).parents[2] / "slurm"
SBATCH = "#SBATCH "
COMMAND = "exec python "  # begins the last line of every template


def fill_template(
    template: str, options: list[str], setup: list[str], arguments: list[str], wrapper: str = ""
) -> str:
    """Return a template as a job script.

    `options` replace the template's options of the same name. `setup` lines replace its `source`
    line. `arguments` become the script's positional arguments. `wrapper` is a shell command before
    the template's own.
    """
    lines = (TEMPLATES / f"{template}.sbatch").read_text().splitlines()
    ours = {_name(option) for option in options}
    kept = [
        line for line in lines if line.startswith(SBATCH) and _name(line[len(SBATCH) :]) not in ours
    ]
    begin = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    body = [
        replaced
        for line in lines[begin:]
        for replaced in (
            [*setup, shlex.join(["set", "--", *arguments])]
            if _activates(line)
            else [line.replace(COMMAND, f"exec {wrapper} python ") if wrapper else line]
        )
    ]
    header = [lines[0], f"# Made by sesame submit of slurm/{template}.sbatch."]
    ours_written = [SBATCH + _quoted(option) for option in options]
    return "\n".join([*header, *kept, *ours_written, *body]) + "\n"


def _quoted(option: str) -> str:
    """Return an option as sbatch reads it from a script: quotes keep spaces and `#` in a value."""
    name, equals, value = option.partition("=")
    if re.fullmatch(r"[^\s\"'\\#]*", value):
        return option
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{equals}"{escaped}"'


def _activates(line: str) -> bool:
    return line.startswith("source ")


def _name(option: str) -> str:
    return option.partition("=")[0].replace("--no-", "--")


def container_wrapper(site: Site, code: Path) -> str:
    """Return the shell command that runs sesame in the site's container; empty without one.

    SLURM's commands are called outside of it by slurm/outside.sh. The container's command stands
    as in the site file: the shell may expand variables in it.
    """
    if site.container is None:
        return ""
    script = code / TEMPLATES.relative_to(Path(__file__).parents[2]) / "outside.sh"
    return f"bash {shlex.quote(str(script))} {site.container}"


def activation(site: Site) -> list[str]:
    """Return the shell lines that load the site's modules and activate its Python."""
    lines = [f"module load {shlex.quote(module)}" for module in site.modules]
    return lines if site.activate is None else [*lines, site.activate]


def environment(site: Site, code: Path, script: Path) -> list[str]:
    """Return shell lines that make a job run the frozen code with the site's modules and Python."""
    lines = activation(site)
    if site.activate is None and site.container is None:
        lines.append(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH")
    exports = {
        # Keep the working directory off sys.path: its code may have been edited meanwhile.
        "PYTHONSAFEPATH": "1",
        "SESAME_CONTINUE": site.continuation,
        "SESAME_SCRIPT": str(script),
        "SESAME_CONTAINER": site.container,
        "SESAME_CALLS_IN": str(script.parent) if site.container else None,
        "SESAME_SCRATCH": site.scratch,
    }
    return [
        "set +u  # other people's scripts",
        *lines,
        "set -u",
        f'export PYTHONPATH={shlex.quote(str(code))}"${{PYTHONPATH:+:$PYTHONPATH}}"',
        *(f"export {name}={shlex.quote(value)}" for name, value in exports.items() if value),
    ]
