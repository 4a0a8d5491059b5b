"""Find the user's files and divide them into parts and work units."""

import glob
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from data_prep.errors import UsageError
from data_prep.files import is_text
from data_prep.reading.lines import read_blocks
from data_prep.reading.markup import SNIFFED_BYTES, kind_of_xml, page_links, parse_xml
from data_prep.reading.remote import find_remote, is_remote, relative_name
from data_prep.reading.saved_datasets import reason_to_skip
from data_prep.reading.source_files import ENDINGS, FORMAT, FilePath, FileState, Part, SourceFile
from data_prep.reading.tally import Tally

PIECE_BYTES = 16 << 20  # raw bytes per work unit, if a file can be split
# Reasons why a file in a corpus folder is not read. The manifest has a count per key.
UNREAD = {
    "unknown_ending": f"the ending is unknown; known: {ENDINGS}",
    "other_xml": "the XML is none of MediaWiki, ALTO, PAGE and METS",
    "no_pages": "the METS file names no ALTO or PAGE file of the corpus",
    "dataset_description": "it describes a saved dataset and holds no rows",
    "not_in_dataset": "the dataset's state.json does not list it",
    "hidden": "the name starts with a dot",
    "name_not_utf8": "the name is not valid UTF-8; rename it",
    "not_a_file": "a FIFO, socket or device is never opened",
}


@dataclass
class Survey:
    """The files below `corpus.paths` or `corpus.sources`: those to read, and the others."""

    files: list[SourceFile] = field(default_factory=list)  # sorted by name; names are unique
    unread: dict[str, str] = field(default_factory=dict)  # name to reason, a key of UNREAD

    def take(self, key: str, path: FilePath, name: str) -> None:
        """Add a path with its name below the root to `files`, or to `unread` with the reason."""
        reason = _reason_not_to_read(key, path)
        if not is_text(name):  # it could be neither stored nor shown
            name, reason = name.encode(errors="backslashreplace").decode(), "name_not_utf8"
        if reason is None:
            file = SourceFile(path, name, state=FileState.of(path))
            if file.format != "wiki":
                self.files.append(file)
            elif markup := _sniff(file):
                self.files.append(replace(file, markup=markup))
            else:
                reason = "other_xml"
        if reason is not None:
            self.unread[name] = reason


def survey(paths: Any, sources: Mapping[str, Any] | None = None) -> Survey:
    """Find all files to read, and all files in the same folders and globs that are not read.

    paths, sources: `corpus.paths` and `corpus.sources`; sources, if given, take precedence.
    Raises UsageError if a path does not exist or has nothing to read, or a file has two sources.
    """
    if not sources:
        found = _find("corpus.paths", paths)
        return replace(found, files=sorted(found.files, key=lambda file: file.name))
    files: dict[str, SourceFile] = {}
    unread: dict[str, str] = {}
    for number, name in enumerate(sorted(sources)):
        key = f"corpus.sources.{name}"
        found = _find(key, sources[name])
        for file in sorted(found.files, key=lambda file: file.name):
            place = str(file.path.resolve())
            if place in files:
                raise UsageError(
                    f"{key}: {file.name} is also {files[place].name}; a file can have only one "
                    "source"
                )
            files[place] = file.renamed(name, number)
        unread |= {f"{name}/{other}": reason for other, reason in found.unread.items()}
    return Survey(list(files.values()), unread)


def discover(paths: Any, sources: Mapping[str, Any] | None = None) -> list[SourceFile]:
    """Return the files to read, sorted by name; names are unique. See `survey`."""
    return survey(paths, sources).files


def describe_unread(unread: Mapping[str, str], most: int = 5) -> list[str]:
    """Return one sentence per reason: the number of unread files, the first names, the reason."""
    lines = []
    for reason, why in UNREAD.items():
        names = sorted(name for name, found in unread.items() if found == reason)
        if names:
            more = f" and {len(names) - most:,} more" if len(names) > most else ""
            files = "1 file is" if len(names) == 1 else f"{len(names):,} files are"
            lines.append(f"{files} not read: {', '.join(names[:most])}{more} ({why})")
    if len(unread) > most:
        lines.append("all of them: sesame inspect unread, with the same overrides")
    return lines


def _reason_not_to_read(key: str, path: FilePath) -> str | None:
    if path.name.startswith("."):
        return "hidden"
    if not FORMAT.search(path.name):
        return "unknown_ending"
    if not isinstance(path, Path):
        return None
    return "not_a_file" if _is_special(path) else reason_to_skip(key, path)


def _sniff(file: SourceFile) -> str | None:
    """Return the kind of an XML file; an empty or damaged one is read, and counted there."""
    beginning = b""
    for block in read_blocks(file, Tally()):
        beginning += block
        if len(beginning) >= SNIFFED_BYTES:
            break
    return kind_of_xml(beginning) if beginning else file.markup


