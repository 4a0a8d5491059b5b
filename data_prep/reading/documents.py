"""Read the records of source files as raw documents: text, JSON lines, tables, Parquet, wiki pages.

A record that cannot be read is counted in the tally, with its reason, file and byte or row.
"""

import csv
import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from data_prep.conditions import Condition, condition_of
from data_prep.config import CorpusConfig
from data_prep.errors import UsageError
from data_prep.reading.bzip2 import has_streams
from data_prep.reading.json_values import is_lines, split_objects
from data_prep.reading.lines import LONGEST_BYTES, read_blocks, read_part, split_lines
from data_prep.reading.named_fields import list_names, wanted_fields
from data_prep.reading.plain_text import PlainWriter
from data_prep.reading.scans import SCANS, read_page, read_work
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.tally import Tally
from data_prep.reading.wiki import (
    Wiki,
    is_disambiguation,
    read_siteinfo,
    split_pages,
    starts_page,
    to_prose,
)
from data_prep.text.cleaning import LONE_SURROGATE


@dataclass(frozen=True)
class RawDocument:
    """A document as it is in its file, before cleaning."""

    id: str
    text: str
    group: str | None = None
    confidence: float | None = None  # mean of the words of a scan, if it is stated


def cut_whole(config: CorpusConfig) -> Callable[[SourceFile], bool]:
    """Return a predicate that is True for files that cannot be split.

    These are CSV tables, files of one document, JSON that is not in lines, remote Arrow files,
    whose batches cannot be skipped, and files that are one compressed stream.
    """

    @cache
    def whole(file: SourceFile) -> bool:
        if file.plain is not None:
            return False
        if file.format in ("csv", *SCANS):
            return True
        if file.format == "txt" and config.documents == "file":
            return True
        if file.format == "json" and not _is_json_lines(file):
            return True
        if file.format == "arrow":
            return not isinstance(file.path, Path)
        if file.compression == ".bz2":
            return not has_streams(file.path)
        return bool(file.compression)

    return whole


def divides_when_plain(file: SourceFile, config: CorpusConfig) -> bool:
    """Return True if a file that cannot be divided can be when its plain text is at hand."""
    if file.format == "txt":
        return config.documents != "file"
    if file.format == "json":
        return _is_json_lines(file)
    return file.format in ("jsonl", "csv", "tsv", "wiki")


def make_plain(file: SourceFile, folder: Path) -> None:
    """Fill `folder` with what a `PlainText` needs, for a file that cannot be divided as it is."""
    tally = Tally()
    writer = PlainWriter(folder, has_copy=bool(file.compression))
    blocks = writer.write(read_blocks(file, tally))
    if file.format == "csv":
        csv.field_size_limit(LONGEST_BYTES)
        writer.note_rows(split_lines(blocks))
    for _ in blocks:  # the rows were noted before, if there are any
        pass
    writer.close(is_damaged=tally.broken_files > 0)


def read_documents(part: Part, config: CorpusConfig, tally: Tally) -> Iterator[RawDocument]:
    """Yield the documents of a part in order; count every record in `tally`, in place."""
    read = {
        "txt": _read_text,
        "json": _read_json,
        "jsonl": _read_json_lines,
        "csv": _read_table,
        "tsv": _read_table,
        "wiki": _read_wiki,
        "alto": _read_scan,
        "page": _read_scan,
        "mets": _read_scan,
        "parquet": _read_columns,
        "arrow": _read_columns,
    }[part.file.format]
    excluded = excluded_ids(tuple(config.exclude), config.exclude_file)
    for document in read(part, config, tally):
        if document.id in excluded:
            tally.dropped["exclude"] += 1
        elif is_unsure(document, config.min_confidence):
            tally.dropped["min_confidence"] += 1
        else:
            yield document


def is_unsure(document: RawDocument, least: float | None) -> bool:
    """Return True if a scanned text was recognised with less confidence than `least`."""
    return least is not None and document.confidence is not None and document.confidence < least


@cache
def excluded_ids(named: tuple[str, ...], file: str | None) -> frozenset[str]:
    """Return the ids in `corpus.exclude` and `corpus.exclude_file`."""
    if file is None:
        return frozenset(named)
    try:
        lines = Path(file).expanduser().read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"corpus.exclude_file={file}: cannot be read ({type(error).__name__}); "
            "give a UTF-8 file with one id per line"
        ) from error
    return frozenset(named) | {line.strip() for line in lines if line.strip()}


