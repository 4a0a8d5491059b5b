"""The user's own code, named by a dotted path such as `my_package.my_module.MyClass`.

It must be importable: installed, or in a folder of PYTHONPATH. Fingerprints contain the checksum of
the module's file, so that a change of the code is a change of the settings.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from data_prep.errors import UsageError
from data_prep.files import sha256


def load(key: str, path: str) -> Any:
    """Import what `path` names; `key` is the setting that holds it. Raises `UsageError`."""
    module, _, name = path.rpartition(".")
    if not module:
        raise UsageError(f"{key}={path}: must be a dotted path, such as package.module.name")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{key}={path}: cannot be imported: {error}") from error


def source_file(key: str, path: str) -> Path:
    """Return the file that defines the module of `path`, without importing it."""
    module = path.rpartition(".")[0]
    try:
        spec = importlib.util.find_spec(module) if module else None
    except ModuleNotFoundError as error:
        raise UsageError(f"{key}={path}: {error}; install it or add it to PYTHONPATH") from error
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise UsageError(
            f"{key}={path}: there is no Python module {module or path}; install it or add its "
            "folder to PYTHONPATH"
        )
    return Path(spec.origin)


def source_checksum(key: str, path: str) -> str:
    """Return the checksum of the file that defines the module of `path`, without importing it."""
    return sha256(source_file(key, path))
