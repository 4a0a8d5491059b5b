"""What a run gives away is counted, and never shown."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_prep.corpus.shard_format import Origin, StoredSection, write_shard
from data_prep.errors import UsageError
from data_prep.examples.chunks import ChunkStore
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline.audit.canaries import Found, as_found, read_canaries, search_ids, search_text
from pipeline.audit.memory import (
    Memory,
    Restored,
    chance_error,
    lower_probability,
    measure,
)
from pipeline.audit.page import Audit, Kept, verdicts, write_page
from pipeline.audit.rarity import Rarity, count_groups
from pipeline.inference.fill import Filler
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.network import BertForPretraining
from tests.pipeline.toy_pretraining import SPECIALS, VOCABULARY, write_examples

WORDS = ["anna", "bert", "clara", "pain", "fever", "o"]


def tokenizer_of(folder: Path, words: list[str]) -> Tokenizer:
    folder.mkdir()
    write_folder(folder, from_vocabulary(words, True, True, Specials()), Specials(), None)
    return Tokenizer.load(folder)


def shards(folder: Path, notes: list[tuple[str | None, str]]) -> Path:
    folder.mkdir()
    sections = [
        StoredSection(
            number, 0, text.encode(), Origin(str(number), "notes.jsonl", group).encode(), 1,
            len(text.split()),
        )
        for number, (group, text) in enumerate(notes)
    ]  # fmt: skip
    write_shard(folder / "train-00000.tar", sections)
    return folder


def test_entries_are_counted_by_groups_and_documents_without_one_are_groups(
    tmp_path: Path,
) -> None:
    tokenizer = tokenizer_of(tmp_path / "tokenizer", [*SPECIALS, *WORDS])
    notes = [
        ("p1", "anna pain"), ("p1", "anna fever"), ("p2", "bert pain o"), (None, "bert fever"),
        (None, "bert pain"), ("p3", "fever"),
    ]  # fmt: skip
    rarity = count_groups(shards(tmp_path / "shards", notes), tokenizer, 3)
    ids = {word: number for number, word in enumerate([*SPECIALS, *WORDS])}
    found = {word: int(rarity.groups_V[ids[word]]) for word in WORDS}
    assert found == {"anna": 1, "bert": 3, "clara": 0, "pain": 3, "fever": 3, "o": 1}
    rare = {word for word in WORDS if rarity.rare_V[ids[word]]}
    assert rare == {"anna", "clara"}  # a single letter names nobody
    assert rarity.by_groups() == [(0, 1), (1, 1), (2, 0)]


def test_canaries_are_found_in_every_form_and_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.audit.canaries.BLOCK", 16)
    (tmp_path / "deep").mkdir()
    (tmp_path / "plain.txt").write_text("x" * 13 + "Å & Secret 42" + "y" * 40)
    (tmp_path / "deep" / "some.json").write_text('{"text": "\\u00c5 & secret 42"}')
    (tmp_path / "page.html").write_text("<p>Å &amp; secret 42</p>")
    (tmp_path / "clean.bin").write_bytes(bytes(100))
    assert search_text(tmp_path, ["Å & secret 42", "another one"]) == {1: 3}


def test_canaries_are_found_in_examples_as_ids(tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples", 24)
    tokenizer = tokenizer_of(tmp_path / "tokenizer", VOCABULARY)
    store = ChunkStore(examples, "train")
    ids = store.read(3).tokens[1:7]
    planted = " ".join(VOCABULARY[number] for number in ids)
    assert search_ids(examples, ["p3 p1 p7 p59 p2", planted], tokenizer).keys() == {2}


@pytest.mark.parametrize(
    ("content", "says"), [("", "one string per line"), ("long enough\nshort", "line 2 is shorter")]
)
def test_a_file_of_canaries_must_hold_some(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "canaries").write_text(content)
    with pytest.raises(UsageError, match=says):
        read_canaries(tmp_path / "canaries")
    with pytest.raises(UsageError, match="cannot be read"):
        read_canaries(tmp_path / "missing")


def test_the_probability_of_a_lower_loss_counts_pairs() -> None:
    first, second = np.array([1.0, 2.0, 2.0]), np.array([2.0, 3.0])
    assert lower_probability(first, second) == (2 + 1.5 + 1.5) / 6
    rng = np.random.default_rng(0)
    draws = [lower_probability(rng.random(40), rng.random(30)) for _ in range(400)]
    assert np.std(draws) == pytest.approx(chance_error(40, 30), rel=0.15)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tokenizer]:
    root = tmp_path_factory.mktemp("toy")
    return write_examples(root / "examples", 24), tokenizer_of(root / "tokenizer", VOCABULARY)


RARE = np.arange(len(VOCABULARY)) % 3 == 0
RARE[: len(SPECIALS)] = False


def test_a_model_that_was_not_trained_remembers_nothing(toy: tuple[Path, Tokenizer]) -> None:
    examples, tokenizer = toy
    torch.manual_seed(0)
    config = BertConfig(layers=1, hidden=8, heads=1, intermediate=8, max_positions=64)
    filler = Filler(BertForPretraining(config, tokenizer.size), tokenizer)
    memory = measure(filler, examples, RARE, 48)
    assert memory.examples == (48, 48)
    assert abs(memory.membership - 0.5) < 4 * memory.error
    assert memory.train.tokens > 100 and memory.heldout.tokens > 100
    assert memory.train.share < 0.1 > memory.heldout.share


class Memorised:
    """Predicts the tokens of the rows that it has seen, and the first token elsewhere."""

    def __init__(self, examples: Path, size: int) -> None:
        store = ChunkStore(examples, "train")
        chunks = [store.read(number) for number in range(store.chunks)]
        rows = [chunk.between(row, row + 1) for chunk in chunks for row in range(chunk.rows)]
        self.rows = [row.tokens.astype(np.int64) for row in rows]
        self.size = size

    def eval(self) -> "Memorised":
        return self

    def predict(self, tokens_N: Any, *_: Any) -> tuple[torch.Tensor, None]:
        guess = torch.zeros_like(tokens_N)
        for row in self.rows:
            if len(row) == len(tokens_N):
                seen = torch.from_numpy(row)
                if ((tokens_N == seen) | (tokens_N == 4)).float().mean() > 0.9:
                    guess = seen
        return 9.0 * torch.nn.functional.one_hot(guess, self.size).float(), None


def test_a_model_that_knows_its_rows_is_found_out(toy: tuple[Path, Tokenizer]) -> None:
    examples, tokenizer = toy
    model: Any = Memorised(examples, tokenizer.size)
    memory = measure(Filler(model, tokenizer), examples, RARE, 48)
    assert memory.membership > 0.8  # some held-out rows count as training rows do
    assert memory.train.share > 0.9
    assert memory.heldout.share < 0.5


AUDIT = Audit(
    run="notes <b>",
    outputs=[Kept("shard/aa", "/store/shard/aa", 10), Kept("export/bb", "/store/export/bb", 5)],
    documents={"read": 12, "kept": 10, "dropped": {"duplicate": 2}},
    groups={"train": 8, "heldout": 2, "without": 0},
    tracking="wandb; mode offline",
    offline=True,
    rarity=Rarity(np.array([1, 5, 0]), 5, np.array([True, True, False])),
    searched=2,
    found=[*as_found("shard/aa", {1: 3}), Found(2, "export/bb", 1)],
    memory=Memory((50, 50), 0.9, 0.06, Restored(8, 10), Restored(1, 10)),
)


def test_the_page_says_what_to_look_at() -> None:
    html = write_page(AUDIT).html
    said = (
        "notes &lt;b&gt;",
        "the text itself",
        "/store/export/bb",
        "look at it",
        "80.0",
        "offline",
    )
    assert [text for text in said if text not in html] == []
    assert [is_open for _, is_open in verdicts(AUDIT)] == [False, True, True, True]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"groups": {}}, "names no groups"),
        ({"groups": {"train": 1, "without": 4}}, "4 documents have no group"),
        ({"found": [], "searched": 3}, "0 of 3 canaries"),
    ],
)
def test_findings_follow_the_counts(changes: dict[str, Any], says: str) -> None:
    changed = replace(AUDIT, **changes)
    assert any(says in sentence for sentence, _ in verdicts(changed))
    assert write_page(changed).html


def test_an_audit_without_model_and_tokenizer_says_so() -> None:
    html = write_page(replace(AUDIT, rarity=None, memory=None, searched=0, found=[])).html
    assert "no tokenizer of its own" in html and "Not tested" in html and "None were" in html
