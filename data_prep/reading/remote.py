"""Files that are not on a disk: `s3://…`, `hf://…`, `https://…`, through fsspec.

A remote file is read where it is, in ranges, by the same readers as a local one. Credentials come
from the environment, as each service's own tools find them; an address that contains one is
refused, since addresses are stored. The drivers are an extra: sesame-encoders[remote].
"""

import hashlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from data_prep.errors import SesameError, UsageError

ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
MAGIC = re.compile(r"[*?\[]")
# Facts of a listing by which a changed file is noticed; services name them differently.
VERSIONS = ("ETag", "etag", "blob_id", "xet_hash", "LastModified", "last_modified", "mtime")


def is_remote(item: str) -> bool:
    """Return True if a path is an address, such as s3://bucket/folder."""
    return ADDRESS.match(item) is not None


@dataclass(frozen=True)
class RemoteStatus:
    """Size and version, under the names that os.stat_result has."""

    st_size: int
    st_mtime_ns: int
    st_ino: int


@dataclass(frozen=True)
class RemotePath:
    """A remote file as it was found; it has the methods of `Path` that readers use."""

    address: str
    size: int
    version: str

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition("/")[2]

    def __str__(self) -> str:
        return self.address

    def resolve(self) -> "RemotePath":
        """Return itself: an address has no links."""
        return self

    def stat(self) -> RemoteStatus:
        """Return the size and version that were found; asks nobody."""
        digest = hashlib.blake2b(self.version.encode(), digest_size=7).digest()
        return RemoteStatus(self.size, 0, int.from_bytes(digest, "little"))

    def present(self) -> "RemotePath | None":
        """Return the file as it is now, or None if it is gone."""
        system, path = _open_system(self.address)
        with _named(self.address):
            system.invalidate_cache()
            try:
                return _described(self.address, system.info(path))
            except FileNotFoundError:
                return None

    def open(self, mode: Literal["rb"] = "rb") -> io.BufferedReader:
        """Open the file for reading bytes; ranges are fetched when they are read."""
        system, path = _open_system(self.address)
        with _named(self.address):
            raw = _Stream(self.address, system.open(path, "rb"))
        return io.BufferedReader(raw, 1 << 20)


class _Stream(io.RawIOBase):
    """A remote file whose every failure is a SesameError: none may look like the file's end."""

    def __init__(self, address: str, file: Any):
        self._address = address
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        with _named(self._address):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any, /) -> int:
        with _named(self._address):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def find_remote(key: str, item: str) -> tuple[str, list[RemotePath]]:
    """Return the common root of an address, a folder or a glob, and the files below it.

    Raises UsageError, naming `key`, if the address holds a secret or there is no such file.
    """
    _refuse_secrets(key, item)
    system, path = _open_system(item)
    with _named(item):
        if magic := MAGIC.search(path):
            root = path[: magic.start()].rpartition("/")[0]
            found = system.glob(path, detail=True)
        elif system.isdir(path) and not system.isfile(path):
            root = path.rstrip("/")
            found = system.find(path, detail=True)
        elif system.exists(path):
            root = path.rpartition("/")[0]
            found = {path: system.info(path)}
        else:
            raise UsageError(f"{key}={item}: there is no such file or folder")
    files = [info for info in found.values() if info["type"] == "file"]
    return root, [_described(system.unstrip_protocol(info["name"]), info) for info in files]


def relative_name(file: RemotePath, root: str) -> str:
    """Return a file's path below the root that `find_remote` returned."""
    _, path = _open_system(file.address)
    return path.removeprefix(root).lstrip("/")


def _described(address: str, info: dict[str, Any]) -> RemotePath:
    if info.get("size") is None:
        raise SesameError(f"{address}: the server does not state its size; download the file")
    version = next((str(info[key]) for key in VERSIONS if info.get(key)), "")
    return RemotePath(address, int(info["size"]), version)


def _refuse_secrets(key: str, item: str) -> None:
    place = item.partition("://")[2].partition("/")[0]
    if "@" in place or "?" in item or "::" in item:
        raise UsageError(
            f"{key}: an address with a user name, a password or a query is not taken, since "
            "addresses are stored; set credentials in the environment and give the bare address"
        )
    if item.lower().startswith("file:"):
        raise UsageError(f"{key}={item}: write the path of a local file without file://")


def _open_system(address: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # imports the service's driver

    try:
        system, path = url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"{address}: cannot be read here ({error}); known addresses begin with s3://, hf:// "
            "or https://, and need: pip install 'sesame-encoders[remote]'"
        ) from error
    return system, path


@contextmanager
def _named(address: str) -> Iterator[None]:
    """Turn a failure of the service, of whatever class, into one sentence with the address."""
    try:
        yield
    except (SesameError, FileNotFoundError):
        raise
    except Exception as error:  # each driver has its own classes
        raise SesameError(
            f"{address}: cannot be read ({type(error).__name__}: {error}); check the network and "
            "the credentials in the environment, then run the same command again"
        ) from error
