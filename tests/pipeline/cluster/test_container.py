"""The Apptainer definition: it names what exists and needs no network. We cannot build it here."""

import re

from pipeline.cluster.scripts import TEMPLATES

ROOT = TEMPLATES.parent


def sections() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"": []}
    name = ""
    for line in (TEMPLATES / "sesame.def").read_text().splitlines():
        if header := re.fullmatch(r"%(\w+)", line):
            name = header[1]
            found[name] = []
        elif line.strip() and not line.startswith("#"):
            found[name].append(line.strip())
    return found


def test_the_image_installs_from_the_wheelhouse_alone() -> None:
    definition = sections()
    copied = dict(line.split() for line in definition["files"])
    assert (ROOT / "constraints.txt").exists() and "wheelhouse" in (ROOT / "Makefile").read_text()
    assert set(copied) == {"wheelhouse", "constraints.txt"}
    (install,) = [line for line in definition["post"] if "pip install" in line]
    assert "--no-index" in install
    assert f"--find-links={copied['wheelhouse']}" in install
    assert f"-c {copied['constraints.txt']}" in install
    project = (ROOT / "pyproject.toml").read_text()
    name, extras = re.search(r"'([\w-]+)\[(.*)\]'", install).groups()  # type: ignore[union-attr]
    assert f'name = "{name}"' in project
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)
    wheels = re.search(r"pip wheel .*'\.\[(.*)\]'", (ROOT / "Makefile").read_text())
    assert wheels is not None and set(extras.split(",")) <= set(wheels[1].split(","))


def test_the_base_is_a_local_file() -> None:
    header = dict(line.split(": ") for line in sections()[""])
    assert header == {"Bootstrap": "docker-archive", "From": "{{ base }}"}
    assert sections()["arguments"] == ["base=python.tar"]
