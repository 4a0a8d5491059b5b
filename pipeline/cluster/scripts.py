"""Job scripts: the templates in slurm/, with a site's options and a submission's environment."""

import shlex
import sys
from pathlib import Path

from pipeline.cluster.site import Site

# In the repository slurm/ stands beside the packages; in a wheel it lies inside this one.
_INSIDE = Path(__file__).parents[1] / "slurm"
TEMPLATES = _INSIDE if _INSIDE.is_dir() else Path(__file__).parents[2] / "slurm"
SBATCH = "#SBATCH "


def fill(template: str, options: list[str], setup: list[str], arguments: list[str]) -> str:
    """A template with its own options replaced by the given ones, and the arguments it is for."""
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
            [*setup, shlex.join(["set", "--", *arguments])] if _activates(line) else [line]
        )
    ]
    header = [lines[0], f"# Made by sesame submit of slurm/{template}.sbatch."]
    return "\n".join([*header, *kept, *(SBATCH + option for option in options), *body]) + "\n"


def _activates(line: str) -> bool:
    return line.startswith("source ")


def _name(option: str) -> str:
    return option.partition("=")[0].replace("--no-", "--")


def environment(site: Site, code: Path, script: Path) -> list[str]:
    """The lines that make a job run the frozen code, with the site's modules and Python."""
    lines = [f"module load {module}" for module in site.modules]
    if site.activate is not None:
        lines.append(site.activate)
    else:
        lines.append(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH")
    return [
        "set +u  # other people's scripts",
        *lines,
        "set -u",
        # Safe path: not the folder of submission, where the code may have been edited meanwhile.
        "export PYTHONSAFEPATH=1",
        f'export PYTHONPATH={shlex.quote(str(code))}"${{PYTHONPATH:+:$PYTHONPATH}}"',
        f"export SESAME_CONTINUE={site.continuation} SESAME_SCRIPT={shlex.quote(str(script))}",
    ]
