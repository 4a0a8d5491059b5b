"""The site file's settings for Hydra's submitit launcher (`hydra/launcher=submitit_slurm`).

submitit writes its own scripts, with one task per job. Options that it does not know are passed on
in `additional_parameters`, which sbatch gets as they are.
"""

from data_prep.errors import UsageError
from pipeline.cluster.resources import Resources
from pipeline.cluster.scripts import activation
from pipeline.cluster.site import Site, site_path
from pipeline.config.compose import literal

PREFIX = "hydra.launcher."
YEAR_MINUTES = 365 * 24 * 60  # submitit needs a number where the site sets no limit
# Options of sbatch that are settings of the launcher, by their names there.
OWN_NAMES = {
    "partition": "partition", "account": "account", "qos": "qos", "constraint": "constraint",
    "cpus-per-task": "cpus_per_task", "gres": "gres",
}  # fmt: skip
# Settings of the launcher with which a user replaces an option that we would pass on.
REPLACED_BY = {
    "mem": ("mem_gb", "mem_per_cpu", "mem_per_gpu"),
    "gpus-per-node": ("gpus_per_node", "gpus_per_task", "gres"),
    "time": ("timeout_min",),
}


def launcher_settings(own: Resources, site: Site, given: dict[str, str]) -> dict[str, str]:
    """Return overrides of `hydra.launcher` for a stage's resources; those `given` are left out.

    Raises a UsageError if the site uses a container.
    """
    if site.container is not None:
        raise UsageError(
            f"{site_path()}: container: hydra/launcher=submitit_slurm starts Python outside of "
            "containers; use sesame submit <stage> -m, which makes the same sweep"
        )
    asked = own.parameters(as_gres=site.gpu_option == "gres")
    settings = {OWN_NAMES[key]: value for key, value in asked.items() if key in OWN_NAMES}
    if own.time is not None:
        minutes = own.minutes()
        settings["timeout_min"] = str(minutes or YEAR_MINUTES)
        if minutes is not None:
            del asked["time"]
    settings |= {"signal_delay_s": str(site.signal), "array_parallelism": str(site.at_once)}
    if setup := activation(site):
        settings["setup"] = f"[{','.join(_quoted(_without_braces(line)) for line in setup)}]"
    passed = {
        key: _quoted(value)
        for key, value in asked.items()
        if key not in OWN_NAMES
        and not any(f"{PREFIX}{name}" in given for name in REPLACED_BY.get(key, ()))
    }
    for option in own.extra:
        name, equals, value = option.lstrip("-").partition("=")
        passed[name] = _quoted(value) if equals else "true"
    ours = {f"{PREFIX}{key}": value for key, value in settings.items()}
    added = {key: value for key, value in ours.items() if key not in given}
    if passed:  # ++, because the launcher's dict has none of these keys
        pairs = ",".join(f"{name}:{value}" for name, value in passed.items())
        added[f"++{PREFIX}additional_parameters"] = f"{{{pairs}}}"
    return added


def _without_braces(line: str) -> str:
    """Return a shell line that does the same without `${`, which OmegaConf would interpolate.

    It does so several times on the way to the script, so escaping does not help.
    """
    if "${" not in line:
        return line
    escapes = {"\\": "\\\\", "'": "\\'", "$": "\\x24"}
    return f"eval $'{''.join(escapes.get(letter, letter) for letter in line)}'"


def _quoted(text: str) -> str:
    """Return text as a quoted string of Hydra's grammar, without interpolation."""
    return '"' + str(literal(text)).replace('"', '\\"') + '"'
