"""Stage `shard`: converts raw text to document shards.

Reads the files that `corpus.paths` names. Writes train and held-out tars, see
data_prep.corpus.shard_format. Try it: sesame shard corpus.paths=notes.jsonl
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.config import LIST_FILES, CorpusConfig
from data_prep.dotted import source_file
from data_prep.reading.source_files import FilePath
from data_prep.reading.sources import Survey, survey
from pipeline.config.schema import Config
from pipeline.stages.benchmarks import benchmark_files
from pipeline.store.content import Checksums
from pipeline.store.outputs import CLEANED_TEXT
from pipeline.workflow.stage import Request, Stage, UserFiles, Work

ONE_GROUP = 256 << 20  # bytes of files, which may be compressed: their tables are one group


class Shard(Stage):
    """The stage that converts raw text to document shards."""

    name = "shard"
    format = 4
    formats_before = (3, 2)
    sections = ("corpus",)

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return nothing: it is the first stage."""
        return {}

    def files(self, config: Config) -> UserFiles:
        """Return the corpus files, named relative to the user's path, and cleaning's lists."""
        found = survey(config.corpus.paths, config.corpus.sources)
        return UserFiles(_named_files(config.corpus, found), found)

    def divided_passes(self, config: Config, files: UserFiles) -> tuple[str, ...]:
        """Return the passes that arrays divide: those over text.

        Passes that find repeats are among them if they have more than one unit each.
        """
        from data_prep.corpus.build import shard_passes
        from data_prep.corpus.clean import unit_bytes
        from data_prep.corpus.expand import files_to_expand

        assert files.survey is not None, "see `files`"
        found = files.survey.files
        large = files_to_expand(found, config.corpus, unit_bytes(found))
        is_small = sum(file.size for file in found) <= ONE_GROUP
        passes = ("clean", "write") if is_small else shard_passes(config.corpus)
        return ("expand", *passes) if large else passes

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
        files = [str(file) for _, file in benchmark_files(config.corpus.decontaminate)]
        corpus = replace(config.corpus, decontaminate=files)
        passes = work.passes(corpus.workers, self.divided_passes(config, work.files))
        return make_shards(corpus, work.out, cache=cache, passes=passes, found=found)


def _named_files(corpus: CorpusConfig, found: Survey) -> list[tuple[str, FilePath]]:
    """Return all files that cleaning reads; names of lists begin with their key (`cache.LISTS`)."""
    lists = {f"corpus.{key}": getattr(corpus, key) for key in LIST_FILES}
    named = [(own.name, own.path) for file in found.files for own in file.with_pages()]
    named += [(key, Path(path).expanduser()) for key, path in lists.items() if path is not None]
    named += [(name, file.path) for name, file in benchmark_files(corpus.decontaminate)]
    if corpus.hook is not None:
        named.append(("corpus.hook", source_file("corpus.hook", corpus.hook)))
    return named
