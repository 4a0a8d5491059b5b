"""First pass over the shards: tokenize each part and write the tokens to disk.

The tokens are stored because later passes read them several times: as the text of every duplicate,
and as the random segments of other parts. A text folder holds ids.npy (tokens of all sentences,
with the marks of `word_marks.compact`), sentences.npy (offsets into ids), sections.npy (document,
section number, first sentence, group, stratum; a last row closes the offsets), weights.npy (one per
section) and counts.json. Sentences without tokens are left out.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.arrays import save_array
from data_prep.corpus.mixture import count_copies
from data_prep.corpus.shard_format import Section, ShardPart, hash_name, read_sections
from data_prep.corpus.strata import Divided, strata_of
from data_prep.examples.segments import Ints, Text
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.word_marks import compact

STRATA = "strata.json"  # in a text folder
HELD_OUT_STRATA = "heldout-strata.json"  # in the output, if the corpus is divided
Strata = dict[str, dict[str, list[int]]]  # documents by by_source or by_language, then by name


@dataclass(frozen=True)
class Unit:
    """One part of a split, in one duplicate of the corpus; its folders are below `root`."""

    root: Path
    split: str
    part: int
    duplicate: int = 0

    @property
    def text(self) -> Path:
        """The folder of the tokenized text, which all duplicates share."""
        return self.root / f"tokens-{self.split}-{self.part:06d}"

    @property
    def openings(self) -> Path:
        """The folder of the places where random segments start."""
        return self.root / f"openings-{self.split}-{self.duplicate:03d}-{self.part:06d}"

    @property
    def table(self) -> Path:
        """The folder of the number of these places in all parts of this split and duplicate."""
        return self.root / f"table-{self.split}-{self.duplicate:03d}"

    @property
    def rows(self) -> Path:
        """The folder of the finished rows."""
        return self.root / f"examples-{self.split}-{self.duplicate:03d}-{self.part:06d}"


def write_text(
    part: ShardPart,
    tokenizer: Tokenizer,
    folder: Path,
    sources: Collection[str] = (),
    seed: int = 0,
    duplicates: int = 1,
    divided: Divided | None = None,
) -> None:
    """Tokenize a part of a shard and write its text folder.

    sources: the names of the corpus's sources, if it has any.
    seed, duplicates: of the examples; only the largest number of copies is counted here.
    divided: if given, the documents of each source and language are listed in strata.json.
    """
    strata: Strata = {by: {} for by in divided or ()}
    sentences: list[str] = []
    sections: list[tuple[int, int, int, int, int]] = []
    weights: list[float] = []
    for section in read_sections(part.path, part.start, part.end):
        numbers = section.group_number, stratum_number(section, sources)
        sections.append((section.document, section.section, len(sentences), *numbers))
        weights.append(section.weight)
        sentences.extend(section.sentences)
        for by, name in strata_of(section, divided or {}):
            strata[by].setdefault(name, []).append(section.document)
    sections.append((-1, -1, len(sentences), -1, -1))
    encoded = tokenizer.encode_marked(sentences)
    is_empty = np.diff(encoded.offsets) == 0
    table = np.array(sections, np.int64)
    table[:, 2] -= np.concatenate([[0], np.cumsum(is_empty)])[table[:, 2]]
    kept = np.concatenate([[True], ~is_empty])
    save_array(folder / "ids.npy", compact(encoded.ids, tokenizer.size))
    save_array(folder / "sentences.npy", encoded.offsets[kept])
    save_array(folder / "sections.npy", table)
    save_array(folder / "weights.npy", np.array(weights, np.float64))
    used = count_copies(np.array(weights, np.float64), table[:-1, 0], seed, duplicates)
    counts = {
        "most_copies": int(used.max(initial=0)),
        "documents": 1 + int(table[:-1, 0].max(initial=-1)),  # with those of the parts before
        "sections": len(table) - 1,
        "empty_sections": int((np.diff(table[:, 2]) == 0).sum()),
        "sentences": len(sentences),
        "empty_sentences": int(is_empty.sum()),
        "pieces": len(encoded.ids),
    }
    (folder / "counts.json").write_text(json.dumps(counts))
    if divided:
        (folder / STRATA).write_text(json.dumps(strata))


def join_strata(folders: Iterable[Path]) -> Strata:
    """Return the documents of each source and language over several text folders, in order."""
    joined: dict[str, dict[str, set[int]]] = {}
    for folder in folders:
        for by, names in json.loads((folder / STRATA).read_text()).items():
            for name, documents in names.items():
                joined.setdefault(by, {}).setdefault(name, set()).update(documents)
    return {
        by: {name: sorted(documents) for name, documents in sorted(names.items())}
        for by, names in joined.items()
    }


def stratum_number(section: Section, sources: Collection[str]) -> int:
    """Return a number (a hash) for the section's named source and its language; 0 without both.

    Random segments come from the same stratum: a segment of another source or language would be
    recognised without reading it.
    """
    source = section.source.split("/", 1)[0]
    name = source if source in sources else ""
    if section.language is not None:
        name += f" {section.language}"
    return hash_name(name) if name else 0


def copies(folder: Path, seed: int, duplicates: int) -> Ints:
    """Return how often each section of a text is used [N], see `count_copies`."""
    weights = np.load(folder / "weights.npy")
    documents = np.load(folder / "sections.npy")[:-1, 0]
    return count_copies(weights, documents, seed, duplicates)


def read_text(folder: Path) -> Text:
    """Read the text folder that `write_text` wrote."""
    table = np.load(folder / "sections.npy")
    return Text(
        ids=np.asarray(np.load(folder / "ids.npy", mmap_mode="r")),  # read only where it is used
        sentences=np.load(folder / "sentences.npy"),
        sections=table[:, 2].copy(),
        documents=table[:-1, 0].copy(),
        numbers=table[:-1, 1].copy(),
        groups=table[:-1, 3].copy(),
        strata=table[:-1, 4].copy(),
        is_used=np.ones(len(table) - 1, np.bool_),
    )