def _is_special(path: str | Path) -> bool:
    """Return True for a FIFO, socket or device: reading it might never end."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # a dangling link: opening it will fail with a message that names it
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _find(key: str, paths: Any) -> Survey:
    given = [paths] if isinstance(paths, str | Path) else list(paths or [])
    if not given:
        raise UsageError(f"{key} is empty: name the files or folders with your text")
    found: dict[str, tuple[int, SourceFile]] = {}
    unread: dict[str, str] = {}
    for number, item in enumerate(given):
        own = _survey_item(key, os.path.expanduser(str(item)))
        for file in own.files:
            found.setdefault(str(file.path.resolve()), (number, file))
        unread |= own.unread
    files = [file for _, file in found.values()]
    if len({file.name for file in files}) < len(files):  # two roots have files of the same name
        files = [replace(file, name=f"{number}/{file.name}") for number, file in found.values()]
    return _with_pages(Survey(files, unread))


def _survey_item(key: str, item: str) -> Survey:
    found = Survey()
    if is_remote(item):
        root, remote = find_remote(key, item)
        for file in remote:
            found.take(key, file, relative_name(file, root))
    elif os.path.isfile(item):
        if not FORMAT.search(item):
            raise UsageError(f"{key}={item}: the file ending is unknown; known: {ENDINGS}")
        found.take(key, Path(item), os.path.basename(item))
    elif _is_special(item):
        raise UsageError(f"{key}={item}: this is a FIFO, socket or device; give files or folders")
    elif os.path.isdir(item):
        _walk(key, item, Path(item), found)
    elif glob.has_magic(item):
        _match(key, item, found)
    else:
        raise UsageError(f"{key}={item}: there is no such file or folder")
    if not found.files:
        others = "; ".join(describe_unread(found.unread))
        raise UsageError(
            f"{key}={item}: there is nothing to read; {others or f'known endings: {ENDINGS}'}"
        )
    return found


def _match(key: str, pattern: str, found: Survey) -> None:
    parts = Path(pattern).parts
    fixed = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    root = Path(*parts[:fixed])
    for match in sorted(glob.glob(pattern, recursive=True)):
        if os.path.isdir(match):
            _walk(key, match, root, found)
        else:
            found.take(key, Path(match), Path(match).relative_to(root).as_posix())


def _walk(key: str, folder: str, root: Path, found: Survey) -> None:
    def refuse(error: OSError) -> None:
        raise UsageError(f"{key}: the folder {error.filename} cannot be read ({error.strerror})")

    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True, onerror=refuse):
        if os.path.realpath(place) in seen:  # a link to a folder that was visited before
            folders.clear()
            continue
        seen.add(os.path.realpath(place))
        hidden = [name for name in folders if name.startswith(".")]
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in [*hidden, *names]:
            path = Path(place, name)
            found.take(key, path, path.relative_to(root).as_posix())


def _with_pages(found: Survey) -> Survey:
    """Give every METS file the pages that it names; these are no longer files of their own."""
    if all(file.format != "mets" for file in found.files):
        return found
    places = {str(file.path.resolve()): file for file in found.files}
    works: list[SourceFile] = []
    owned: set[str] = set()
    unread = dict(found.unread)
    for file in found.files:
        if file.format != "mets":
            continue
        named = _linked_places(file)
        here = [place for place in named if place in places and place not in owned]
        owned.update(here)
        if here:
            pages = tuple(places[place] for place in here)
            works.append(replace(file, pages=pages, missing_pages=len(named) - len(here)))
        else:
            unread[file.name] = "no_pages"
    others = [
        file for place, file in places.items() if place not in owned and file.format != "mets"
    ]
    return Survey([*others, *works], unread)


def _linked_places(mets: SourceFile) -> list[str]:
    """Return the resolved places of the XML files that a METS file names; [] if it is damaged."""
    try:
        links = page_links(parse_xml(b"".join(read_blocks(mets, Tally()))))
    except ValueError:
        return []
    folder = str(mets.path).rpartition("/")[0]
    if isinstance(mets.path, Path):
        return [os.path.realpath(os.path.join(folder, link)) for link in links]
    return [f"{folder}/{link}" for link in links]


def plan_pieces(
    files: Sequence[SourceFile], whole: Callable[[SourceFile], bool], piece_bytes: int
) -> list[list[Part]]:
    """Divide files into work units: lists of parts with about `piece_bytes` bytes, in order.

    Large files are split, unless `whole(file)` is True; small files are grouped. The result depends
    on names and sizes only, not on the number of workers. A new file changes only the units next to
    it, so that the others stay in the cache: a file of at least a quarter unit shares its unit with
    no other file, and a unit of small files also ends after a file whose name's hash says so.
    """
    pieces: list[list[Part]] = []
    filled = piece_bytes
    for file in files:
        size = file.size
        step = max(size, 1) if size <= piece_bytes or whole(file) else piece_bytes
        if 4 * size >= piece_bytes:
            filled = piece_bytes
        for start in range(0, size, step):
            part = Part(file, start, min(start + step, size))
            if filled + (part.end - part.start) > piece_bytes:
                pieces.append([])
                filled = 0
            pieces[-1].append(part)
            filled += part.end - part.start
        ends = 2 * filled >= piece_bytes and blake2b(file.name.encode()).digest()[0] < 256 // 8
        if ends or 4 * size >= piece_bytes:
            filled = piece_bytes
    return pieces
