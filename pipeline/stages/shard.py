"""Stage `shard`: converts raw text to document shards.

Reads the files that `corpus.paths` names. Writes train and held-out tars, see
data_prep.corpus.shard_format. Try it: sesame shard corpus.paths=notes.jsonl
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.config import CorpusConfig
from data_prep.reading.sources import Survey, survey
from pipeline.config.schema import Config
from pipeline.store.content import Checksums
from pipeline.store.outputs import CLEANED_TEXT
from pipeline.workflow.stage import Request, Stage, UserFiles, Work

ONE_GROUP = 256 << 20  # bytes of files, which may be compressed: their tables are one group


class Shard(Stage):
    """The stage that converts raw text to document shards."""

    name = "shard"
    format = 3
    format_before = 2
    sections = ("corpus",)

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return nothing: it is the first stage."""
        return {}

    def files(self, config: Config) -> UserFiles:
        """Return the corpus files, named relative to the user's path, and cleaning's lists."""
        found = survey(config.corpus.paths, config.corpus.sources)
        return UserFiles(_named_files(config.corpus, found), found)

    def divided_passes(self, config: Config, files: UserFiles) -> tuple[str, ...]:
        """Return all passes, or only those over text if the others would have one unit each."""
        from data_prep.corpus.build import shard_passes

        assert files.survey is not None, "see `files`"
        size = sum(file.path.stat().st_size for file in files.survey.files)
        return shard_passes(config.corpus) if size > ONE_GROUP else ("clean", "write")

    def run(self, work: Work) -> dict[str, Any]:
        """Make the shards. Cleaned text is cached in the store, for a corpus that grows.

        The survey is older than the checksums. A file that changes in between is noticed when its
        state is checked again, so no work unit is cached under a wrong checksum.
        """
        from data_prep.corpus.build import make_shards
        from data_prep.corpus.cache import PieceCache

        config = work.config
        store = Path(config.paths.store)
        named, found = work.files.named, work.files.survey
        assert found is not None, "see `files`"
        known = Checksums(store)
        if work.files_read:
            known.refuse_changes(named, work.files_read)
            kept = [file for file in found.files if file.name in work.files_read]
            found = replace(found, files=kept)  # ignore files that were added after planning
        cache = None
        if config.corpus.cache_size:
            described = known.describe(named)
            checksums = {name: str(values["checksum"]) for name, values in described.items()}
            cache = PieceCache(
                store / CLEANED_TEXT,
                checksums,
                version=self.format,
                most_bytes=config.corpus.cache_size,
            )
        divided = self.divided_passes(config, work.files)
        passes = work.passes(config.corpus.workers, divided)
        return make_shards(config.corpus, work.out, cache=cache, passes=passes, found=found)


def _named_files(corpus: CorpusConfig, found: Survey) -> list[tuple[str, Path]]:
    lists = {
        "corpus.exclude_file": corpus.exclude_file,
        "corpus.abbreviations_file": corpus.abbreviations_file,
    }
    return [
        *((file.name, file.path) for file in found.files),
        *((key, Path(path).expanduser()) for key, path in lists.items() if path is not None),
    ]
