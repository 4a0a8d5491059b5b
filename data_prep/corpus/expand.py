"""The expand pass of the `shard` stage: makes large files divisible that are one stream, or CSV.

One work unit per such file; see data_prep.reading.plain_text. The clean pass then divides the file
as any other. The documents and their ids are those of the undivided file.
"""

from collections.abc import Sequence
from dataclasses import replace

from data_prep.config import CorpusConfig
from data_prep.passes import Passes
from data_prep.reading.documents import cut_whole, divides_when_plain, make_plain
from data_prep.reading.plain_text import PlainText
from data_prep.reading.source_files import SourceFile
from data_prep.work_units import WorkUnit

LARGE_UNITS = 4  # a file of fewer work units than this is read by one worker


def files_to_expand(
    files: Sequence[SourceFile], config: CorpusConfig, piece_bytes: int
) -> list[SourceFile]:
    """Return the files that the pass makes divisible."""
    whole = cut_whole(config)
    return [
        file
        for file in files
        if file.size > LARGE_UNITS * piece_bytes
        and whole(file)
        and divides_when_plain(file, config)
    ]


def expand_files(
    files: Sequence[SourceFile], config: CorpusConfig, piece_bytes: int, passes: Passes
) -> list[SourceFile]:
    """Return the files, the large ones with their plain text."""
    large = files_to_expand(files, config, piece_bytes)
    if not large:
        return list(files)
    units = [WorkUnit(f"expand-{number:05d}", file) for number, file in enumerate(large)]
    folders = passes.run("expand", units, make_plain)
    plain = dict(zip((file.name for file in large), map(PlainText.load, folders), strict=True))
    return [replace(file, plain=plain.get(file.name)) for file in files]
