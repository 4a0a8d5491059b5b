"""`sesame inspect`: pieces, masks, labels and statistics are shown; a broken shard is named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_prep.corpus.shard_format import Origin, StoredSection, write_shard
from data_prep.errors import SesameError, UsageError
from data_prep.examples.build import build
from data_prep.examples.chunks import Chunk, ChunkStore, ChunkWriter
from data_prep.examples.config import ExamplesConfig
from data_prep.examples.masking import MaskRule
from pipeline.commands.decoded_examples import inspect
from tests.data_prep.small_examples import make_tokenizer

WORDS = ["sail", "##ing", "ships", "harbour", "wind", "."]
CONFIG = ExamplesConfig(max_seq_length=24, masking="static", chunk_rows=8, seed=1, workers=1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"), WORDS)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shard")
    rng = np.random.default_rng(0)
    plain = ["sailing", "ships", "harbour", "wind"]
    for split, documents in (("train", range(8)), ("heldout", range(8, 10))):
        sections = [
            StoredSection(
                document,
                0,
                "\n".join(" ".join(rng.choice(plain, 6)) + " ." for _ in range(20)).encode(),
                Origin("", "test").encode(),
                20,
                120,
            )
            for document in documents
        ]
        write_shard(folder / f"{split}-00000.tar", iter(sections))
    return folder


@pytest.fixture(scope="module")
def examples(shards: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("examples")
    build(shards, tokenizer, out, CONFIG)
    return out


def test_rows_are_shown_with_masks_labels_and_statistics(
    examples: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inspect(examples, tokenizer, 20, None, MaskRule())
    shown = capsys.readouterr().out
    assert shown.count("train row ") == 20
    assert "[MASK→" in shown
    assert "next, " in shown and "random, " in shown
    assert "sailing" in shown and "[CLS]" in shown
    rows = ChunkStore(examples, "train").rows
    assert f"{rows:,}" in shown and "efficiency.packed" in shown
    assert "·" in shown and "█" in shown  # the histogram of lengths


def test_masks_of_dynamic_rows_are_drawn_to_be_shown(
    shards: Path, tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(shards, tokenizer, tmp_path, replace(CONFIG, masking="dynamic", pairs="none"))
    inspect(tmp_path, tokenizer, 5, None, MaskRule())
    shown = capsys.readouterr().out
    assert "[MASK→" in shown and "no pair" in shown


def test_more_rows_than_there_are_shows_all_once(
    examples: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inspect(examples, tokenizer, 10_000, None, MaskRule())
    assert capsys.readouterr().out.count("train row ") == ChunkStore(examples, "train").rows


def test_one_shard_is_checked_and_shown(
    examples: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inspect(examples, tokenizer, 2, examples / "heldout-00000.tar", MaskRule())
    shown = capsys.readouterr().out
    rows = ChunkStore(examples, "heldout").rows
    assert f"heldout-00000.tar: {rows} rows checked" in shown
    assert shown.count("heldout row ") == 2


def test_a_shard_whose_rows_break_a_rule_is_refused(
    examples: Path, tokenizer: Path, tmp_path: Path
) -> None:
    store = ChunkStore(examples, "train")
    with ChunkWriter(
        tmp_path,
        "train",
        shard_size=1 << 20,
        chunk_rows=8,
        vocab_size=store.vocab_size,
        static=True,
    ) as writer:
        for number in range(store.chunks):
            columns = store.read(number).columns()
            if number == 1:
                columns["documents"] = np.zeros_like(columns["documents"])
            writer.append(Chunk(**columns))
    (tmp_path / "statistics.json").write_bytes((examples / "statistics.json").read_bytes())
    with pytest.raises(SesameError, match=r"train-00000\.tar: chunk 1, row .* same document"):
        inspect(examples, tokenizer, 2, tmp_path / "train-00000.tar", MaskRule())


def test_a_flipped_bit_is_named_before_anything_is_shown(
    examples: Path, tokenizer: Path, tmp_path: Path
) -> None:
    for path in examples.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shard = tmp_path / "train-00000.tar"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(SesameError, match=r"train-00000\.tar.*checksum"):
        inspect(examples, tokenizer, 2, shard, MaskRule())


@pytest.mark.parametrize("name", ["statistics.json", "train-00009.tar", "other.tar"])
def test_what_is_no_shard_is_bad_usage(name: str, examples: Path, tokenizer: Path) -> None:
    with pytest.raises(UsageError, match=name):
        inspect(examples, tokenizer, 2, examples / name, MaskRule())


def test_missing_statistics_are_named(tokenizer: Path, tmp_path: Path) -> None:
    with pytest.raises(SesameError, match=r"statistics\.json: missing"):
        inspect(tmp_path, tokenizer, 2, None, MaskRule())
