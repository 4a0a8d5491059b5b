"""First pass over the shards: tokenize each part and write the tokens to disk.

The tokens are stored because later passes read them several times: the pool, and every duplicate.
A text folder holds ids.npy (tokens of all sentences), sentences.npy (offsets into ids),
sections.npy (document, section number, first sentence, group; a last row closes the offsets),
weights.npy (one per section) and counts.json. Sentences without tokens are left out.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from data_prep.arrays import save_array
from data_prep.corpus.shard_format import Section, ShardPart, read_sections
from data_prep.examples.chunks import token_dtype
from data_prep.examples.pairs import Ints, Text
from data_prep.random import key, keys
from data_prep.tokenizers import Tokenizer


def write_text(part: ShardPart, tokenizer: Tokenizer, folder: Path) -> None:
    """Tokenize a part of a shard and write its text folder."""
    sentences: list[str] = []
    sections: list[tuple[int, int, int, int]] = []
    weights: list[float] = []
    for section in read_sections(part.path, part.start, part.end):
        group = group_number(section)
        sections.append((section.document, section.section, len(sentences), group))
        weights.append(section.weight)
        sentences.extend(section.sentences)
    sections.append((-1, -1, len(sentences), -1))
    encoded = tokenizer.encode(sentences)
    is_empty = np.diff(encoded.offsets) == 0
    table = np.array(sections, np.int64)
    table[:, 2] -= np.concatenate([[0], np.cumsum(is_empty)])[table[:, 2]]
    kept = np.concatenate([[True], ~is_empty])
    save_array(folder / "ids.npy", encoded.ids.astype(token_dtype(tokenizer.size)))
    save_array(folder / "sentences.npy", encoded.offsets[kept])
    save_array(folder / "sections.npy", table)
    save_array(folder / "weights.npy", np.array(weights, np.float64))
    counts = {
        "sections": len(table) - 1,
        "empty_sections": int((np.diff(table[:, 2]) == 0).sum()),
        "sentences": len(sentences),
        "empty_sentences": int(is_empty.sum()),
        "pieces": len(encoded.ids),
    }
    (folder / "counts.json").write_text(json.dumps(counts))


def group_number(section: Section) -> int:
    """Return the group's number (a hash), or the document number if it has no group."""
    if section.group is None:
        return section.document
    digest = hashlib.blake2b(section.group.encode(), digest_size=8).digest()
    return (1 << 62) | (int.from_bytes(digest, "little") >> 2)


def copies(folder: Path, seed: int, duplicates: int) -> Ints:
    """Return how often each section of a text is used [N]: `duplicates` × weight on average.

    The fractional part is rounded up for that share of the documents, chosen by hash.
    """
    weights = np.load(folder / "weights.npy")
    documents = np.load(folder / "sections.npy")[:-1, 0]
    chance = (keys(key(seed, "copies"), documents) >> np.uint64(32)) * 2.0**-32
    whole: Ints = np.floor(weights * duplicates + chance).astype(np.int64)
    return whole


def read_text(folder: Path) -> Text:
    """Read the text folder that `write_text` wrote."""
    table = np.load(folder / "sections.npy")
    return Text(
        ids=np.load(folder / "ids.npy"),
        sentences=np.load(folder / "sentences.npy"),
        sections=table[:, 2].copy(),
        documents=table[:-1, 0].copy(),
        numbers=table[:-1, 1].copy(),
        groups=table[:-1, 3].copy(),
        weights=np.load(folder / "weights.npy"),
    )
