"""Checks outputs against their manifests: an output is what its manifest says.

Sizes are always compared. Checksums are compared once per version of a file: `Checksums` remembers
a version by size, inode and mtime. Files above 64 MB are compared by sampled blocks, unless `full`.
Damaged outputs are never deleted: `set_aside` renames them.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from data_prep.files import sha256
from pipeline.store.checkpoints import CHECKPOINTS
from pipeline.store.content import SAMPLED, Checksums
from pipeline.store.outputs import MANIFEST, Output, fingerprint, recorded_manifest_checksum

DAMAGED = ".damaged"  # suffix of what was set aside; the name also begins with a dot


@dataclass(frozen=True)
class Fault:
    """One file of an output that is not what the manifest says."""

    file: str  # relative to the output
    reason: str

    def __str__(self) -> str:
        return f"{self.file} {self.reason}"


class Damaged(SesameError):
    """An output is not what its manifest says."""


def find_faults(output: Output, checksums: Checksums, full: bool = False) -> Iterator[Fault]:
    """Yield every file that differs from the manifest; nothing if the output is not finished.

    Files that the manifest does not name are ignored.
    """
    if not output.has_manifest:
        return
    if not output.is_done:
        yield Fault(MANIFEST, "is damaged: it is not the manifest of this output")
        return
    if full and fingerprint(output.request()) != output.fingerprint:
        yield Fault(MANIFEST, "is damaged: what it was made from does not give its fingerprint")
        return
    if recorded_manifest_checksum(output) not in (None, sha256(output.path / MANIFEST)):
        yield Fault(MANIFEST, "is damaged: it has other content than when it was written")
        return
    for name, recorded in output.manifest()["files"].items():
        reason = _difference(output.path / name, recorded, checksums, full)
        if reason is not None:
            yield Fault(name, reason)


def _difference(
    path: Path, recorded: dict[str, Any], checksums: Checksums, full: bool
) -> str | None:
    """Return how a file differs from its entry in the manifest, or None if it does not."""
    try:
        size = path.stat().st_size
        if size != recorded["size"]:
            return f"has {size:,} bytes instead of {recorded['size']:,}"
        is_sampled = SAMPLED in recorded and not full
        found = checksums.of(path) if is_sampled else checksums.of_whole(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if found == recorded[SAMPLED if is_sampled else "sha256"] else "has other content"


def refuse_damage(output: Output, checksums: Checksums, full: bool = False) -> None:
    """Raise `Damaged` with the remedy if the output is finished but not what its manifest says."""
    for fault in find_faults(output, checksums, full):
        raise Damaged(
            f"{output.path}: {fault}, so it is not what its manifest says; to set it aside and "
            f"make it again: sesame repair {output.reference}"
        )


def set_aside(path: Path) -> Path:
    """Rename a damaged file or folder to a hidden name beside it; return the new path.

    Nothing uses, counts or removes hidden files, and they are no part of a finished output.
    """
    number, aside = 1, path.with_name(f".{path.name}{DAMAGED}")
    while aside.exists():
        number += 1
        aside = path.with_name(f".{path.name}{DAMAGED}-{number}")
    os.rename(path, aside)
    return aside


def _unit(file: str) -> str:
    """Return what is set aside with a file: its whole checkpoint, which is of no use without it."""
    parts = Path(file).parts
    return str(Path(*parts[:2])) if parts[0] == CHECKPOINTS else file


def reopen(output: Output, faults: list[Fault]) -> None:
    """Set the manifest and the damaged files aside, so that the stage continues from the others.

    Raises `Damaged` if the manifest itself is damaged, because it describes the output.
    """
    if not output.is_done:
        raise Damaged(f"{output.path / MANIFEST}: is damaged; nothing else describes this output")
    request = output.request()
    for name in dict.fromkeys(_unit(fault.file) for fault in faults):
        if (output.path / name).exists():
            set_aside(output.path / name)
    output.begin(request)
    set_aside(output.path / MANIFEST)
