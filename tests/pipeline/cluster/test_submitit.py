"""The site's settings reach the script that submitit writes."""

import subprocess
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from data_prep.errors import UsageError
from pipeline.cluster.resources import Resources
from pipeline.cluster.site import Site
from pipeline.cluster.submitit import launcher_settings
from pipeline.config.compose import CONF, register


def launcher(own: Resources, site: Site, *given: str) -> Any:
    """Return the launcher's config as Hydra composes it."""
    words = ["hydra/launcher=submitit_slurm", *given]
    known = dict(word.partition("=")[::2] for word in words)
    words += [f"{key}={value}" for key, value in launcher_settings(own, site, known).items()]
    register()
    with initialize_config_dir(str(CONF), version_base="1.3", job_name="sesame"):
        raw = compose("config", words, return_hydra_config=True)
    return OmegaConf.to_container(raw.hydra.launcher, resolve=False)


def test_every_setting_of_the_site_is_passed_on() -> None:
    own = Resources(
        partition="gpu", account="nlp", qos="long", reservation="course", constraint="fast",
        time="1-12", gpus="a100:2", cpus=8, memory="64G", mail="me@example.org",
        extra=["--exclusive", "--comment=it's mine"],
    )  # fmt: skip
    site = Site(
        modules=["cuda/12.4"], activate="source ${HOME}/venv/bin/activate", signal=300, at_once=3
    )
    made = launcher(own, site)
    assert made["partition"] == "gpu" and made["account"] == "nlp" and made["qos"] == "long"
    assert made["constraint"] == "fast" and made["cpus_per_task"] == 8
    assert made["timeout_min"] == 36 * 60
    assert made["signal_delay_s"] == 300 and made["array_parallelism"] == 3
    assert made["additional_parameters"] == {
        "reservation": "course",
        "gpus-per-node": "a100:2",
        "mem": "64G",
        "mail-user": "me@example.org",
        "mail-type": "END,FAIL",
        "exclusive": True,
        "comment": "it's mine",
    }
    module, activate = made["setup"]
    assert module == "module load cuda/12.4"
    assert "${" not in activate  # OmegaConf would interpolate
    shown = subprocess.run(
        ["bash", "-c", activate.replace("source", "echo")], env={"HOME": "/me"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert shown.stdout == "/me/venv/bin/activate\n"


def test_no_limit_is_passed_on_too() -> None:
    made = launcher(Resources(time="UNLIMITED"), Site())
    assert made["additional_parameters"] == {"time": "UNLIMITED"}
    assert made["timeout_min"] == 365 * 24 * 60


def test_settings_of_the_command_line_hold() -> None:
    own = Resources(memory="64G", time="UNLIMITED", partition="gpu")
    given = ("hydra.launcher.mem_gb=8", "hydra.launcher.timeout_min=5", "hydra.launcher.qos=x")
    made = launcher(own, Site(qos="long"), *given)
    assert made["mem_gb"] == 8 and made["timeout_min"] == 5 and made["qos"] == "x"
    assert made["additional_parameters"] == {}


def test_gres_and_containers() -> None:
    assert launcher(Resources(gpus="2"), Site(gpu_option="gres"))["gres"] == "gpu:2"
    with pytest.raises(UsageError, match="use sesame submit <stage> -m"):
        launcher_settings(Resources(), Site(container="apptainer exec x.sif"), {})
