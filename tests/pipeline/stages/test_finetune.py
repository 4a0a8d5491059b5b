"""Fine-tuning learns what can be learnt, repeats itself by seed, and writes what it found."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data_prep.errors import SesameError
from data_prep.vectors.table import VectorTable
from pipeline.config.schema import Config
from pipeline.encoders import (
    BertEncoder,
    Concatenation,
    Encoder,
    StaticEncoder,
    random_encoder,
)
from pipeline.encoders.stored import stored_states
from pipeline.models.bert.config import BertConfig
from pipeline.stages.finetune import Finetune
from pipeline.tasks import lazy_rows
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example, Gold
from pipeline.tasks.finetuned import Finetuned
from pipeline.tasks.finetuning import Outcome, finetune
from pipeline.tasks.heads import Head
from pipeline.tasks.model import Model
from pipeline.tasks.optimizer import parameter_groups
from pipeline.tasks.splits import Splits
from pipeline.workflow.stage import Work
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

WORDS = ["good", "fine", "great", "bad", "dull", "poor", "film", "plot", "cast", "the", "was"]
MODEL = BertConfig(
    layers=1, hidden=32, heads=2, intermediate=64, max_positions=32, dropout=0.0,
    attention_dropout=0.0,
)  # fmt: skip
FAST = FinetuneConfig(lr=5e-3, epochs=6, batch_size=16, max_seq_length=32, accelerator="cpu")
TASKS = {
    "classify": TaskConfig(name="toy", kind="classify"),
    "regress": TaskConfig(name="toy", kind="regress", metric="pearson"),
    "tag": TaskConfig(name="toy", kind="tag", reader="conll", metric="entity_f1"),
}
LABELS = {"classify": ["bad", "good"], "regress": [], "tag": ["O", "B-X", "I-X"]}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Models so small only lose by threads, much so where tests share the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_tokenizer(tmp_path_factory.mktemp("tokenizer"), WORDS)


def new_encoder(tokenizer: Path) -> Encoder:
    return random_encoder(MODEL, tokenizer, seed=0)


def example(kind: str, rng: np.random.Generator) -> Example:
    """Good words are the first three, bad ones the next three: labels follow from counting."""
    words = tuple(str(word) for word in rng.choice(WORDS, size=rng.integers(2, 12)))
    good = sum(word in WORDS[:3] for word in words)
    bad = sum(word in WORDS[3:6] for word in words)
    gold: Gold
    if kind == "tag":
        gold = tuple("B-X" if word in WORDS[:3] else "O" for word in words)
        return Example(words, gold, "", 0)
    gold = float(good - bad) if kind == "regress" else ("good" if good > bad else "bad")
    return Example((" ".join(words),), gold, "", 0)


def toy(kind: str, train: int = 256) -> Splits:
    rng = np.random.default_rng(0)
    parts = [[example(kind, rng) for _ in range(size)] for size in (train, 60, 100)]
    return Splits(*parts, LABELS[kind])


@pytest.mark.parametrize("kind", ["classify", "regress", "tag"])
def test_what_can_be_learnt_is_learnt(kind: str, tokenizer: Path) -> None:
    outcome = finetune(new_encoder(tokenizer), toy(kind), TASKS[kind], FAST)
    assert outcome.scores[TASKS[kind].metric] >= 0.9
    assert outcome.steps == 6 * 16
    assert max(outcome.dev_scores) == outcome.dev_scores[outcome.best_epoch - 1]
    answers = [guess.answer for guess in outcome.predictions]
    gold = [e.gold for e in toy(kind).test]
    assert len(answers) == len(gold) == 100
    if kind == "classify":
        hits = [answer == truth for answer, truth in zip(answers, gold, strict=True)]
        assert np.mean(hits) == pytest.approx(outcome.scores["accuracy"])
    if kind == "regress":  # back on the scale of the gold numbers
        assert np.abs(np.subtract(answers, gold)).mean() < 1


def test_sentences_of_a_pair_can_be_compared_each_read_on_its_own(tokenizer: Path) -> None:
    rng = np.random.default_rng(0)

    def pairs(size: int) -> list[Example]:
        drawn = rng.choice(WORDS[:6], (size, 2))
        return [Example((str(a), str(b)), float(a == b), "", 0) for a, b in drawn]

    splits = Splits(pairs(512), pairs(60), pairs(100), [])
    task = replace(TASKS["regress"], text_a="a", text_b="b")
    outcome = finetune(
        new_encoder(tokenizer), splits, task, replace(FAST, pair_encoding="separate")
    )
    assert outcome.scores["pearson"] > 0.8


def test_a_crf_learns_what_single_words_do_not_show(tokenizer: Path) -> None:
    """Every second good word is an entity: its own vector cannot tell, a chain of tags can."""
    rng = np.random.default_rng(0)

    def alternating() -> Example:
        words = tuple(str(word) for word in rng.choice(WORDS[:2], size=rng.integers(3, 12)))
        tags = tuple("B-X" if position % 2 else "O" for position in range(len(words)))
        return Example(words, tags, "", 0)

    splits = Splits(*[[alternating() for _ in range(n)] for n in (64, 30, 50)], LABELS["tag"])
    config = replace(FAST, layers="embeddings", mode="frozen", lr=0.1, epochs=8)
    encoder = new_encoder(tokenizer)
    embeddings = encoder.bert.embeddings
    with torch.no_grad():  # positions would tell
        embeddings.positions.weight.zero_()
    alone = finetune(encoder, splits, TASKS["tag"], config)
    together = finetune(encoder, splits, TASKS["tag"], replace(config, crf=True))
    assert alone.scores["entity_f1"] < 0.8
    assert together.scores["entity_f1"] > 0.99


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize("head", ["bilstm", "bigru"])
def test_recurrent_heads_over_several_encoders_learn_sentences_by_heart(
    head: str, crf: bool, tokenizer: Path
) -> None:
    """Nothing but the sentence as a whole tells its tags; half of the words have no vector."""
    rng = np.random.default_rng(0)
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y"]

    def sentence() -> Example:
        words = tuple(str(word) for word in rng.choice([*WORDS, "odd"], size=rng.integers(2, 9)))
        kinds = rng.choice(["", "", "X", "Y"], size=len(words))
        before = ["", *kinds[:-1]]
        tags = [
            f"{'I' if kind == last else 'B'}-{kind}" if kind else "O"
            for kind, last in zip(kinds, before, strict=True)
        ]
        return Example(words, tuple(tags), "", 0)

    sentences = [sentence() for _ in range(20)]
    vectors = rng.normal(size=(6, 8)).astype(np.float32)
    static = StaticEncoder(VectorTable(WORDS[::2], vectors))
    encoder = Concatenation([static, new_encoder(tokenizer)])
    config = replace(
        FAST, mode="frozen", layers="mix", head=head, crf=crf, epochs=60, batch_size=20, lr=1e-2,
        head_width=48,
    )  # fmt: skip
    splits = Splits(sentences, sentences, sentences, labels)
    outcome = finetune(encoder, splits, TASKS["tag"], config)
    assert outcome.scores["entity_f1"] > 0.95


def test_learning_rates_fall_with_depth(tokenizer: Path) -> None:
    encoder = random_encoder(replace(MODEL, layers=3), tokenizer, seed=0)
    head = torch.nn.Linear(4, 2)
    config = replace(FAST, lr=1.0, layer_decay=0.5)
    groups = parameter_groups(encoder, head, config)
    peak = {id(value): group.peak for group in groups for value in group.values}
    decay = {id(value): group.decay for group in groups for value in group.values}
    assert len(peak) == len(list(encoder.parameters())) + 2
    assert peak[id(head.weight)] == 1.0
    layers = encoder.bert.layers
    assert [peak[id(layer.attention.qkv.weight)] for layer in layers] == [0.25, 0.5, 1.0]
    assert peak[id(encoder.bert.embeddings.tokens.weight)] == 0.125
    assert decay[id(head.weight)] == config.weight_decay
    assert decay[id(head.bias)] == 0.0


def test_lazy_tables_change_nothing_but_the_price(
    tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(FAST, lr=1e-3, layer_decay=0.8, clip=0.1, epochs=3)
    weights = []
    for many in (0, 10_000):  # all tables lazy, or none
        monkeypatch.setattr(lazy_rows, "MANY", many)
        encoder = new_encoder(tokenizer)
        tables = [m for m in encoder.modules() if isinstance(m, torch.nn.Embedding)]
        finetune(
            encoder, toy("tag"), TASKS["tag"], config,
            keep=lambda finetuned: weights.append(finetuned.model.trained_state()),
        )  # fmt: skip
        assert tables == [m for m in encoder.modules() if isinstance(m, torch.nn.Embedding)]
    lazy, eager = weights
    assert lazy.keys() == eager.keys()
    seen = torch.isin(
        torch.arange(16), torch.tensor([0, 1, 4]), invert=True
    )  # no [PAD], [UNK], [MASK]
    for name, value in lazy.items():
        if name.endswith("tokens.weight"):
            torch.testing.assert_close(value[seen], eager[name][seen], rtol=1e-3, atol=1e-4)
        elif not name.endswith(("segments.weight", "positions.weight")):
            torch.testing.assert_close(value, eager[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "changed", "reads_few"),
    [
        ("classify", {}, True),
        ("classify", {"pooling": "mean"}, False),
        ("classify", {"layers": "mix"}, False),
        ("classify", {"head": "bigru"}, False),
        ("tag", {}, True),
        ("tag", {"layers": "mix"}, False),
        ("tag", {"head": "bigru"}, True),
        ("span", {}, False),
    ],
)
def test_a_head_that_reads_few_states_answers_as_if_it_read_all(
    kind: str, changed: dict[str, str], reads_few: bool, tokenizer: Path
) -> None:
    encoder = new_encoder(tokenizer)
    head = Head(kind, 2, encoder, replace(FAST, **{"pooling": "first", **changed}))
    model = Model(encoder, head, frozen=False).eval()
    words = [(["the", "cast", "was", "dull"],), (["good", "film"],), (["filmfilmgood", "dull"],)]
    batch = encoder.encode_words(words, 32).batch(np.array([1, 0, 2]))
    assert (head.rows(batch) is not None) == reads_few
    torch.testing.assert_close(model(batch), head(encoder(batch), batch))


def test_the_weights_that_are_kept_have_the_encoder_s_own_shape(tokenizer: Path) -> None:
    encoder = new_encoder(tokenizer)
    assert isinstance(encoder, BertEncoder)
    config = replace(FAST, epochs=1, pooling="first")
    kept: list[Finetuned] = []
    finetune(encoder, toy("classify", 32), TASKS["classify"], config, keep=kept.append)
    trained = kept[0].model.trained_state()["encoder.bert.embeddings.tokens.weight"]
    assert torch.equal(trained, encoder.bert.embeddings.tokens.weight)
    assert len(trained) == encoder.tokenizer.size


@pytest.mark.parametrize("head", ["linear", "bilstm"])
def test_the_same_seed_gives_the_same_numbers(head: str, tokenizer: Path) -> None:
    config = replace(FAST, epochs=2, head=head, dropout=0.3)

    def run(seed: int) -> Outcome:
        torch.rand(seed + 5)  # the state of torch's own generator must not matter
        own = replace(config, seed=seed)
        return finetune(new_encoder(tokenizer), toy("tag", 64), TASKS["tag"], own)

    assert run(1) == run(1)
    assert run(1).predictions != run(2).predictions


def test_a_frozen_encoder_stays_as_it_is(tokenizer: Path) -> None:
    encoder = new_encoder(tokenizer)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    frozen = replace(FAST, mode="frozen", epochs=2, layers="mix")
    finetune(encoder, toy("classify", 64), TASKS["classify"], frozen)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    finetune(encoder, toy("classify", 64), TASKS["classify"], replace(frozen, mode="full"))
    changed = [n for n, v in encoder.state_dict().items() if not torch.equal(v, before[n])]
    assert any("embeddings" in name for name in changed)


@pytest.mark.parametrize("kind", ["classify", "tag", "pairs"])
def test_states_computed_once_teach_as_those_computed_each_epoch(
    kind: str, tokenizer: Path, tmp_path: Path
) -> None:
    config = replace(FAST, mode="frozen", epochs=2, layers="mix", pair_encoding="separate")
    task, splits = TASKS.get(kind, TASKS["regress"]), toy("regress" if kind == "pairs" else kind)
    if kind == "pairs":
        task = replace(task, text_b="b")
        doubled = ([replace(e, texts=(*e.texts, "good film")) for e in part]
                   for part in (splits.train, splits.dev, splits.test))  # fmt: skip
        splits = Splits(*doubled, [])
    encoder = new_encoder(tokenizer)
    with stored_states(encoder, tmp_path / "states", torch.device("cpu"), [0, 1]) as stored:
        once = finetune(stored, splits, task, config)
    again = finetune(encoder, splits, task, config)
    assert once.scores == pytest.approx(again.scores, abs=0.02)
    assert once.mix == {
        "weights": pytest.approx(again.mix["weights"], abs=1e-3),
        "gamma": pytest.approx(again.mix["gamma"], abs=1e-3),
    }
    assert list(tmp_path.iterdir()) == []


def test_the_best_epoch_is_kept_and_patience_ends_it(tokenizer: Path) -> None:
    """Training labels turned round: every epoch makes the development score worse."""
    splits = toy("classify")
    turned = [replace(e, gold="bad" if e.gold == "good" else "good") for e in splits.train]
    wrong = replace(splits, train=turned, test=splits.dev)
    outcome = finetune(
        new_encoder(tokenizer), wrong, TASKS["classify"], replace(FAST, epochs=20, patience=2)
    )
    assert len(outcome.dev_scores) == outcome.best_epoch + 2 < 20
    assert outcome.scores["accuracy"] == outcome.dev_scores[outcome.best_epoch - 1]


def test_patience_waits_for_a_first_score(tokenizer: Path) -> None:
    """Heads over frozen encoders may find no entity for some epochs; here none is there."""
    splits = toy("tag", 32)
    nothing = [replace(e, gold=("O",) * len(e.texts)) for e in splits.dev]
    config = replace(FAST, epochs=4, patience=1)
    outcome = finetune(new_encoder(tokenizer), replace(splits, dev=nothing), TASKS["tag"], config)
    assert outcome.dev_scores == [0.0] * 4


def test_sentences_longer_than_the_window_are_split_and_stitched(tokenizer: Path) -> None:
    splits = toy("tag", 64)
    words = tuple(np.random.default_rng(1).choice(WORDS, size=100))
    tags = tuple("B-X" if word in WORDS[:3] else "O" for word in words)
    test = [Example(words, tags, "", 0), *splits.test]
    outcome = finetune(new_encoder(tokenizer), replace(splits, test=test), TASKS["tag"], FAST)
    assert outcome.predictions[0].answer == tags  # learnt from short ones, right to its last word
    assert [len(guess.answer) for guess in outcome.predictions] == [len(e.texts) for e in test]
    assert outcome.cut == 0


def test_a_loss_that_is_not_finite_stops_with_a_remedy(tokenizer: Path) -> None:
    encoder = new_encoder(tokenizer)
    with torch.no_grad():
        next(encoder.parameters()).fill_(float("nan"))
    with pytest.raises(SesameError, match=r"not finite at step 6 of 24.* finetune\.lr=0\.005"):
        finetune(encoder, toy("classify", 64), TASKS["classify"], FAST)


def test_the_stage_writes_scores_and_predictions(tokenizer: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [example("classify", rng) for _ in range(300)]
    lines = [f"{row.texts[0]}\t{row.gold}" for row in rows]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *lines, ""]))
    config = Config(
        encoder="random",
        model=MODEL,
        task=TaskConfig(name="toy", data_dir=str(tmp_path), train="train.tsv", train_examples=100),
        finetune=replace(FAST, epochs=1, seed=3),
    )
    out = tmp_path / "out"
    out.mkdir()
    counts = Finetune().run(Work(config, {"tokenizer": tokenizer}, out, "0" * 16))
    scores = json.loads((out / "scores.json").read_text())
    assert scores.pop("labels") == ["bad", "good"]
    assert scores == json.loads(json.dumps(counts))
    assert np.trace(scores["confusion"]) / np.sum(scores["confusion"]) == scores["score"]
    assert scores["score"] == scores["scores"]["accuracy"]
    assert (scores["task"], scores["encoder"], scores["seed"]) == ("toy", "random", 3)
    assert (scores["train_examples"], scores["steps"]) == (100, 7)
    lines = (out / "predictions.jsonl").read_text().splitlines()
    predictions = [json.loads(line) for line in lines]
    assert len(predictions) == scores["test_examples"]
    right = sum(line["gold"] == line["prediction"] for line in predictions)
    assert right / len(predictions) == pytest.approx(scores["score"])
    written = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    assert written == ["predictions.jsonl", "scores.json"]


def test_groups_are_told_where_a_task_has_them(tmp_path: Path) -> None:
    rows = [f"note {n}\t{n % 2}\t{n % 40}" for n in range(200)]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel\tpatient", *rows, ""]))
    task = TaskConfig(name="toy", data_dir=str(tmp_path), train="train.tsv")
    for field, groups in (("patient", 40), (None, 0)):
        config = Config(encoder="majority", task=replace(task, group_field=field))
        counts = Finetune().run(Work(config, {}, tmp_path, "0" * 16))
        assert sum(counts.get("groups", {}).values()) == groups
        assert ("group_field" in Finetune().keys(config)["task"]) == (field is not None)


def test_only_random_encoders_are_told_by_their_model() -> None:
    config = Config(model=MODEL, task=TaskConfig(name="toy"))
    assert set(Finetune().inputs(config)) == {"encoder"}
    assert "model" not in Finetune().keys(config)
    random = replace(config, encoder="random")
    assert set(Finetune().inputs(random)) == {"tokenizer"}
    assert Finetune().keys(random)["model"]["hidden"] == 32


def test_the_stage_imports_no_torch() -> None:
    code = "import sys, pipeline.stages.finetune; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
