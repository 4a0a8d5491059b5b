"""First pass over the shards: each part's sentences as pieces, on disk, in three arrays.

Pieces are kept because everything after needs them more than once: the pool, every duplicate.
A text folder holds ids.npy (pieces of all sentences), sentences.npy (offsets into ids),
sections.npy (document, section number, first sentence; a last row closes the offsets) and
counts.json. Sentences without any piece are left out.
"""

import json
from pathlib import Path

import numpy as np

from data_prep.chunks import token_dtype
from data_prep.examples.pairs import Text
from data_prep.shards import ShardPart, read_sections
from data_prep.tokenizers import Tokenizer


def write_text(part: ShardPart, tokenizer: Tokenizer, folder: Path) -> None:
    """Tokenize a part of a shard into `folder`."""
    sentences: list[str] = []
    sections: list[tuple[int, int, int]] = []
    for section in read_sections(part.path, part.start, part.end):
        sections.append((section.document, section.section, len(sentences)))
        sentences.extend(section.sentences)
    sections.append((-1, -1, len(sentences)))
    encoded = tokenizer.encode(sentences)
    is_empty = np.diff(encoded.offsets) == 0
    table = np.array(sections, np.int64)
    table[:, 2] -= np.concatenate([[0], np.cumsum(is_empty)])[table[:, 2]]
    kept = np.concatenate([[True], ~is_empty])
    np.save(folder / "ids.npy", encoded.ids.astype(token_dtype(tokenizer.size)))
    np.save(folder / "sentences.npy", encoded.offsets[kept])
    np.save(folder / "sections.npy", table)
    counts = {
        "sections": len(table) - 1,
        "empty_sections": int((np.diff(table[:, 2]) == 0).sum()),
        "sentences": len(sentences),
        "empty_sentences": int(is_empty.sum()),
        "pieces": len(encoded.ids),
    }
    (folder / "counts.json").write_text(json.dumps(counts))


def read_text(folder: Path) -> Text:
    """The pieces of a part that `write_text` kept."""
    table = np.load(folder / "sections.npy")
    return Text(
        ids=np.load(folder / "ids.npy"),
        sentences=np.load(folder / "sentences.npy"),
        sections=table[:, 2].copy(),
        documents=table[:-1, 0].copy(),
        numbers=table[:-1, 1].copy(),
    )
