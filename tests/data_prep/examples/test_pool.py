"""The pool: a bounded sample of runs that depends on keys alone and knows whose text it holds."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from data_prep.examples.pool import RUN_SENTENCES, group_count, read_pool, write_pool

Sections = list[tuple[int, int, list[int]]]  # document, section, lengths of sentences


def make_corpus(documents: int, sentences: int) -> Sections:
    rng = np.random.default_rng(3)
    return [
        (document * 2, section, rng.integers(1, 9, sentences).tolist())
        for document in range(documents)
        for section in range(2)
    ]


def write_texts(
    parts: Sequence[Sections],
    root: Path,
    group_of: Callable[[int], int] = lambda document: document,
    weight_of: Callable[[int], float] = lambda document: 1.0,
) -> list[Path]:
    """Text folders whose ids count on through all parts."""
    folders = []
    first_id = 0
    for number, part in enumerate(parts):
        folder = root / str(number)
        folder.mkdir(parents=True)
        lengths = [length for _, _, section in part for length in section]
        firsts = np.cumsum([0] + [len(section) for _, _, section in part])
        table = [
            (document, section, first, group_of(document))
            for (document, section, _), first in zip(part, firsts, strict=False)
        ]
        np.save(folder / "ids.npy", np.arange(first_id, first_id + sum(lengths), dtype=np.uint32))
        np.save(folder / "sentences.npy", np.cumsum([0, *lengths]))
        np.save(folder / "sections.npy", np.array([*table, (-1, -1, firsts[-1], -1)], np.int64))
        weights = [weight_of(document) for document, _, _ in part]
        np.save(folder / "weights.npy", np.array(weights, np.float64))
        (folder / "counts.json").write_text(json.dumps({}))
        first_id += sum(lengths)
        folders.append(folder)
    return folders


def pool_of(texts: list[Path], folder: Path, size: int, seed: int = 1) -> dict[str, np.ndarray]:
    folder.mkdir()
    write_pool(texts, seed, folder, size)
    return {name: np.array(array) for name, array in vars(read_pool(folder)).items()}


def test_a_small_corpus_is_in_whole(tmp_path: Path) -> None:
    corpus = make_corpus(documents=4, sentences=300)
    pool = pool_of(write_texts([corpus], tmp_path / "texts"), tmp_path / "pool", 1 << 20)
    lengths = [length for _, _, section in corpus for length in section]
    assert pool["ids"].tolist() == list(range(sum(lengths)))
    assert np.diff(pool["sentences"]).tolist() == lengths
    assert pool["ends"].tolist() == [300 * (1 + n // 300) for n in range(len(lengths))]
    assert pool["documents"].tolist() == [2 * (n // 600) for n in range(len(lengths))]


def test_a_large_corpus_gives_a_bounded_sample_of_whole_runs(tmp_path: Path) -> None:
    corpus = make_corpus(documents=200, sentences=3 * RUN_SENTENCES)
    texts = write_texts([corpus[:99], corpus[99:]], tmp_path / "texts")
    size = 50_000
    pool = pool_of(texts, tmp_path / "pool", size)
    assert 0.7 * size < len(pool["ids"]) < 1.3 * size
    # Runs are kept or left as a whole, so each stretch of the pool is some runs long.
    stretches = np.unique(pool["ends"], return_counts=True)[1]
    assert (stretches % RUN_SENTENCES == 0).all()
    # Ids count through the corpus: inside a stretch they must go on by one.
    starts = np.concatenate([[0], np.unique(pool["ends"])[:-1]])
    jumps = np.flatnonzero(np.diff(pool["ids"].astype(np.int64)) != 1) + 1
    assert set(jumps.tolist()) <= set(pool["sentences"][starts].tolist())
    # Documents are those that the ids lie in.
    pieces = np.array([sum(section) for _, _, section in corpus])
    owner = np.searchsorted(np.cumsum(pieces), pool["ids"][pool["sentences"][:-1]], "right")
    assert pool["documents"].tolist() == [corpus[index][0] for index in owner]


def test_the_sample_does_not_depend_on_how_the_corpus_is_cut(tmp_path: Path) -> None:
    corpus = make_corpus(documents=50, sentences=400)
    pools = [
        pool_of(write_texts(parts, tmp_path / f"texts{n}"), tmp_path / f"pool{n}", 20_000)
        for n, parts in enumerate(
            ([corpus], [corpus[:31], corpus[31:]], [[section] for section in corpus])
        )
    ]
    for name, array in pools[0].items():
        assert all(array.tolist() == other[name].tolist() for other in pools[1:])
    other_seed = pool_of([*tmp_path.glob("texts0/*")], tmp_path / "other", 20_000, seed=2)
    assert other_seed["ids"].tolist() != pools[0]["ids"].tolist()


def test_a_pool_of_two_documents_has_both_however_small(tmp_path: Path) -> None:
    corpus: Sections = [(0, n, [5] * 2000) for n in range(20)]
    corpus.append((1, 0, [5]))
    texts = write_texts([corpus[:10], corpus[10:]], tmp_path / "texts")
    folder = tmp_path / "pool"
    pool_of(texts, folder, 700)
    assert group_count(folder) == 2


def test_groups_stand_together_and_keep_their_runs(tmp_path: Path) -> None:
    corpus = make_corpus(documents=9, sentences=50)
    texts = write_texts([corpus[:7], corpus[7:]], tmp_path / "texts", lambda d: 100 - d % 3)
    pool = pool_of(texts, tmp_path / "pool", 1 << 20)
    assert (np.diff(pool["groups"]) >= 0).all()
    assert (pool["groups"] == 100 - pool["documents"] % 3).all()
    assert group_count(tmp_path / "pool") == 3
    plain = pool_of(write_texts([corpus], tmp_path / "plain"), tmp_path / "other", 1 << 20)

    def runs(pool: dict[str, np.ndarray]) -> list[tuple[int, list[int]]]:
        edges = [0, *np.unique(pool["ends"]).tolist()]
        return sorted(
            (
                int(pool["documents"][a]),
                pool["ids"][pool["sentences"][a] : pool["sentences"][b]].tolist(),
            )
            for a, b in pairwise(edges)
        )

    assert runs(pool) == runs(plain)


def test_a_pool_follows_the_weights(tmp_path: Path) -> None:
    corpus = make_corpus(documents=400, sentences=RUN_SENTENCES)
    texts = write_texts([corpus], tmp_path / "texts", weight_of=lambda d: 3.0 if d < 400 else 1.0)
    for size in (60_000, 1 << 30):
        pool = pool_of(texts, tmp_path / str(size), size)
        light = int((pool["documents"] >= 400).sum())
        assert 2.3 < (len(pool["documents"]) - light) / light < 3.9
