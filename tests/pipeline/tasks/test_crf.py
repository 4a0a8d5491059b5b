"""The CRF against brute force: every tagging of short sentences written out and summed."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.tasks.crf import Crf, may_follow, to_padded

LENGTHS = np.array([4, 1, 5, 2])
TAGS = 3


@pytest.fixture(params=range(4))
def case(request: pytest.FixtureRequest) -> tuple[Crf, Tensor]:
    """A CRF with random numbers, and logits."""
    torch.manual_seed(request.param)
    crf = Crf(TAGS).double()
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_(std=2)
    return crf, torch.randn(int(LENGTHS.sum()), TAGS, dtype=torch.float64, requires_grad=True)


def sentences(flat: Tensor) -> tuple[Tensor, ...]:
    return flat.split(LENGTHS.tolist())


def scores(crf: Crf, logits_TC: Tensor) -> dict[tuple[int, ...], Tensor]:
    """The score of every tagging of one sentence."""
    found = {}
    for tags in product(range(TAGS), repeat=len(logits_TC)):
        score = crf.begins[tags[0]] + crf.ends[tags[-1]]
        score = score + sum(logits_TC[word, tag] for word, tag in enumerate(tags))
        found[tags] = score + sum(crf.follows[a, b] for a, b in pairwise(tags))
    return found


def test_the_loss_and_its_gradient_are_those_of_all_taggings(case: tuple[Crf, Tensor]) -> None:
    crf, logits_WC = case
    gold_W = torch.randint(0, TAGS, (len(logits_WC),), generator=torch.Generator().manual_seed(9))
    loss = crf.loss(logits_WC, gold_W, LENGTHS) / len(gold_W)
    expected = torch.zeros((), dtype=torch.float64)
    for part, gold in zip(sentences(logits_WC), sentences(gold_W), strict=True):
        every = scores(crf, part)
        expected += torch.stack(list(every.values())).logsumexp(0) - every[tuple(gold.tolist())]
    expected = expected / len(gold_W)
    torch.testing.assert_close(loss, expected)
    inputs = [logits_WC, *crf.parameters()]
    ours = torch.autograd.grad(loss, inputs)
    theirs = torch.autograd.grad(expected, inputs)
    torch.testing.assert_close(ours, theirs)


def test_the_best_tagging_is_decided_and_its_tags_have_their_own_probability(
    case: tuple[Crf, Tensor],
) -> None:
    crf, logits_WC = case
    with torch.no_grad():
        decided = crf.decide(logits_WC, LENGTHS)
        for part, own in zip(sentences(logits_WC), sentences(decided), strict=True):
            every = scores(crf, part)
            best = max(every, key=lambda tags: every[tags].item())
            assert tuple(own[:, -1].long().tolist()) == best
            total = torch.stack(list(every.values())).logsumexp(0)
            for word, tag in enumerate(best):
                with_tag = [score for tags, score in every.items() if tags[word] == tag]
                probability = (torch.stack(with_tag).logsumexp(0) - total).item()
                assert own[word, tag].item() == pytest.approx(probability, abs=1e-9)
            torch.testing.assert_close(own[:, :TAGS].exp().sum(1), torch.ones_like(own[:, 0]))


def test_laying_out_and_back_is_nothing() -> None:
    x = torch.arange(12.0)
    padded, real = to_padded(x, LENGTHS)
    assert padded.shape == (4, 5)
    assert torch.equal(padded[real], x)


def test_what_is_no_bio_tagging_is_never_chosen_and_has_no_probability() -> None:
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    torch.manual_seed(0)
    crf = Crf(len(labels), labels)
    logits_WC = 5 * torch.randn(400, len(labels))
    lengths = np.full(40, 10)
    decided = crf.decide(logits_WC, lengths)
    tags = [labels[tag] for tag in decided[:, -1].long().tolist()]
    assert "I-X" in tags and "I-Y" in tags
    for start in range(0, len(tags), 10):
        for last, tag in pairwise(tags[start : start + 10]):
            assert not tag.startswith("I-") or last[1:] == tag[1:]
    # An input may be the rest of a sentence that was cut within an entity.
    assert any(tags[start].startswith("I-") for start in range(0, len(tags), 10))
    loss = crf.loss(logits_WC, decided[:, -1].long(), lengths) / len(decided)
    assert torch.isfinite(loss) and loss < 100
    assert may_follow("I", "O") and may_follow("NOUN", "I-X") and not may_follow("I-X", "B-Y")