def _decode(data: bytes, file: SourceFile, offset: int, tally: Tally, unit: str = "byte") -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        place = offset + error.start if unit == "byte" else offset
        tally.repair_damaged("invalid_utf8", file.name, place, unit)
        return data.decode(errors="replace")


def _any_line(before: bytes, line: bytes) -> bool:
    return True


def _after_blank(before: bytes, line: bytes) -> bool:
    return before != b"" and not before.strip()


def _read_text(part: Part, config: CorpusConfig, tally: Tally) -> Iterator[RawDocument]:
    starts_record = _after_blank if config.documents == "blank_line" else _any_line
    for offset, data in _text_records(read_part(part, starts_record, tally), config.documents):
        tally.read += 1
        text = _decode(data, part.file, offset, tally)
        name = part.file.name
        yield RawDocument(name if config.documents == "file" else f"{name}:{offset}", text)


def _text_records(
    lines: Iterator[tuple[int, bytes]], documents: str
) -> Iterator[tuple[int, bytes]]:
    held: list[bytes] = []
    start, size = 0, 0
    for offset, line in lines:
        blank = not line.strip()
        ends = documents == "line" or (documents == "blank_line" and blank)
        if not held and blank:
            continue
        if not held:
            start = offset
        held.append(line)
        size += len(line)
        if ends or size >= LONGEST_BYTES:
            yield start, b"".join(held)
            held, size = [], 0
    if held:
        yield start, b"".join(held)


def _read_json_lines(part: Part, config: CorpusConfig, tally: Tally) -> Iterator[RawDocument]:
    for offset, line in read_part(part, _any_line, tally):
        if not line.strip():
            continue
        tally.read += 1
        try:
            record = _load_json(_decode(line, part.file, offset, tally), tally)
        except (ValueError, RecursionError):
            tally.drop_damaged("malformed_json", part.file.name, offset)
            continue
        if isinstance(record, dict):
            yield from _document_of(record, part.file, offset, config, tally)
        else:
            tally.drop_damaged("malformed_json", part.file.name, offset)


def _read_json(part: Part, config: CorpusConfig, tally: Tally) -> Iterator[RawDocument]:
    """Read objects that are in lines, in an array, or one after another."""
    if _is_json_lines(part.file):
        yield from _read_json_lines(part, config, tally)
        return
    for offset, data in split_objects(read_blocks(part.file, tally)):
        tally.read += 1
        try:
            record = json.loads(_decode(data or b"", part.file, offset, tally))
        except (ValueError, RecursionError):
            tally.drop_damaged("malformed_json", part.file.name, offset)
            continue
        yield from _document_of(record, part.file, offset, config, tally)


@cache
def _is_json_lines(file: SourceFile) -> bool:
    lines = split_lines(read_blocks(file, Tally()))
    return is_lines(next((line for _, line in lines if line.strip()), b""))


def _load_json(text: str, tally: Tally) -> Any:
    record = json.loads(text)
    if isinstance(record, str):  # an object that was serialised twice
        record = json.loads(record)
        tally.repaired["double_escaped_json"] += 1
    return record


def _document_of(
    record: dict[str, Any],
    file: SourceFile,
    offset: int,
    config: CorpusConfig,
    tally: Tally,
    unit: str = "byte",
) -> Iterator[RawDocument]:
    tally.fields.see(record, wanted_fields(config))
    if not all(holds(_as_text(record.get(key))) for key, holds in _conditions(config)):
        tally.dropped["where"] += 1
        return
    text = record.get(config.text_field)
    if not isinstance(text, str):
        tally.drop_damaged("missing_text", file.name, offset, unit)
        return
    identity = record.get(config.id_field)
    name = f"{file.name}:{offset}" if identity is None else _as_text(identity)
    group = _group_of(record, config)
    if LONE_SURROGATE.search(name) or (group and LONE_SURROGATE.search(group)):
        tally.repaired["lone_surrogates"] += 1
        name = LONE_SURROGATE.sub("\ufffd", name)
        group = group and LONE_SURROGATE.sub("\ufffd", group)
    yield RawDocument(name, text, group)


