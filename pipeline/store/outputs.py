"""The store: one folder `<stage>/<fingerprint>/` per output. An output is finished once it has a
manifest.

manifest.json   stage, config, upstream, counts, size and checksum of every file; written last
run.json        run facts that differ between machines: times, host, versions. For an export they
                are in `run_facts/<stage>/<fingerprint>.json`, so that its folder can be published
.request.json   the content that the fingerprint hashes; written first, to describe unfinished work
"""

import hashlib
import json
import os
import platform
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.files import is_text, read_json_object, sync_directory, write_atomically
from pipeline.store.content import Checksums

MANIFEST, RUN, REQUEST, LEASE = "manifest.json", "run.json", ".request.json", ".lease.json"
MANIFEST_CHECKSUM = "manifest_sha256"  # key of run.json: a manifest cannot hold its own checksum
FINGERPRINT_LENGTH = 16
PUBLISHED = ("export",)  # stages whose folders users upload unchanged
RUN_FACTS = "run_facts"  # folder of the store with the run facts of these stages
CONFIGS = "configs"  # folder of the store with the composed config of every output
REMOVED = ".removed"  # suffix of a folder while it is being deleted
CLEANED_TEXT = Path(".cache") / "clean"  # below the store; see data_prep.corpus.cache


def canonical(value: Any) -> str:
    """Return JSON text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def fingerprint(request: dict[str, Any]) -> str:
    """Return the hash of a request, which names its output."""
    return hashlib.sha256(canonical(request).encode()).hexdigest()[:FINGERPRINT_LENGTH]


@dataclass(frozen=True)
class Output:
    """An output of the store: finished, unfinished or not yet begun."""

    stage: str
    fingerprint: str
    path: Path

    @property
    def is_done(self) -> bool:
        """True if the output is finished: it has its manifest, and the manifest is readable.

        `store.verify` compares the files with it.
        """
        return self.has_manifest and _manifest_of(self) is not None

    @property
    def has_manifest(self) -> bool:
        """True if there is a manifest, damaged or not."""
        return (self.path / MANIFEST).exists()

    @property
    def is_begun(self) -> bool:
        """True if work has started and is not finished."""
        return (self.path / REQUEST).exists()

    @property
    def reference(self) -> str:
        """The name of the output in manifests and runs: `<stage>/<fingerprint>`."""
        return f"{self.stage}/{self.fingerprint}"

    def manifest(self) -> dict[str, Any]:
        """Read the manifest. Raises `SesameError` if it is missing or damaged."""
        found = _manifest_of(self) if self.has_manifest else None
        if found is None:
            state = "is damaged" if self.has_manifest else "is missing"
            raise SesameError(
                f"{self.path / MANIFEST}: {state}; to set the output aside and make it again: "
                f"sesame repair {self.reference}"
            )
        return found

    def request(self) -> dict[str, Any]:
        """Read the content that the fingerprint hashes, of a finished or unfinished output."""
        if self.is_done:
            manifest = self.manifest()
            return {
                key: manifest[key]
                for key in ("stage", "format", "config", "upstream", "files_read")
            }
        return _load_request(self.path / REQUEST)

    def begin(self, request: dict[str, Any]) -> None:
        """Create the folder and write .request.json."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / REQUEST, json.dumps(request, indent=1, sort_keys=True))

    def finish(
        self,
        request: dict[str, Any],
        counts: dict[str, Any],
        run: dict[str, Any],
        check_lease: Callable[[], None] = lambda: None,
    ) -> None:
        """Hash every file, then write the run facts and the manifest, which finishes the output.

        Hashing may take minutes, so `check_lease` is called after it, and again immediately before
        the manifest is renamed to its final name.
        """
        known = Checksums(self.path.parents[1])
        files = {
            str(path.relative_to(self.path)): known.for_manifest(path) for path in self.files()
        }
        known.save()  # so that the first reader does not hash them again
        manifest = request | {"fingerprint": self.fingerprint, "counts": counts, "files": files}
        check_lease()
        facts = _facts_outside(self.path) if self.stage in PUBLISHED else self.path / RUN
        facts.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps(manifest, indent=1, sort_keys=True)
        facts_of_run = run | {MANIFEST_CHECKSUM: hashlib.sha256(content.encode()).hexdigest()}
        write_atomically(facts, json.dumps(facts_of_run, indent=1, sort_keys=True))
        write_atomically(self.path / MANIFEST, content, before_rename=check_lease)
        (self.path / REQUEST).unlink(missing_ok=True)
        sync_directory(self.path)

    def move_run_facts_out(self) -> None:
        """Move run.json out of an export that an earlier version of Sesame made."""
        if self.stage in PUBLISHED and (self.path / RUN).exists():
            _facts_outside(self.path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.path / RUN, _facts_outside(self.path))

    def remove(self) -> None:
        """Delete the output and its run facts. A kill during deletion leaves no partial output."""
        remove_folder(self.path)
        _facts_outside(self.path).unlink(missing_ok=True)
        kept_config_path(self).unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """Return the output's files, sorted, without hidden files, the manifest and run.json."""
        found = []
        for folder, folders, names in os.walk(self.path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            top = Path(folder) == self.path
            found += [
                Path(folder) / name
                for name in sorted(names)
                if not name.startswith(".") and not (top and name in (MANIFEST, RUN))
            ]
        return found


class Store:
    """All outputs below one folder."""

    def __init__(self, root: Path):
        """Raises `UsageError` if `root` cannot be a folder; it need not exist."""
        if not is_text(str(root)):
            raise UsageError("paths.store: the path is not valid UTF-8; use another folder")
        if root.exists() and not root.is_dir():
            raise UsageError(f"paths.store={root}: is a file; name a folder, or move the file away")
        self.root = root

    def output(self, stage: str, fingerprint: str) -> Output:
        """Return the output of a stage and fingerprint, whether it exists or not."""
        return Output(stage, fingerprint, self.root / stage / fingerprint)

    def from_reference(self, reference: str) -> Output:
        """Return the output with the reference `<stage>/<fingerprint>`."""
        stage, _, name = reference.partition("/")
        return self.output(stage, name)

    def ancestors(self, output: Output) -> list[Output]:
        """Return every output that this one was made from, directly or not; nearest first."""
        found: dict[str, Output] = {}
        waiting = [output]
        while waiting:
            descendant = waiting.pop(0)
            if not (descendant.is_done or descendant.is_begun):
                continue
            for reference in descendant.request()["upstream"].values():
                if reference not in found and not reference.startswith("folder/"):
                    found[reference] = self.from_reference(reference)
                    waiting.append(found[reference])
        return list(found.values())

    def dependants(self, output: Output) -> list[Output]:
        """Return every output that was made from this one, directly or not."""
        return [
            each
            for folder in sorted(self.root.iterdir())
            for each in self.outputs(folder.name)
            if output.reference in {before.reference for before in self.ancestors(each)}
        ]

    def outputs(self, stage: str) -> Iterator[Output]:
        """Yield all outputs of a stage, finished or unfinished, sorted by fingerprint."""
        folder = self.root / stage
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                output = Output(stage, path.name, path)
                if not path.name.startswith(".") and (output.has_manifest or output.is_begun):
                    yield output


def move_run_facts(old: Path, new: Path) -> None:
    """Rename the run facts that are outside an output's folder, as its folder is renamed."""
    if _facts_outside(old).exists():
        os.replace(_facts_outside(old), _facts_outside(new))


def _facts_outside(path: Path) -> Path:
    return path.parents[1] / RUN_FACTS / path.parent.name / f"{path.name}.json"


def kept_config_path(output: Output) -> Path:
    """Return the path of the composed config that an output was made with."""
    store = output.path.parents[1]
    return store / CONFIGS / output.stage / f"{output.fingerprint}.yaml"


def run_facts_path(path: Path) -> Path:
    """Return the path of the run facts of the finished output at `path`."""
    outside = _facts_outside(path)
    return outside if outside.exists() else path / RUN


def recorded_manifest_checksum(output: Output) -> str | None:
    """Return the checksum of the manifest as it was written; None for outputs of earlier versions,
    and if the run facts are missing or damaged."""
    path = run_facts_path(output.path)
    facts = (read_json_object(path) if path.exists() else None) or {}
    checksum = facts.get(MANIFEST_CHECKSUM)
    return checksum if isinstance(checksum, str) else None


def bytes_and_files(folder: Path) -> tuple[int, int]:
    """Return the size of all files below a folder, and their number."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


def remove_folder(path: Path) -> None:
    """Delete a folder that other processes may read: rename it first, then delete its content."""
    doomed = path.with_name(f".{path.name}{REMOVED}")
    if doomed.exists():  # left by an earlier removal that was killed
        shutil.rmtree(doomed)
    os.replace(path, doomed)
    shutil.rmtree(doomed)


def package_versions() -> dict[str, str]:
    """Return the installed versions of the packages that affect results."""
    versions = {}
    for package in ("sesame-encoders", "torch", "pytorch-lightning", "deepspeed", "transformers"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def run_facts(name: str, started: datetime, seconds: float) -> dict[str, Any]:
    """Return the content of run.json: facts that differ from machine to machine."""
    return {
        "name": name,
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "host": socket.gethostname(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": package_versions(),
    }


def _manifest_of(output: Output) -> dict[str, Any] | None:
    """Read a manifest; None if the file is not the manifest of this output."""
    found = read_json_object(output.path / MANIFEST)
    if found is None or found.get("fingerprint") != output.fingerprint:
        return None
    if not all(isinstance(found.get(key), dict) for key in ("config", "upstream", "files")):
        return None
    are_entries = all(
        isinstance(entry, dict)
        and isinstance(entry.get("size"), int)
        and isinstance(entry.get("sha256"), str)
        for entry in found["files"].values()
    )
    return found if are_entries else None


def _load_request(path: Path) -> dict[str, Any]:
    found = read_json_object(path)
    if found is None or not isinstance(found.get("upstream"), dict):
        raise SesameError(
            f"{path}: is damaged; move the folder {path.parent} away and run the same command again"
        )
    return found
