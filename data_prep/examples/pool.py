"""The pool that random segments are drawn from: a seeded sample of runs of sentences.

A small corpus is in the pool as a whole. From a large one, about `POOL_PIECES` tokens are sampled,
so a worker's memory does not grow with the corpus and there is no random access to disk. The sample
depends on the runs' keys and weights only. A pool folder holds one .npy file per column of `Pool`;
workers memory-map them.
"""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from data_prep.arrays import save_array
from data_prep.examples.pairs import Pool, Text
from data_prep.examples.text import read_text
from data_prep.random import key, keys

POOL_PIECES = 1 << 26  # 128 MB of two-byte ids
RUN_SENTENCES = 128  # long enough that few random segments are cut at the end of a run


def write_pool(texts: Sequence[Path], seed: int, folder: Path, size: int = POOL_PIECES) -> None:
    """Sample a pool of about `size` tokens from text folders, in corpus order, into `folder`."""
    heaviest = max(float(np.load(text / "weights.npy").max(initial=0.0)) for text in texts) or 1.0
    total = sum(_weighted_pieces(read_text(text)) for text in texts) / heaviest
    share = min(1.0, size / max(total, 1)) / heaviest
    # The first and the last run of the corpus are always sampled, so that a corpus of two
    # documents has both in its pool.
    parts = [
        _sample(read_text(text), seed, share, text == texts[0], text == texts[-1]) for text in texts
    ]
    pool = _by_group(_join(parts))
    for item in fields(Pool):
        save_array(folder / f"{item.name}.npy", getattr(pool, item.name))


def read_pool(folder: Path) -> Pool:
    """Open a pool; its columns are memory-mapped."""
    columns = {
        item.name: np.asarray(np.load(folder / f"{item.name}.npy", mmap_mode="r"))
        for item in fields(Pool)
    }
    return Pool(**columns)


def group_count(folder: Path) -> int:
    """Count the groups in a pool; a document without a group counts as one."""
    return len(np.unique(np.load(folder / "groups.npy")))


def _weighted_pieces(text: Text) -> float:
    return float(np.diff(text.sentences[text.sections]) @ text.weights)


def _sample(text: Text, seed: int, share: float, is_first: bool, is_last: bool) -> Pool:
    """Sample runs with probability `share` × weight; always the first or last one if asked for."""
    section = np.repeat(np.arange(len(text.documents)), np.diff(text.sections))
    run = (np.arange(len(section)) - text.sections[section]) // RUN_SENTENCES
    run_keys = keys(key(seed, "pool"), (text.names[section] << 8) + run)
    is_kept = run_keys.astype(np.float64) * 2.0**-64 <= share * text.weights[section]
    for wanted, end in ((is_first, 0), (is_last, -1)):
        if wanted and len(section):
            is_kept |= (section == section[end]) & (run == run[end])
    lengths = np.diff(text.sentences)
    chosen = np.flatnonzero(is_kept)
    is_break = np.diff(chosen, prepend=-2) != 1
    is_break |= np.diff(section[chosen], prepend=-1) != 0
    ends = np.append(np.flatnonzero(is_break)[1:], len(chosen))
    return Pool(
        ids=text.ids[np.repeat(is_kept, lengths)],
        sentences=np.concatenate([[0], np.cumsum(lengths[chosen])]),
        ends=ends[np.cumsum(is_break) - 1],
        documents=text.documents[section[chosen]],
        groups=text.groups[section[chosen]],
    )


def _join(parts: Sequence[Pool]) -> Pool:
    sentences = np.cumsum([0] + [len(part.ends) for part in parts])
    pieces = np.cumsum([0] + [len(part.ids) for part in parts])
    return Pool(
        ids=np.concatenate([part.ids for part in parts]),
        sentences=np.concatenate(
            [part.sentences[:-1] + base for part, base in zip(parts, pieces, strict=False)]
            + [pieces[-1:]]
        ),
        ends=np.concatenate(
            [part.ends + base for part, base in zip(parts, sentences, strict=False)]
        ),
        documents=np.concatenate([part.documents for part in parts]),
        groups=np.concatenate([part.groups for part in parts]),
    )


def _by_group(pool: Pool) -> Pool:
    """Return the same runs, stably sorted by group."""
    if (np.diff(pool.groups) >= 0).all():
        return pool
    starts = np.flatnonzero(np.diff(pool.ends, prepend=-1))
    starts = starts[np.argsort(pool.groups[starts], kind="stable")]
    runs = [slice(start, pool.ends[start]) for start in starts.tolist()]
    lengths = np.diff(pool.sentences)
    sizes = np.array([run.stop - run.start for run in runs])
    ends = np.cumsum(sizes)
    return Pool(
        ids=np.concatenate(
            [pool.ids[pool.sentences[run.start] : pool.sentences[run.stop]] for run in runs]
        ),
        sentences=np.cumsum(np.concatenate([[0], *(lengths[run] for run in runs)])),
        ends=np.repeat(ends, sizes),
        documents=np.concatenate([pool.documents[run] for run in runs]),
        groups=np.concatenate([pool.groups[run] for run in runs]),
    )
