"""`sesame bench corpus`: speed and memory of making shards and a vocabulary from text.

Repeats text of the configured corpus (by default the demo's) as JSONL and, if the corpus has a
dump, as MediaWiki XML. Every repeated paragraph is marked, so that none is a duplicate.
Try it: sesame bench corpus 'corpus.paths=[books.jsonl.zst]'
"""

import itertools
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from data_prep.config import CorpusConfig, TokenizerConfig
from data_prep.corpus.build import make_shards
from data_prep.errors import UsageError
from data_prep.reading.documents import cut_whole, read_documents
from data_prep.reading.lines import read_blocks
from data_prep.reading.sources import PIECE_BYTES, discover, plan_pieces
from data_prep.reading.tally import Tally
from data_prep.tokenizers.build import build_tokenizer
from pipeline.bench.figures import Figure
from pipeline.bench.usage import Usage, measure_usage
from pipeline.config.schema import Config

# Bytes of text: full work units for each of two workers, and a tenth of that.
LARGE = 32 * PIECE_BYTES
SMALL = LARGE // 10
READ_ONCE = 24_000_000  # bytes of the user's text to repeat
VOCABULARY = TokenizerConfig("unigram", 8000)


def measure(config: Config) -> list[Figure]:
    """Return all figures about corpora."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        small, large = scratch / "small.jsonl", scratch / "large.jsonl"
        texts = list(_texts(config.corpus))
        for path, size in ((small, SMALL), (large, LARGE)):
            _write_json_lines(path, texts, size)
        one = _shard(large, scratch / "one", workers=1)
        few = _shard(small, scratch / "few", workers=2)
        many = _shard(large, scratch / "many", workers=2)
        figures = [
            _speed("JSONL to shards", large, one),
            Figure("two workers against one", one.seconds / many.seconds, "times"),
            *_growth("shards", few, many),
        ]
        few, many = (_train(scratch / name, scratch / f"{name}-pieces") for name in ("few", "many"))
        figures += _growth("unigram vocabulary", few, many)
        dump = scratch / "dump.xml"
        if _write_dump(dump, config.corpus):
            figures.append(_speed("wiki XML to shards", dump, _shard(dump, scratch / "wiki", 1)))
        return figures


def _shard(text: Path, out: Path, workers: int) -> Usage:
    out.mkdir()
    config = CorpusConfig(paths=str(text), workers=workers)
    return measure_usage(partial(make_shards, config, out))


def _train(shards: Path, out: Path) -> Usage:
    out.mkdir()
    return measure_usage(partial(build_tokenizer, shards, out, replace(VOCABULARY, workers=2)))


def _speed(name: str, text: Path, usage: Usage) -> Figure:
    return Figure(name, text.stat().st_size / 1e6 / usage.core_seconds, "MB/s a core")


def _growth(name: str, few: Usage, many: Usage) -> list[Figure]:
    """Return the growth of memory and time with ten times the text, with two workers."""
    return [
        Figure(f"{name}: peak memory", few.megabytes, "MB"),
        Figure(f"{name}: peak memory, ten times the text", many.megabytes, "MB"),
        Figure(f"{name}: time, ten times the text", many.seconds / few.seconds, "times"),
    ]


def _texts(corpus: CorpusConfig) -> Iterator[str]:
    """Yield the corpus's documents, up to READ_ONCE bytes."""
    size = 0
    for part in itertools.chain.from_iterable(
        plan_pieces(discover(corpus.paths, corpus.sources), cut_whole(corpus), PIECE_BYTES)
    ):
        for document in read_documents(part, corpus, Tally()):
            yield document.text
            size += len(document.text)
            if size >= READ_ONCE:
                return


def _write_json_lines(path: Path, texts: list[str], size: int) -> None:
    """Write the texts repeatedly; the first word of a paragraph is the number of its round."""
    if not any(text.strip() for text in texts):
        raise UsageError("corpus.paths: no text there to measure with")
    with open(path, "w") as stream:
        for turn in itertools.count():
            for text in texts:
                marked = re.sub(r"\n\s*\n", f"\n\nRound{turn} ", text)
                stream.write(json.dumps({"text": f"Round{turn} {marked}"}, ensure_ascii=False))
                stream.write("\n")
                if stream.tell() >= size:
                    return


def _write_dump(path: Path, corpus: CorpusConfig) -> bool:
    """Write the pages of the corpus's first dump repeatedly, as one plain dump."""
    dumps = [file for file in discover(corpus.paths, corpus.sources) if file.format == "xml"]
    if not dumps:
        return False
    blocks = list(itertools.islice(read_blocks(dumps[0], Tally()), READ_ONCE >> 16))
    head, *pages = b"".join(blocks).split(b"<page>")
    pages = [page for page in pages if b"</page>" in page]
    with open(path, "wb") as stream:
        stream.write(head)
        for turn in itertools.count():
            for page in pages:
                marked = page.replace(b"\n\n", b"\n\nRound%d " % turn)
                stream.write(b"<page>" + marked.partition(b"</mediawiki>")[0])
                if stream.tell() >= SMALL:
                    stream.write(b"</mediawiki>\n")
                    return True
    return False
