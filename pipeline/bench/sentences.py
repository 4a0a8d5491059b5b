"""`sesame bench sentences`: sentence ends against treebanks of Universal Dependencies, and speed.

Reads the CoNLL-U files of `corpus.paths`. The sentences (`# text`) of a paragraph are joined by one
space (none in scripts without spaces) and split again. The F1 is that of the ends by character
offset; the end of a paragraph is given, so it is not counted. A paragraph starts at `# newpar` and
`# newdoc`; in a file with neither, ten sentences are one.
Try it: sesame bench sentences 'corpus.paths=[en_ewt-ud-dev.conllu]'
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path

from data_prep.corpus.clean import Splitters
from data_prep.errors import UsageError
from data_prep.reading.untrusted import read_text
from data_prep.text.languages import identify
from data_prep.text.sentences import Splitter, join_lines
from pipeline.bench.figures import Figure
from pipeline.bench.turns import spent
from pipeline.config.schema import Config

UNDIVIDED = 10  # sentences per paragraph of a treebank that names no paragraphs
MOST_BYTES = 1 << 30
LEAST_CHARACTERS = 2_000_000  # split for the speed, in as many rounds as needed


@dataclass(frozen=True)
class Paragraph:
    """The sentences of a paragraph and its language, identified over its document."""

    sentences: list[str]
    language: str


def measure(config: Config) -> list[Figure]:
    """Return F1 and speed for every treebank."""
    return [figure for path in _files(config) for figure in measure_treebank(path, config)]


def _files(config: Config) -> list[Path]:
    given = config.corpus.paths
    paths = [Path(path) for path in ([given] if isinstance(given, str) else given or [])]
    files = [
        file
        for path in paths
        for file in (sorted(path.glob("*.conllu")) if path.is_dir() else [path])
    ]
    if not files or not all(file.suffix == ".conllu" for file in files):
        raise UsageError(
            "bench sentences: corpus.paths must name CoNLL-U files, or folders that hold them"
        )
    return files


def measure_treebank(path: Path, config: Config) -> list[Figure]:
    """Return the figures of one treebank: with the identified language's list, and with all."""
    paragraphs = read_paragraphs(path)
    splitters = Splitters(config.corpus)
    own = [splitters.of(paragraph.language) for paragraph in paragraphs]
    merged = [splitters.of(None)] * len(paragraphs)
    texts = [join_lines(paragraph.sentences) for paragraph in paragraphs]
    rounds = 1 + LEAST_CHARACTERS // max(sum(map(len, texts)), 1)
    seconds = spent(partial(_split, texts * rounds, own * rounds)).core_seconds
    megabytes = rounds * sum(len(text.encode()) for text in texts) / 1e6
    return [
        Figure(f"{path.stem}: own abbreviations", f1(paragraphs, own), "F1"),
        Figure(f"{path.stem}: all abbreviations", f1(paragraphs, merged), "F1"),
        Figure(f"{path.stem}: speed", megabytes / seconds, "MB/s a core"),
    ]


def _split(texts: list[str], splitters: list[Splitter]) -> None:
    for text, splitter in zip(texts, splitters, strict=True):
        splitter.sentences(text)


def f1(paragraphs: list[Paragraph], splitters: list[Splitter]) -> float:
    """Return the F1 of the ends that the splitters find; 1 if there are none to find."""
    right = found = expected = 0
    for paragraph, splitter in zip(paragraphs, splitters, strict=True):
        text = join_lines(paragraph.sentences)
        ends = _ends(paragraph.sentences)
        guessed = _ends(splitter.sentences(text))
        right += len(ends & guessed)
        found += len(guessed)
        expected += len(ends)
    return 2 * right / (found + expected) if found + expected else 1.0


def _ends(sentences: list[str]) -> set[int]:
    """Return the inner ends, as numbers of characters that are no white space before them."""
    lengths = (len("".join(sentence.split())) for sentence in sentences)
    return set(list(accumulate(lengths))[:-1])


def read_paragraphs(path: Path) -> list[Paragraph]:
    """Read the paragraphs of a CoNLL-U file; raises UsageError if it has no `# text`."""
    documents = list(_documents(read_text(path, MOST_BYTES).splitlines()))
    if not documents:
        raise UsageError(f"{path}: has no line that starts with '# text ='; give a CoNLL-U file")
    found = []
    for document in documents:
        language = identify("\n".join(sentence for part in document for sentence in part))
        found += [Paragraph(sentences, language) for sentences in document]
    return found


def _documents(lines: list[str]) -> Iterator[list[list[str]]]:
    """Yield the documents, each as a list of paragraphs, each as a list of sentences."""
    is_divided = any(line.startswith(("# newdoc", "# newpar")) for line in lines)
    document: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("# newdoc") and document[0]:
            yield document
            document = [[]]
        elif line.startswith("# newpar") and document[-1]:
            document.append([])
        elif line.startswith("# text ="):
            if not is_divided and len(document[-1]) == UNDIVIDED:
                document.append([])
            document[-1].append(line.removeprefix("# text =").strip())
    if document[0]:
        yield document
