"""Heads on flat hidden states do what they would do on each input alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from data_prep.errors import UsageError
from pipeline.encoders import Encoder, InputBatch
from pipeline.encoders.pooling import pool, reduce_runs, scatter_runs
from pipeline.tasks.config import FinetuneConfig
from pipeline.tasks.heads import Context, Head, LayerChoice, Standardised

LENGTHS = np.array([3, 1, 7])


def states(layers: int = 5, width: int = 8) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(int(LENGTHS.sum()), width, generator=generator) for _ in range(layers + 1)]


def batch(word_starts: list[int], word_counts: list[int]) -> InputBatch:
    units = torch.arange(int(LENGTHS.sum()))
    starts = torch.tensor(word_starts, dtype=torch.int64)
    return InputBatch(units, units, units, LENGTHS, LENGTHS, starts, np.array(word_counts))


class States(Encoder):
    """An encoder in name only: heads ask it for its shape."""

    hidden, states = 8, 6
    encode_texts = encode_words = forward = None


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("embeddings", lambda x: x[0]),
        ("last", lambda x: x[5]),
        ("second_to_last", lambda x: x[4]),
        ("sum_last_4", lambda x: x[2] + x[3] + x[4] + x[5]),
        ("concat_last_4", lambda x: torch.cat([x[2], x[3], x[4], x[5]], dim=1)),
        ("sum_all", lambda x: x[1] + x[2] + x[3] + x[4] + x[5]),
        ("mix", lambda x: sum(x) / 6),
    ],
)
def test_layer_choices(choice: str, expected) -> None:
    layers = LayerChoice(choice, states=6, hidden=8)
    chosen = layers(states())
    torch.testing.assert_close(chosen, expected(states()))
    assert chosen.shape[1] == layers.width


def test_mix_weighs_by_softmax_and_gamma() -> None:
    mix = LayerChoice("mix", states=6, hidden=8)
    with torch.no_grad():
        mix.weights[2] = 50.0
        mix.gamma.fill_(3.0)
    torch.testing.assert_close(mix(states()), 3 * states()[2])


def test_four_layers_need_four_layers() -> None:
    with pytest.raises(UsageError, match=r"finetune\.layers=sum_last_4: .* only 2 layers"):
        LayerChoice("sum_last_4", states=3, hidden=8)
    for choice in ("second_to_last", "sum_all"):  # of static vectors
        with pytest.raises(UsageError, match=rf"finetune\.layers={choice}: .* only 0 layers"):
            LayerChoice(choice, states=1, hidden=8)


@pytest.mark.parametrize("how", ["mean", "first", "max"])
def test_pooling_equals_each_input_alone(how: str) -> None:
    x_ND = states()[0]
    alone = {"mean": lambda x: x.mean(0), "first": lambda x: x[0], "max": lambda x: x.max(0).values}
    expected = [alone[how](part) for part in x_ND.split(LENGTHS.tolist())]
    torch.testing.assert_close(pool(x_ND, LENGTHS, how), torch.stack(expected))


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_runs_are_reduced_alike_where_torch_has_no_segment_reduce(how: str) -> None:
    x_ND, lengths_E = states()[0].requires_grad_(), torch.from_numpy(LENGTHS)
    found = [reduce(x_ND, lengths_E, how) for reduce in (reduce_runs, scatter_runs)]
    torch.testing.assert_close(*found)
    weights = torch.arange(24.0).reshape(3, 8)
    gradients = [torch.autograd.grad((x * weights).sum(), x_ND)[0] for x in found]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", ["bilstm", "bigru"])
def test_recurrent_layers_see_each_input_alone(kind: str) -> None:
    context, x_ND = Context(kind, 8, 5), states()[0]
    alone = [context.cells(part)[0] for part in x_ND.split(LENGTHS.tolist())]
    torch.testing.assert_close(context(x_ND, LENGTHS), torch.cat(alone))


def test_sentences_that_do_not_see_each_other_are_compared() -> None:
    head = Head("regress", 1, States(), FinetuneConfig(), separate=True).eval()
    inputs = replace(batch([], [0, 0, 0]), second=np.array([1, 1, 3]), lengths=np.array([3, 2, 6]))
    x = states()
    compared = []
    for first, second, end in ((0, 1, 3), (3, 4, 5), (5, 8, 11)):
        u, v = x[-1][first:second].mean(0), x[-1][second:end].mean(0)
        alike = F.cosine_similarity(u, v, dim=0)[None]
        features = torch.cat([u, v, (u - v).abs(), u * v])
        compared.append(torch.cat([features / len(features) ** 0.5, alike]))
    assert head.alike is not None
    head.alike.square += 1  # with a mean of 0 and a deviation of 1 numbers stay as they are
    torch.testing.assert_close(head(x, inputs), head.output(torch.stack(compared)))


def test_numbers_are_standardised_by_all_that_was_trained_on() -> None:
    x = torch.randn(50) * 3 + 7
    standardised = Standardised()
    for part in x.split([1, 16, 33]):
        standardised(part)
    standardised.eval()
    torch.testing.assert_close(standardised(x), (x - x.mean()) / x.std(correction=0))
    before = standardised.mean.clone()
    standardised(x + 1)
    assert standardised.mean == before


def test_a_batch_that_does_not_count_changes_no_moment() -> None:
    standardised = Standardised()
    standardised(torch.tensor([0.1, 0.5]))
    before = {name: value.clone() for name, value in standardised.state_dict().items()}
    standardised(torch.tensor([0.9, 0.9, 0.9]), is_counted=False)
    assert standardised.state_dict() == before


def test_a_batch_whose_step_is_dropped_spoils_no_moment() -> None:
    """Both loops go on after some steps whose loss is not finite."""
    standardised = Standardised()
    standardised(torch.tensor([float("nan"), 0.5]))
    assert standardised.count == 0 and standardised.mean == 0
    expected = Standardised()
    numbers = torch.tensor([0.1, 0.5])
    assert torch.equal(standardised(numbers), expected(numbers))
    standardised(torch.tensor([float("nan"), 0.5]))
    assert standardised.state_dict() == expected.state_dict()


def test_a_number_about_a_pair_begins_as_how_alike_they_are() -> None:
    head = Head("regress", 1, States(), FinetuneConfig(dropout=0.0), separate=True)
    inputs = replace(batch([], [0, 0, 0]), second=np.array([1, 1, 3]), lengths=np.array([3, 2, 6]))
    x = states()
    x[-1][1:3] = x[-1][0]  # both sentences of the first pair are the same
    assert head(x, inputs)[:, 0].argmax() == 0


@pytest.mark.parametrize("kind", ["linear", "bilstm"])
def test_tagging_sees_first_units_of_words_only(kind: str) -> None:
    head = Head("tag", 4, States(), FinetuneConfig(head=kind)).eval()
    words = [1, 2, 3, 5, 9]
    inputs, x = batch(words, [2, 1, 2]), states()
    before = head(x, inputs)
    assert before.shape == (5, 4)
    others = [unit for unit in range(11) if unit not in words]
    x[-1][others] += 1
    torch.testing.assert_close(head(x, inputs), before)
    x[-1][words[0]] += 1
    changed = (head(x, inputs) != before).any(1)
    assert changed.tolist() == ([True, True] if kind == "bilstm" else [True, False]) + [False] * 3


@pytest.mark.parametrize("kind", ["linear", "bilstm"])
@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_sentences_get_one_answer_each(kind: str, pooling: str) -> None:
    head = Head("classify", 3, States(), FinetuneConfig(head=kind, pooling=pooling))
    assert head(states(), batch([], [0, 0, 0])).shape == (3, 3)


def test_losses() -> None:
    config = FinetuneConfig()
    inputs = batch([], [0, 0, 0])
    numbers = Head("regress", 1, States(), config).loss(
        torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 3.0]), inputs
    )
    assert numbers.item() == pytest.approx(0.5)
    classes = Head("classify", 2, States(), config).loss(
        torch.zeros(3, 2), torch.tensor([0, 1, 1]), inputs
    )
    assert classes.item() == pytest.approx(np.log(2))


def test_spans_are_chosen_among_the_units_of_their_own_window() -> None:
    head = Head("span", 2, States(), FinetuneConfig())
    inputs = batch([], [0, 0, 0])
    logits_N2 = 30 * torch.randn(11, 2, generator=torch.Generator().manual_seed(1))
    logits_N2.requires_grad_()
    starts, ends = [1, 0, 2], [2, 0, 2]
    gold_N2 = torch.zeros(11, 2)
    for first, start, end in zip([0, 3, 4], starts, ends, strict=True):
        gold_N2[first + start, 0] = gold_N2[first + end, 1] = 1
    loss = head.loss(logits_N2, gold_N2, inputs)
    parts = logits_N2.split(LENGTHS.tolist())
    alone = [
        torch.nn.functional.cross_entropy(part.T, torch.tensor([start, end]))
        for part, start, end in zip(parts, starts, ends, strict=True)
    ]
    torch.testing.assert_close(loss, torch.stack(alone).mean())
    (gradient,) = torch.autograd.grad(loss, logits_N2, retain_graph=True)
    (expected,) = torch.autograd.grad(torch.stack(alone).mean(), logits_N2)
    torch.testing.assert_close(gradient, expected)
    assert head(states(), inputs).shape == (11, 2)


KINDS = {"classify": 3, "regress": 1, "tag": 3, "span": 2}  # kind to columns


@pytest.mark.parametrize(("kind", "crf"), [*((kind, False) for kind in KINDS), ("tag", True)])
def test_the_loss_of_a_batch_is_that_of_its_parts(kind: str, crf: bool) -> None:
    head = Head(kind, KINDS[kind], States(), FinetuneConfig(crf=crf))
    sizes = [3, 1, 7] if kind in ("tag", "span") else [1, 1, 1]
    whole = batch(list(range(11)), [3, 1, 7])
    answers = torch.randn(sum(sizes), KINDS[kind], generator=torch.Generator().manual_seed(3))
    gold = torch.arange(sum(sizes)) % KINDS[kind]
    if kind == "regress":
        gold = gold.float()
    if kind == "span":
        gold = torch.zeros(sum(sizes), 2)
        gold[[0, 3, 5], 0] = gold[[1, 3, 8], 1] = 1
    parts = [
        head.loss_sums(part, golds, replace(whole, lengths=length, word_counts=length))
        for part, golds, length in zip(
            answers.split(sizes), gold.split(sizes), np.split(LENGTHS, 3), strict=True
        )
    ]
    total, weight = (sum(column) for column in zip(*parts, strict=True))
    torch.testing.assert_close(head.loss(answers, gold, whole), total / weight)
    assert weight == head.loss_weight(gold, whole)


def test_the_mean_loss_has_the_bits_of_torchs() -> None:
    logits = torch.randn(32, 3, generator=torch.Generator().manual_seed(3), requires_grad=True)
    gold, inputs = torch.arange(32) % 3, batch([], [0, 0, 0])
    ours = Head("classify", 3, States(), FinetuneConfig()).loss(logits, gold, inputs)
    theirs = F.cross_entropy(logits, gold)
    assert ours.item() == theirs.item()
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (ours, theirs)]
    assert torch.equal(*gradients)