def _conditions(config: CorpusConfig) -> list[tuple[str, Condition]]:
    return _parsed_conditions(tuple(config.where.items())) if config.where else []


@cache
def _parsed_conditions(where: tuple[tuple[str, str], ...]) -> list[tuple[str, Condition]]:
    return [(name, condition_of(f"corpus.where.{name}", value)) for name, value in where]


def _group_of(record: Mapping[str, Any], config: CorpusConfig) -> str | None:
    if config.group_field is None or record.get(config.group_field) is None:
        return None
    return _as_text(record[config.group_field])


def _as_text(value: Any) -> str:
    """Return a value as text, for ids, groups and `corpus.where`: 7, true, 2020-01-31, a string."""
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date too
        return value.isoformat()
    if isinstance(value, Decimal | datetime.timedelta):
        return str(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


class _Rows:
    """The rows of a part of a table; `place` is the offset of the line that was read last."""

    def __init__(self, part: Part, tally: Tally):
        self._part = part
        self._tally = tally
        self.place = part.start
        csv.field_size_limit(LONGEST_BYTES)
        if part.file.format == "csv":
            self._rows = csv.reader(self._lines())
        else:  # as in GLUE's files, a quotation mark is an ordinary character
            self._rows = csv.reader(self._lines(), delimiter="\t", quoting=csv.QUOTE_NONE)

    def __iter__(self) -> "_Rows":
        return self

    def __next__(self) -> list[str]:
        return next(self._rows)

    def _lines(self) -> Iterator[str]:
        for offset, line in read_part(self._part, _any_line, self._tally):
            self.place = offset
            yield _decode(line, self._part.file, offset, self._tally)


def _read_table(part: Part, config: CorpusConfig, tally: Tally) -> Iterator[RawDocument]:
    rows = _Rows(part, tally)
    beginning = rows if part.start == 0 else _Rows(Part(part.file, 0, 1), Tally())
    try:
        header = next(beginning, [])
    except csv.Error as error:
        raise UsageError(
            f"{part.file.name}: its first line is not a row of column names; correct the file, or "
            "leave it out of corpus.paths"
        ) from error
    if header and config.text_field not in header:
        raise UsageError(
            f"corpus.text_field={config.text_field}: {part.file.name} has no such column in its "
            f"first line; found: {list_names(header)}; set corpus.text_field"
        )
    while True:
        try:
            row = next(rows, None)
        except csv.Error:
            tally.read += 1
            tally.drop_damaged("malformed_row", part.file.name, rows.place)
            continue
        if row is None:
            return
        if row:
            tally.read += 1
            record = dict(zip(header, row, strict=False))
            yield from _document_of(record, part.file, rows.place, config, tally)


def _read_columns(part: Part, config: CorpusConfig, tally: Tally) -> Iterator[RawDocument]:
    # Here, because pyarrow takes a third of a second to import.
    from data_prep.reading import arrow, parquet

    reader = arrow if part.file.format == "arrow" else parquet
    others = [config.id_field, *config.where, *filter(None, [config.group_field])]
    for number, row in reader.read_rows(part, config.text_field, others, tally):
        tally.read += 1
        record = {
            name: _decode(value, part.file, number, tally, "row")
            if isinstance(value, bytes)
            else value
            for name, value in row.items()
        }
        yield from _document_of(record, part.file, number, config, tally, "row")


def _read_scan(part: Part, config: CorpusConfig, tally: Tally) -> Iterator[RawDocument]:
    tally.read += 1
    file = part.file
    scan = read_work(file, tally) if file.format == "mets" else read_page(file, tally)
    if scan is not None:
        yield RawDocument(file.name, scan.text, confidence=scan.confidence)


def _read_wiki(part: Part, config: CorpusConfig, tally: Tally) -> Iterator[RawDocument]:
    wiki: Wiki = read_siteinfo(part.file)
    lines = read_part(part, starts_page, tally)
    for page in split_pages(lines, part.file.name, tally):
        if page.namespace != 0:
            tally.dropped["not_article"] += 1
        elif page.redirect:
            tally.dropped["redirect"] += 1
        elif is_disambiguation(page):
            tally.dropped["disambiguation"] += 1
        else:
            yield RawDocument(str(page.id), to_prose(page.text, wiki))
