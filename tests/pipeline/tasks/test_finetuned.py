"""A fine-tuned model on disk answers as it did in memory, here and in transformers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from data_prep.errors import SesameError, UsageError
from data_prep.vectors.table import VectorTable
from pipeline.encoders import Concatenation, Encoder, StaticEncoder, load_encoder, random_encoder
from pipeline.inference.models import FinetunedModel
from pipeline.inference.results import Tags
from pipeline.models.bert.config import BertConfig
from pipeline.models.elmo.config import ElmoConfig
from pipeline.tasks.answers import TagAnswers
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.expected_form import expected_form
from pipeline.tasks.finetuned import (
    Finetuned,
    build,
    class_logits,
    load_finetuned,
    prove_model,
    save_model,
)
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.heads import Head
from pipeline.tasks.kinds import make_answers
from pipeline.tasks.optimizer import Optimizer, parameter_groups
from pipeline.tasks.plain_loop import train_step
from pipeline.tasks.splits import Splits
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

WORDS = ["good", "fine", "bad", "dull", "film", "plot", "the", "was"]
BERT = BertConfig(layers=2, hidden=16, heads=2, intermediate=32, max_positions=48)
MODELS = {
    "bert": BERT,
    "roformer": replace(BERT, positions="rotary"),
    "modernbert": replace(
        BERT, norm="pre", positions="rotary", activation="geglu", biases=False, segments=False
    ),
}
TASKS = {
    "classify": TaskConfig(name="toy", kind="classify"),
    "pairs": TaskConfig(name="toy", kind="classify", text_a="a", text_b="b"),
    "regress": TaskConfig(name="toy", kind="regress", metric="pearson"),
    "tag": TaskConfig(name="toy", kind="tag", reader="conll", metric="entity_f1"),
    "span": TaskConfig(name="toy", kind="span", reader="squad", metric="f1"),
    "multilabel": TaskConfig(name="toy", kind="multilabel", metric="micro_f1"),
    "choice": TaskConfig(name="toy", kind="choice", choices=["one", "other"]),
}
LABELS = {"classify": ["bad", "good", "mixed"], "pairs": ["no", "yes"], "tag": ["O", "B-X", "I-X"]}
LABELS["multilabel"] = ["good", "bad", "film"]
ONCE = FinetuneConfig(lr=1e-2, epochs=1, batch_size=8, max_seq_length=40, accelerator="cpu")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_tokenizer(tmp_path_factory.mktemp("tokenizer"), WORDS)


def example(kind: str, rng: np.random.Generator) -> Example:
    words = tuple(str(word) for word in rng.choice(WORDS, size=rng.integers(2, 12)))
    if kind == "tag":
        return Example(words, tuple("B-X" if w == "good" else "O" for w in words), "", 0)
    text = " ".join(words)
    if kind == "span":
        return Example(("the was", text), (words[0],), "", 0, answer_start=0)
    if kind == "choice":  # two to four choices
        choices = [" ".join(rng.choice(WORDS, size=3)) for _ in range(rng.integers(2, 5))]
        return Example((text, *choices), str(rng.integers(len(choices))), "", 0)
    if kind == "multilabel":
        return Example((text,), tuple(w for w in LABELS[kind] if w in words), "", 0)
    gold: Any = float(rng.integers(0, 6)) if kind == "regress" else LABELS[kind][len(words) % 2]
    texts = (text, " ".join(words[::-1])) if kind == "pairs" else (text,)
    return Example(texts, gold, "", 0)


def splits(kind: str) -> Splits:
    rng = np.random.default_rng(0)
    parts = [[example(kind, rng) for _ in range(size)] for size in (32, 8, 8)]
    return Splits(*parts, LABELS.get(kind, []))


def trained(encoder: Encoder, kind: str, config: FinetuneConfig = ONCE) -> Finetuned:
    kept: list[Finetuned] = []
    finetune(encoder, splits(kind), TASKS[kind], config, keep=kept.append)
    return kept[0]


def assert_same_answers(one: Finetuned, other: Finetuned, probes: list[Example]) -> None:
    for guess, known in zip(one.predict(probes), other.predict(probes), strict=True):
        if isinstance(known.answer, float):
            assert guess.answer == pytest.approx(known.answer, abs=1e-4)
        else:
            assert guess.answer == known.answer
            assert guess.confidence == pytest.approx(known.confidence, abs=1e-4)


@pytest.mark.parametrize("kind", list(TASKS))
@pytest.mark.parametrize("model", list(MODELS))
def test_a_class_of_transformers_gives_our_answers(
    model: str, kind: str, tokenizer: Path, tmp_path: Path
) -> None:
    finetuned = trained(random_encoder(MODELS[model], tokenizer, seed=0), kind)
    form = save_model(finetuned, tmp_path)
    assert form.lower().startswith(f"{model}for")
    assert expected_form(model, finetuned.task, finetuned.config) == (form, "")
    probes = splits(kind).test
    prove_model(finetuned, tmp_path, probes)
    assert_same_answers(load_finetuned(tmp_path), finetuned, probes)
    stated = json.loads((tmp_path / "config.json").read_text())
    assert stated["architectures"] == [form]
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    if kind in LABELS:
        assert list(theirs.id2label.values()) == LABELS[kind]
    if kind == "multilabel":
        assert theirs.problem_type == "multi_label_classification"
    transformers.AutoTokenizer.from_pretrained(tmp_path)


def test_texts_are_split_as_in_training(tokenizer: Path, tmp_path: Path) -> None:
    """A folder that does not say how texts are split is older and split them at punctuation."""
    words = {"addresses": ["@good", "film", "."], "punctuation": ["@", "good", "film", "."]}
    for reader, asked, rule in (
        ("spans", "addresses", "addresses"),
        ("spans", "punctuation", "punctuation"),
        ("conll", "addresses", "punctuation"),  # its words came from the file
    ):
        task = replace(TASKS["tag"], reader=reader, word_split=asked)
        encoder = random_encoder(BERT, tokenizer, seed=0)
        folder = tmp_path / reader / rule
        folder.mkdir(parents=True)
        save_model(build(encoder, TagAnswers(LABELS["tag"]), task, ONCE), folder)
        assert ("word_split" in (folder / "finetuned.json").read_text()) == (rule == "addresses")
        again = load_finetuned(folder)
        assert again.task.text_rule == rule
        [tags] = FinetunedModel(again, folder).predict(["@good film."])
        assert isinstance(tags, Tags) and tags.words == words[rule]


OTHERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mean": ("bert", "classify", {"pooling": "mean"}),
    "first": ("bert", "classify", {"pooling": "first"}),
    "separate": ("bert", "pairs", {"pair_encoding": "separate"}),
    "mix": ("bert", "classify", {"layers": "mix", "mode": "frozen"}),
    "bilstm_crf": ("bert", "tag", {"head": "bilstm", "crf": True}),
    "modern_frozen": ("modernbert", "tag", {"mode": "frozen"}),
    "elmo": ("elmo", "tag", {}),
    "elmo_regress": ("elmo", "regress", {}),
    "vectors": ("vectors", "classify", {}),
    "several": ("several", "tag", {"head": "bigru"}),
    "choice_mean": ("bert", "choice", {"pooling": "mean"}),
    "choice_elmo": ("elmo", "choice", {}),
    "choice_separate": ("bert", "choice", {"pair_encoding": "separate"}),
}


def other_encoder(name: str, tokenizer: Path, words: Path) -> Encoder:
    if name in MODELS:
        return random_encoder(MODELS[name], tokenizer, seed=0)
    if name == "elmo":
        config = ElmoConfig(cell=24, projection=8, character_dim=5, filters=[[1, 4], [2, 6]])
        return random_encoder(config, words, seed=0)
    if name == "vectors":
        rng = np.random.default_rng(1)
        table = rng.normal(size=(len(WORDS) - 1, 5)).astype(np.float32)
        return StaticEncoder(VectorTable(WORDS[1:], table))
    members = [other_encoder(each, tokenizer, words) for each in ("bert", "vectors")]
    return Concatenation(members)


@pytest.mark.parametrize("case", list(OTHERS))
def test_what_no_class_expresses_has_a_form_of_ours(
    case: str, tokenizer: Path, tmp_path: Path
) -> None:
    name, kind, changed = OTHERS[case]
    config = replace(ONCE, **changed)
    folder = tmp_path / "model"
    folder.mkdir()
    finetuned = trained(other_encoder(name, tokenizer, tmp_path), kind, config)
    assert save_model(finetuned, folder) == "sesame"
    foreseen, reason = expected_form(
        name if name in MODELS else None, finetuned.task, finetuned.config
    )
    assert foreseen == "sesame" and reason
    prove_model(finetuned, folder, splits(kind).test)
    assert_same_answers(load_finetuned(folder), finetuned, splits(kind).test)
    assert isinstance(load_encoder(folder), Encoder), "a model is an encoder too"
    assert not list(folder.rglob("*.bin")) and not list(folder.rglob("*.pt"))


def test_a_regression_gives_numbers_of_the_gold_scale_in_plain_transformers(
    tokenizer: Path, tmp_path: Path
) -> None:
    finetuned = trained(random_encoder(BERT, tokenizer, seed=0), "regress")
    save_model(finetuned, tmp_path)
    probes = splits("regress").test
    again = load_finetuned(tmp_path)
    numbers = class_logits(again, tmp_path, probes)[:, 0].clip(0, 5)
    told = [guess.answer for guess in finetuned.predict(probes)]
    np.testing.assert_allclose(numbers, told, atol=1e-4)


def test_numbers_stay_within_the_range_of_the_training_examples(tokenizer: Path) -> None:
    finetuned = trained(random_encoder(BERT, tokenizer, seed=0), "regress")
    gold = [each.gold for each in splits("regress").train]
    outputs = np.array([[-99.0], [99.0]], np.float32)
    low, high = finetuned.answers.decode(outputs, None)  # type: ignore[arg-type]
    assert (low.answer, high.answer) == (min(gold), max(gold))


def test_ten_steps_equal_those_of_bert_for_sequence_classification(
    tokenizer: Path, tmp_path: Path
) -> None:
    """The same weights, batches and optimizer; dropout would draw other numbers."""
    plain = replace(BERT, dropout=0.0, attention_dropout=0.0)
    config = replace(ONCE, dropout=0.0, lr=1e-3, clip=1.0, warmup=0.0, weight_decay=0.01)
    data, task = splits("classify"), TASKS["classify"]
    encoder = random_encoder(plain, tokenizer, seed=0)
    torch.manual_seed(0)
    ours = build(encoder, make_answers(task, data.labels, data.train), task, config)
    save_model(ours, tmp_path)
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path).train()
    optimizer = Optimizer(ours.model.encoder, ours.model.head, config, total=10)
    decays = {
        True: [p for p in theirs.parameters() if p.ndim > 1],
        False: [p for p in theirs.parameters() if p.ndim == 1],
    }
    peer = torch.optim.AdamW(
        [{"params": p, "weight_decay": 0.01 * is_decayed} for is_decayed, p in decays.items()]
    )
    encoded = ours.answers.encode(encoder, data.train, 40)
    ours.model.train()
    for step in range(10):
        rows = np.arange(8) + 8 * (step % 4)
        loss, _, _ = train_step(ours.model, encoded, rows, optimizer, step)
        rate = config.lr * (10 - step) / 10
        for group in peer.param_groups:
            group["lr"] = rate
        batch, gold = encoded.batch(rows)
        padded = torch.nn.utils.rnn.pad_sequence(
            list(batch.tokens_N.split(batch.lengths.tolist())), batch_first=True
        )
        told = theirs(padded, attention_mask=(padded != 0).long(), labels=gold)
        told.loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        peer.step()
        peer.zero_grad()
        assert loss == pytest.approx(told.loss.item(), abs=1e-5)
    save_model(ours, tmp_path)
    again = transformers.BertForSequenceClassification.from_pretrained(tmp_path)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_the_pooler_is_the_default_where_an_encoder_has_one(tokenizer: Path) -> None:
    def pooling(name: str, **changed: Any) -> str:
        encoder = other_encoder(name, tokenizer, tokenizer)
        return Head("classify", 2, encoder, replace(ONCE, **changed)).pooling

    assert [pooling(name) for name in MODELS] == ["pooler"] * 3
    assert pooling("vectors") == "mean"
    assert pooling("bert", mode="frozen") == pooling("bert", head="bilstm") == "mean"
    assert pooling("bert", pooling="max") == "max"
    with pytest.raises(UsageError, match=r"finetune\.pooling=pooler: needs a BERT"):
        pooling("vectors", pooling="pooler")


@pytest.mark.parametrize("fault", ["missing", "format", "labels", "weights", "task"])
def test_a_damaged_folder_is_named(fault: str, tokenizer: Path, tmp_path: Path) -> None:
    finetuned = trained(random_encoder(BERT, tokenizer, seed=0), "tag")
    save_model(finetuned, tmp_path)
    path = tmp_path / "finetuned.json"
    content = json.loads(path.read_text())
    if fault == "missing":
        path.unlink()
    elif fault == "format":
        path.write_text(json.dumps(content | {"format": 9}))
    elif fault == "labels":
        path.write_text(json.dumps(content | {"answers": {"labels": ["O"]}}))
    elif fault == "task":
        path.write_text(json.dumps(content | {"task": {}}))
    else:
        (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(SesameError, match=str(tmp_path)):
        load_finetuned(tmp_path)


@pytest.mark.parametrize("name", ["bert", "elmo", "several"])
def test_layers_decay_and_heads_have_their_own_rate_with_every_encoder(
    name: str, tokenizer: Path
) -> None:
    encoder = other_encoder(name, tokenizer, tokenizer)
    config = replace(ONCE, lr=1.0, layer_decay=0.5, head_lr=9.0)
    task = TASKS["tag"]
    model = build(encoder, make_answers(task, LABELS["tag"], []), task, config).model
    groups = parameter_groups(model.encoder, model.head, config)
    peaks = {id(value): group.peak for group in groups for value in group.values}
    blocks = encoder.blocks()
    assert sorted(id(p) for block in blocks for p in block) == sorted(
        id(p) for p in encoder.parameters()
    )
    for above, block in enumerate(reversed(blocks)):
        assert {peaks[id(p)] for p in block} <= {0.5**above}
    assert len(blocks) > 1
    assert {peaks[id(p)] for p in model.head.parameters()} == {9.0}


def test_one_layer_is_chosen_by_its_number(tokenizer: Path) -> None:
    encoder = random_encoder(BERT, tokenizer, seed=0).eval()
    batch = encoder.encode_texts([("good film",)], 32).batch(np.arange(1))
    states = encoder(batch)
    for number in range(3):
        head = Head("tag", 3, encoder, replace(ONCE, layers=str(number)))
        assert head.layers(states) is states[number]
    with pytest.raises(UsageError, match=r"finetune\.layers=3: the encoder has only 2 layers"):
        Head("tag", 3, encoder, replace(ONCE, layers="3"))
    with pytest.raises(UsageError, match=r"finetune\.layers=lost: must be one of"):
        replace(ONCE, layers="lost").check()
