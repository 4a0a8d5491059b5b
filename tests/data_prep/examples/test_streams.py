"""ELMo's examples: every sentence once, framed, documents whole and in a seeded order."""

import hashlib
import json
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from data_prep.config import TokenizerConfig
from data_prep.corpus.shard_format import Origin, StoredSection, parts, read_sections, write_shard
from data_prep.errors import SesameError
from data_prep.examples import streams
from data_prep.examples.chunks import ChunkStore
from data_prep.examples.streams import build_streams
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.counting import WordCounts
from data_prep.tokenizers.vocabulary import write_words
from tests.data_prep.small_examples import read_all
from tests.pipeline.toy_streams import RARE, WORDS, make_examples, make_shards, streams_config

Made = tuple[Path, Path, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_examples(tmp_path_factory.mktemp("streams"))


def digest(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()


def rows(folder: Path, split: str) -> list[tuple[int, list[int]]]:
    """Document and words of every row, in order."""
    return [
        (int(chunk.documents[row, 0]), chunk.tokens[start:end].tolist())
        for chunk in read_all(folder, split)
        for row, (start, end) in enumerate(
            zip(chunk.example_tokens[:-1], chunk.example_tokens[1:], strict=True)
        )
    ]


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_every_sentence_stands_once_in_its_frame(made: Made, split: str) -> None:
    shards, tokenizer_folder, folder = made
    tokenizer = Tokenizer.load(tokenizer_folder)
    room = streams_config().max_seq_length - 2
    expected: Counter[tuple[int, ...]] = Counter()
    for part in parts(shards, split):
        for section in read_sections(part.path, part.start, part.end):
            for sentence in section.sentences:
                ids = tokenizer.encode([sentence])[0].tolist()
                for start in range(0, len(ids), room):
                    frame = [tokenizer.cls, *ids[start : start + room], tokenizer.sep]
                    expected[section.document, *frame] += 1
    assert expected == Counter((document, *words) for document, words in rows(folder, split))


def test_documents_stay_whole_in_another_order(made: Made, tmp_path: Path) -> None:
    shards, tokenizer, folder = made
    order = list(dict.fromkeys(document for document, _ in rows(folder, "train")))
    starts = np.flatnonzero(np.diff([document for document, _ in rows(folder, "train")]))
    assert len(starts) + 1 == len(order) == 12
    assert order != sorted(order)
    build_streams(shards, tokenizer, tmp_path, streams_config(seed=8))
    assert list(dict.fromkeys(document for document, _ in rows(tmp_path, "train"))) != order


@pytest.mark.parametrize("step", ["scatter", "frame_rows", "write_splits", "_check_sources"])
def test_bytes_depend_on_no_worker_and_no_kill(
    step: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards, tokenizer, folder = made

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(streams, step, killed)
        with pytest.raises(KeyboardInterrupt):
            build_streams(shards, tokenizer, tmp_path, streams_config())
    build_streams(shards, tokenizer, tmp_path, streams_config(workers=2))
    assert digest(tmp_path) == digest(folder)


def test_a_wrong_word_is_found_by_the_proof(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards, tokenizer, _ = made
    right = streams.Framing.rows

    def wrong(self: streams.Framing, ids: np.ndarray, *others: object) -> object:
        return right(self, np.where(ids == 10, 11, ids) if len(ids) > 200 else ids, *others)

    monkeypatch.setattr(streams.Framing, "rows", wrong)
    with pytest.raises(SesameError, match="differs from the ids that the tokenizer library gives"):
        build_streams(shards, tokenizer, tmp_path, streams_config())


def test_counts_balance(made: Made) -> None:
    _, _, folder = made
    store = ChunkStore(folder, "train")
    counts = json.loads((folder / "statistics.json").read_text())["train"]
    assert counts["rows"] == store.rows == counts["sentences"] + counts["cut"]
    assert counts["words"] == counts["pieces"] == store.tokens - 2 * store.rows
    assert 0 < counts["unknown"] < counts["words"] / 10


@pytest.mark.parametrize("words", [40_000, 70_000])
def test_ids_of_large_vocabularies_stay_whole(words: int, made: Made, tmp_path: Path) -> None:
    """Ids take two bytes, four with a bit for marks, and four: the sort changes the type."""
    rare = [f"never{number}" for number in range(words)]
    known = [*rare, *WORDS, *RARE]  # the words of the text have the largest ids
    folder, out = tmp_path / "tokenizer", tmp_path / "out"
    folder.mkdir(), out.mkdir()
    counts = WordCounts(known, list(range(len(known), 0, -1)), 1000, len(known))
    write_words(counts, folder, TokenizerConfig(kind="words", vocab_size=len(known)))
    build_streams(made[0], folder, out, streams_config())
    usual, large = Tokenizer.load(made[1]), Tokenizer.load(folder)
    for split in ("train", "heldout"):
        before, after = rows(made[2], split), rows(out, split)
        assert [[large.piece(id) for id in row] for _, row in after] == [
            [usual.piece(id) for id in row] for _, row in before
        ]


def test_no_training_text_is_an_error(made: Made, tmp_path: Path) -> None:
    empty = make_shards(tmp_path / "shards", documents=0)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(SesameError, match="no training text"):
        build_streams(empty, made[1], out, streams_config())


def test_weights_and_duplicates_repeat_documents_at_places_of_their_own(
    made: Made, tmp_path: Path
) -> None:
    shards, tokenizer, folder = made
    weighted = tmp_path / "shard"
    weighted.mkdir()
    for split in ("train", "heldout"):
        sections = [
            StoredSection(
                section.document, section.section, "\n".join(section.sentences).encode(),
                Origin("", "test").encode(), 0, 0,
                weight=[0.0, 1.0, 2.0][section.document % 3] if split == "train" else 1.0,
            )
            for part in parts(shards, split)
            for section in read_sections(part.path, part.start, part.end)
        ]  # fmt: skip
        write_shard(weighted / f"{split}-00000.tar", sections)
    out = tmp_path / "out"
    out.mkdir()
    build_streams(weighted, tokenizer, out, replace(streams_config(), duplicates=2))
    once = Counter((document, *words) for document, words in rows(folder, "train"))
    made_now = rows(out, "train")
    assert Counter((document, *words) for document, words in made_now) == Counter(
        {row: count * 2 * (row[0] % 3) for row, count in once.items() if row[0] % 3}
    )
    runs = Counter(document for document, _ in groupby(document for document, _ in made_now))
    assert max(runs.values()) > 1, "copies lie apart"
    assert rows(out, "heldout") == rows(folder, "heldout")
