"""The data stages through the command line: reuse, change, and bytes that must not change."""

import hashlib
import random
import shutil
from pathlib import Path

import pytest

from pipeline.config.compose import compose_config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.graph import Graph
from tests.conftest import Sesame
from tests.small_disk import require, resize, small_disk

TEXT = (
    "the river was old and slow but children of every village knew its moods by heart until winter "
    "came over high fields where nobody had planted anything since grandmother sold her last horse"
)
WORDS = TEXT.split()
SMALL = (
    "experiment=bert_tiny", "corpus.paths=texts", "tokenizer.vocab_size=120", "seed=3",
    "examples.max_seq_length=32",
)  # fmt: skip
SMALL_WORDS = (
    "experiment=elmo_tiny", "corpus.paths=texts", "tokenizer.vocab_size=30", "seed=3",
    "examples.max_seq_length=12", "examples.chunk_rows=64",
)  # fmt: skip
# The bytes of shard, tokenizer and examples made of `write_texts` with SMALL, and below with
# SMALL_WORDS. When a change of code changes them, raise the stage's FORMAT, so that old outputs are
# not taken for new ones; then put the new hash here.
GOLDEN = {
    "shard": "7430b18b9f972cd4",
    "tokenizer": "e2df607c2434d0db",
    "examples": "4148817c97d477ea",
}
GOLDEN_WORDS = {
    "shard": GOLDEN["shard"],
    "tokenizer": "6caef144134a0f46",
    "examples": "06db4a3b09472b67",
}


def write_texts(folder: Path) -> None:
    folder.mkdir()
    draw = random.Random(5)
    for number in range(3):
        documents = []
        for _ in range(40):
            sentences = [
                " ".join(draw.choices(WORDS, k=draw.randint(4, 14))).capitalize() + "."
                for _ in range(draw.randint(2, 9))
            ]
            documents.append(" ".join(sentences))
        (folder / f"text_{number}.txt").write_text("\n\n".join(documents) + "\n")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Sesame:
    made = Sesame(tmp_path_factory.mktemp("data"))
    write_texts(made.folder / "texts")
    made.succeed("examples", *SMALL)
    return made


@pytest.fixture(scope="module")
def reader_of_words(tmp_path_factory: pytest.TempPathFactory) -> Sesame:
    made = Sesame(tmp_path_factory.mktemp("words"))
    write_texts(made.folder / "texts")
    made.succeed("examples", *SMALL_WORDS)
    return made


def digest(output: Path) -> str:
    """One hash of all an output's files, but for what differs from machine to machine.

    Hidden files are no part of an output.
    """
    whole = hashlib.sha256()
    for path in sorted(output.rglob("*")):
        if path.is_file() and path.name != "run.json" and not path.name.startswith("."):
            whole.update(str(path.relative_to(output)).encode() + path.read_bytes())
    return whole.hexdigest()[:16]


@pytest.mark.parametrize("stage", GOLDEN)
def test_bytes_change_only_with_the_format_version(user: Sesame, stage: str) -> None:
    (output,) = (user.store / stage).iterdir()
    assert digest(output) == GOLDEN[stage]


@pytest.mark.parametrize("stage", GOLDEN_WORDS)
def test_bytes_of_words_and_streams_change_only_so_too(reader_of_words: Sesame, stage: str) -> None:
    (output,) = (reader_of_words.store / stage).iterdir()
    assert digest(output) == GOLDEN_WORDS[stage]


def test_dynamic_mask_rates_share_their_examples_and_not_their_pretrainings(
    user: Sesame,
) -> None:
    """The loader draws these masks: the stored rows know nothing of them, the weights do."""

    paths = (f"corpus.paths={user.folder / 'texts'}", f"paths.store={user.store}")

    def place(stage: str, *overrides: str) -> str:
        config = compose_config([*SMALL, *paths, *overrides])
        return Graph(Store(user.store), STAGES).add(stage, config).output.fingerprint

    usual = {stage: place(stage) for stage in ("examples", "pretrain")}
    for change in ("examples.mask_rate=0.3", "examples.mask_unit=span", "examples.max_masks=9"):
        assert place("examples", change) == usual["examples"]
        assert place("pretrain", change) != usual["pretrain"]
        # Stored masks are part of the rows, and through them of the pretraining.
        static = place("examples", "examples.masking=static", change)
        assert static != place("examples", "examples.masking=static")
    assert len({place("pretrain", f"examples.mask_rate={rate}") for rate in (0.15, 0.2, 0.3)}) == 3


