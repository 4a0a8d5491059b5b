"""The form of a stage's files: names, keys and types of JSON, tensors, headings of pages.

    python -m tests.pipeline.stages.output_forms

writes formats.json beside this file, from outputs that `recorded_reads` makes. Do so after raising
the `format` of a stage. Values are left out, since they differ from machine to machine.
"""

import json
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from safetensors import safe_open

from pipeline.stages import STAGES
from pipeline.store.outputs import MANIFEST, Output, Store
from tests.pipeline.stages.recorded_reads import write_files

GOLDEN = Path(__file__).with_name("formats.json")
MANY = 12  # a dictionary with more keys of one form is keyed by data, such as words
HEADINGS = ("h1", "h2", "h3", "th")


def forms(store: Store) -> dict[str, Any]:
    """Return by stage its format version, and by file the forms that its outputs have."""
    found: dict[str, Any] = {}
    for name, stage in STAGES.items():
        files: dict[str, list[Any]] = {}
        for output in store.outputs(name):
            for file, form in output_forms(output).items():
                known = files.setdefault(file, [])
                if form is not None and form not in known:
                    known.append(form)
        ordered = {file: sorted(files[file], key=json.dumps) for file in sorted(files)}
        found[name] = {"format": stage.format, "files": ordered}
    return found


def output_forms(output: Output) -> dict[str, Any]:
    """Return the form of every file of an output, by its name with digits replaced."""
    files = {
        re.sub(r"\d+", "#", str(path.relative_to(output.path))): file_form(path)
        for path in output.files()
    }
    return files | {MANIFEST: json_form(output.manifest()["counts"])}


def file_form(path: Path) -> Any:
    """Return the form of one file; None if only its name counts."""
    if path.suffix == ".json":
        content = json.loads(path.read_text())
        # A later option of the architecture has a default that means the model without it.
        return json_form(content | {"model": {}} if path.name == "config.json" else content)
    if path.suffix == ".jsonl":
        lines = [json_form(json.loads(line)) for line in path.read_text().splitlines()]
        return merged(lines)
    if path.suffix == ".safetensors":
        with safe_open(path, "np") as tensors:
            names = sorted(tensors.keys())
            return {name: len(tensors.get_slice(name).get_shape()) for name in names}
    if path.suffix == ".hdf5":
        groups: list[str] = []
        with h5py.File(path) as file:
            file.visit(groups.append)
        return groups
    if path.suffix == ".npy":
        array = np.load(path, mmap_mode="r")
        return [str(array.dtype), array.ndim]
    if path.suffix == ".html":
        page = Headings()
        page.feed(path.read_text())
        return page.texts
    if path.suffix == ".md":
        return [line for line in path.read_text().splitlines() if line.startswith("#")]
    return None


def json_form(value: Any) -> Any:
    """Return keys and types of a JSON value."""
    if isinstance(value, dict):
        inner = {re.sub(r"\d+", "#", key): json_form(item) for key, item in value.items()}
        if len(inner) > MANY and len({json.dumps(form) for form in inner.values()}) == 1:
            return {"*": next(iter(inner.values()))}
        return dict(sorted(inner.items()))
    if isinstance(value, list):
        return [merged([json_form(item) for item in value])] if value else []
    if isinstance(value, bool) or value is None:
        return "true/false" if value is not None else "null"
    return "number" if isinstance(value, int | float) else "text"


def merged(found: list[Any]) -> Any:
    """Return one form for many: the union of keys, or all distinct forms."""
    if found and all(isinstance(form, dict) for form in found):
        return {key: None for form in found for key in sorted(form)}
    distinct = sorted({json.dumps(form) for form in found})
    return json.loads(distinct[0]) if len(distinct) == 1 else [json.loads(one) for one in distinct]


class Headings(HTMLParser):
    """The headings of a page and of its tables."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._is_inside = False

    def handle_starttag(self, tag: str, attributes: object) -> None:
        if tag in HEADINGS:
            self._is_inside = True
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in HEADINGS:
            self._is_inside = False

    def handle_data(self, data: str) -> None:
        if self._is_inside:
            self.texts[-1] += re.sub(r"\d+", "#", data.strip())


def written(found: dict[str, Any]) -> str:
    """Return forms as JSON with one line per file."""
    stages = []
    for stage, entry in found.items():
        files = [
            f"   {json.dumps(file)}: {json.dumps(form)}" for file, form in entry["files"].items()
        ]
        body = ",\n".join(files)
        stages.append(f' "{stage}": {{"format": {entry["format"]}, "files": {{\n{body}\n }}}}')
    return "{\n" + ",\n".join(stages) + "\n}\n"


def main() -> None:
    """Make outputs of every stage and write their forms."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        module = "tests.pipeline.stages.recorded_reads"
        subprocess.run([sys.executable, "-m", module, folder], check=True)
        found = forms(Store(Path(folder) / "store"))
    GOLDEN.write_text(written(found))


if __name__ == "__main__":
    main()