def test_a_moved_corpus_makes_nothing_new(user: Sesame, tmp_path: Path) -> None:
    shutil.copytree(user.folder / "texts", tmp_path / "elsewhere" / "texts")
    shutil.copytree(user.store, tmp_path / "store")
    moved = [word.replace("=texts", "=elsewhere/texts") for word in SMALL]
    said = Sesame(tmp_path).succeed("examples", *moved).stderr
    assert said.count(" done") == 3


@pytest.mark.parametrize("change", ["one byte", "added", "removed"])
def test_a_changed_file_is_named_and_made_anew(user: Sesame, tmp_path: Path, change: str) -> None:
    other = Sesame(tmp_path)
    shutil.copytree(user.folder / "texts", tmp_path / "texts")
    shutil.copytree(user.store, other.store)
    path = tmp_path / "texts" / "text_1.txt"
    if change == "one byte":
        path.write_bytes(path.read_bytes().replace(b"river", b"rivet", 1))
        says = "text_1.txt changed"
    elif change == "added":
        shutil.copy(path, tmp_path / "texts" / "text_9.txt")
        says = "text_9.txt added"
    else:
        path.unlink()
        says = "text_1.txt is gone"
    said = other.succeed("shard", *SMALL, COLUMNS="200").stderr
    assert says in said
    assert len(list((other.store / "shard").iterdir())) == 2


def test_a_vocabulary_the_corpus_cannot_fill_is_an_error(user: Sesame, tmp_path: Path) -> None:
    other = Sesame(tmp_path)
    shutil.copytree(user.folder / "texts", tmp_path / "texts")
    done = other("tokenizer", *SMALL, "tokenizer.vocab_size=30000")
    assert done.returncode == 1
    assert "tokenizer.vocab_size=30000" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_sweep_over_tokenizers_shares_the_shards(user: Sesame, tmp_path: Path) -> None:
    other = Sesame(tmp_path)
    shutil.copytree(user.folder / "texts", tmp_path / "texts")
    other.succeed(
        "tokenizer", "-m", *SMALL, "tokenizer.vocab_size=90", "tokenizer=wordpiece,bpe,unigram"
    )
    assert len(list((other.store / "shard").iterdir())) == 1
    assert len(list((other.store / "tokenizer").iterdir())) == 3


def test_a_failing_point_of_a_sweep_says_why_in_one_sentence(user: Sesame, tmp_path: Path) -> None:
    other = Sesame(tmp_path)
    shutil.copytree(user.folder / "texts", tmp_path / "texts")
    done = other("tokenizer", "-m", *SMALL, "tokenizer.vocab_size=90,30000")
    assert done.returncode == 1
    assert "sesame tokenizer: tokenizer.vocab_size=30000" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_told_in_a_sentence_and_room_is_all_it_takes(
    user: Sesame, tmp_path: Path
) -> None:
    other = Sesame(tmp_path)
    write_texts(tmp_path / "texts")
    (made,) = (user.store / "shard").iterdir()
    with small_disk(other.store, 60) as mounted:
        require(mounted)
        for kilobytes in (100, 240):  # full while joining, and while writing
            resize(other.store, kilobytes)
            failed = other("shard", *SMALL)
            assert failed.returncode == 1, failed.stderr
            assert "No space left on device" in failed.stderr and "make room" in failed.stderr
            assert "Traceback" not in failed.stderr
        resize(other.store, 10_000)
        other.succeed("shard", *SMALL)
        assert digest(other.store / "shard" / made.name) == GOLDEN["shard"]
