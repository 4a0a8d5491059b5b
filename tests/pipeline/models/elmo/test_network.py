"""ELMo: exact LSTMs, words from characters, honest softmaxes, and windows that read on."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from data_prep.errors import UsageError
from data_prep.tokenizers.characters import character_ids, symbol_counts
from pipeline.data.streams import WordBatch
from pipeline.models.elmo import sampled_softmax
from pipeline.models.elmo.characters import CharacterEncoder
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.lstm import ProjectedLSTM
from pipeline.models.elmo.network import ElmoForPretraining, draw_negatives
from pipeline.models.elmo.objective import NextWords
from pipeline.models.elmo.sampled_softmax import Negatives, WordSoftmax, log_uniform
from pipeline.models.losses import sampled_loss

SMALL = ElmoConfig(
    cell=24, projection=8, character_dim=5, filters=[[1, 4], [2, 6], [4, 10]], samples=20
)
WORDS = ["<S>", "</S>", "a", "of", "naïve", "東京", "supercalifragilistic", "x" * 48, "y" * 99, ""]
VOCAB = 60
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def step_by_step(lstm: ProjectedLSTM, x_TSD: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    outputs = []
    for x_SD in x_TSD:
        i, f, g, o = (x_SD @ lstm.input.T + h @ lstm.recurrent.T + lstm.bias).chunk(4, 1)
        c = (f.sigmoid() * c + i.sigmoid() * g.tanh()).clamp(-lstm.clips[0], lstm.clips[0])
        h = ((o.sigmoid() * c.tanh()) @ lstm.projection.T).clamp(-lstm.clips[1], lstm.clips[1])
        outputs.append(h)
    return torch.stack(outputs), c


@pytest.mark.parametrize("clips", [(0.0, 0.0), (0.3, 0.0), (0.3, 0.1)])
def test_the_lstm_and_its_gradients_are_those_of_single_steps(clips: tuple[float, float]) -> None:
    lstm = ProjectedLSTM(7, 12, 5, *clips).double()
    torch.nn.init.normal_(lstm.bias)
    inputs = [torch.randn(*shape).double() for shape in ((9, 4, 7), (4, 5), (4, 12))]
    wanted = [value.requires_grad_() for value in inputs] + list(lstm.parameters())
    weights = torch.randn(9, 4, 5).double()
    outputs, last, memory = lstm(*inputs)
    expected, expected_memory = step_by_step(lstm, *inputs)
    assert bool((expected.abs() == clips[1]).any()) == bool(clips[1]), "clipping is exercised"
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(last, expected[-1])
    torch.testing.assert_close(memory, expected_memory)
    found = torch.autograd.grad((outputs * weights).sum(), wanted)
    reference = torch.autograd.grad((expected * weights).sum(), wanted)
    for ours, theirs in zip(found, reference, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_without_clipping_the_lstm_is_torchs() -> None:
    lstm = ProjectedLSTM(7, 12, 5, 0, 0)
    inputs = torch.randn(6, 3, 7), torch.randn(3, 5), torch.randn(3, 12)
    for ours, theirs in zip(lstm(*inputs), lstm.fused(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_state_reaches_torchs_kernel_contiguous_as_cudnn_demands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two micro-batches of the streams, with the state that the objective carries."""
    seen: list[bool] = []
    kernel = torch.lstm

    def watched(x: Tensor, state: tuple[Tensor, Tensor], *rest: Any) -> Any:
        seen.extend(tensor.is_contiguous() for tensor in (x, *state))
        return kernel(x, state, *rest)

    monkeypatch.setattr(torch, "lstm", watched)
    monkeypatch.setattr(ProjectedLSTM, "forward", ProjectedLSTM.fused)  # as on a GPU
    model = ElmoForPretraining(SMALL, VOCAB)
    objective = NextWords(SMALL, VOCAB, streams=4, seed=0)
    for step in range(2):
        objective.begin(step, CPU)
        for half in (slice(0, 2), slice(2, 4)):
            objective.losses(model, replace(streams(2, 5), streams=half))
        objective.end(accepted=True)
    assert len(seen) == 2 * 2 * 2 * SMALL.layers * 3  # steps, halves, directions, layers, tensors
    assert all(seen)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_leaving_out_padding_changes_no_word(activation: str) -> None:
    encoder = CharacterEncoder(replace(SMALL, activation=activation, filters=[[1, 4], [7, 9]]))
    torch.nn.init.normal_(encoder.highways[0].gate.bias)
    characters_UC = torch.from_numpy(character_ids(WORDS).astype(np.int32))
    x_UEC = encoder.embedding(characters_UC).transpose(1, 2)
    x_UF = torch.cat([layer(x_UEC).amax(2) for layer in encoder.convolutions], 1)
    x_UF = x_UF.relu() if activation == "relu" else x_UF.tanh()
    for highway in encoder.highways:
        gate = highway.gate(x_UF).sigmoid()
        x_UF = gate * highway.transform(x_UF).relu() + (1 - gate) * x_UF
    expected = encoder.projection(x_UF)
    symbols = symbol_counts(characters_UC.numpy())
    torch.testing.assert_close(encoder(characters_UC, symbols), expected)
    alone = torch.cat([encoder(word[None], symbols[[n]]) for n, word in enumerate(characters_UC)])
    torch.testing.assert_close(alone, expected)


def test_drawn_words_are_distinct_and_as_frequent_as_their_expected_count() -> None:
    seen, expected = torch.zeros(VOCAB), torch.zeros(VOCAB, dtype=torch.float64)
    words_V, rounds = torch.arange(VOCAB), 3000
    for seed in range(rounds):
        negatives = Negatives.draw(20, VOCAB, seed, CPU)
        assert len(negatives.words_K.unique()) == 20
        seen[negatives.words_K] += 1 / rounds
        expected += negatives.log_counts(words_V, VOCAB).exp() / rounds
    # A frequency of 3,000 draws deviates by at most 0.5 / sqrt(3000) = 0.009.
    assert (seen - expected).abs().max() < 0.04
    assert log_uniform(words_V, VOCAB).sum() == pytest.approx(1)


def test_single_precision_is_enough_where_a_device_has_no_doubles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words_V = torch.arange(800_000)
    negatives = Negatives(words_V[:5], torch.tensor(9000.0))
    expected = negatives.log_counts(words_V, len(words_V))
    assert sampled_softmax.widest(torch.device("mps")) == torch.float32
    monkeypatch.setattr(sampled_softmax, "widest", lambda device: torch.float32)
    found = negatives.log_counts(words_V, len(words_V))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert len(Negatives.draw(500, 800_000, 0, CPU).words_K.unique()) == 500


def test_drawn_words_weighted_by_their_expected_counts_stand_for_the_whole_vocabulary() -> None:
    """Over a sample, the sum of 1 / q is V in the mean: a wrong correction would show here."""
    draws = (Negatives.draw(20, VOCAB, seed, CPU) for seed in range(3000))
    sums = torch.stack([torch.exp(-each.log_counts(each.words_K, VOCAB)).sum() for each in draws])
    error = float(sums.std()) / len(sums) ** 0.5
    assert error < 0.01 * VOCAB  # so that a correction that is 7 % wrong deviates by 7 errors
    assert float(sums.mean()) == pytest.approx(VOCAB, abs=4 * error)


def test_a_sample_follows_from_its_seed() -> None:
    first, again, other = (Negatives.draw(20, VOCAB, seed, CPU) for seed in (1, 1, 2))
    assert torch.equal(first.words_K, again.words_K) and first.time == again.time
    assert not torch.equal(first.words_K, other.words_K)


def test_the_sampled_loss_and_its_gradients_are_those_of_all_logits() -> None:
    """700 predictions are more than one chunk; some predict a sampled word."""
    softmax, (words_K, size) = WordSoftmax(VOCAB, 8), (torch.randperm(VOCAB)[:20], VOCAB)
    negatives = Negatives(words_K, torch.tensor(30.0).double())
    xs = [torch.randn(700, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)]
    targets = [torch.randint(VOCAB, (700,)), torch.randint(VOCAB, (3,))]
    wanted = [*xs, softmax.weight, softmax.bias]
    torch.nn.init.normal_(softmax.bias)
    losses = softmax(xs, targets, negatives)
    for number, (x_MP, targets_M) in enumerate(zip(xs, targets, strict=True)):
        logits_MV = x_MP @ softmax.weight.T + softmax.bias
        logits_MV = logits_MV - negatives.log_counts(torch.arange(size), size)
        competes_MV = torch.zeros(len(x_MP), size, dtype=torch.bool)
        competes_MV[:, words_K] = True
        competes_MV[torch.arange(len(x_MP)), targets_M] = True
        logits_MV = logits_MV.masked_fill(~competes_MV, -math.inf)
        expected = F.cross_entropy(logits_MV, targets_M, reduction="sum")
        torch.testing.assert_close(losses[number], expected, rtol=1e-5, atol=1e-4)
        found = torch.autograd.grad(losses[number], wanted, retain_graph=True, allow_unused=True)
        reference = torch.autograd.grad(expected, wanted, allow_unused=True)
        for ours, theirs in zip(found, reference, strict=True):
            if theirs is None:
                assert ours is None or not ours.any()
            else:
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_sampled_loss_is_the_same_away_from_the_host() -> None:
    """Where precisions are mixed, a plain form is used."""
    parts = [torch.randn(*shape) for shape in ((5, 8), (20, 8), (20,), (5, 8), (5,))]
    hits = torch.rand(5, 20) < 0.1
    with torch.autocast("cpu", torch.bfloat16, enabled=True):
        mixed = sampled_loss(*parts, hits)
    torch.testing.assert_close(sampled_loss(*parts, hits), mixed, rtol=0.02, atol=0.02)


def test_evaluation_is_exact_over_the_whole_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.models.elmo.sampled_softmax.ROWS", 7)
    monkeypatch.setattr("pipeline.models.elmo.sampled_softmax.WORDS", 11)
    softmax = WordSoftmax(VOCAB, 8)
    x_MP, targets_M = torch.randn(30, 8), torch.randint(VOCAB, (30,))
    expected = F.cross_entropy(
        F.linear(x_MP, softmax.weight, softmax.bias), targets_M, reduction="sum"
    )
    trained = softmax([x_MP], [targets_M], None)[0]
    with torch.no_grad():
        evaluated = softmax([x_MP], [targets_M], None)[0]
    torch.testing.assert_close(evaluated, expected)
    torch.testing.assert_close(trained, expected)


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple | list) else [result]:
            if isinstance(made, Tensor) and made._base is None and not func.is_view:
                self.elements = max(self.elements, made.numel())
        return result


@pytest.mark.parametrize("vocab", [2_000, 20_000])
def test_no_tensor_of_an_evaluation_grows_with_the_vocabulary(
    monkeypatch: pytest.MonkeyPatch, vocab: int
) -> None:
    monkeypatch.setattr("pipeline.models.elmo.sampled_softmax.ROWS", 7)
    monkeypatch.setattr("pipeline.models.elmo.sampled_softmax.WORDS", 50)
    softmax = WordSoftmax(vocab, 8)
    x_MP, targets_M = torch.randn(30, 8), torch.randint(vocab, (30,))
    with torch.no_grad(), Largest() as largest:
        softmax([x_MP], [targets_M], None)
    assert largest.elements == 7 * 50


def streams(streams: int, words: int, seed: int = 0) -> WordBatch:
    """Windows of a made-up text in both directions."""
    random = np.random.default_rng(seed)

    def draw(below: int) -> Tensor:
        return torch.from_numpy(random.integers(0, below, (streams, words)))

    characters = character_ids(WORDS)
    characters_UC = torch.from_numpy(characters.astype(np.int32))
    symbols = symbol_counts(characters)
    indices = draw(len(WORDS)), draw(len(WORDS))
    return WordBatch(characters_UC, *indices, draw(VOCAB), draw(VOCAB), slice(0, streams), symbols)


def window(batch: WordBatch, start: int, stop: int) -> WordBatch:
    names = ("forward_index_ST", "backward_index_ST", "forward_targets_ST", "backward_targets_ST")
    return replace(batch, **{name: getattr(batch, name)[:, start:stop] for name in names})


def test_windows_with_carried_state_read_what_one_long_pass_reads() -> None:
    model = ElmoForPretraining(SMALL, VOCAB).eval()
    batch = streams(3, 23)
    with torch.no_grad():
        whole, last = model(batch, None, None)
        state, sums = None, torch.zeros(2)
        for start in range(0, 23, 5):
            losses, state = model(window(batch, start, start + 5), state, None)
            sums += torch.stack(losses)
        fresh = model(window(batch, 5, 10), None, None)[0]
        carried = model(window(batch, 5, 10), model(window(batch, 0, 5), None, None)[1], None)[0]
    torch.testing.assert_close(sums, torch.stack(whole))
    torch.testing.assert_close(state, last)
    for alone, after in zip(fresh, carried, strict=True):
        assert abs(alone - after) > 1e-4, "the state matters, in both directions"


def test_no_gradient_leaves_a_window_and_every_parameter_learns() -> None:
    model = ElmoForPretraining(SMALL, VOCAB)
    batch = streams(4, 20)
    _, state = model(batch, None, None)
    assert not state.requires_grad
    losses, _ = model(batch, state, draw_negatives(SMALL, VOCAB, 0, CPU))
    (losses.forward_sum + losses.backward_sum).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []
    assert not model.elmo.characters.embedding.weight.grad[0].any()


def test_the_directions_share_nothing_but_words_and_softmax() -> None:
    model = ElmoForPretraining(SMALL, VOCAB)
    losses, _ = model(streams(2, 6), None, None)
    forward, backward = model.elmo.directions
    gradients = torch.autograd.grad(
        losses.forward_sum, [*forward.parameters(), *backward.parameters()], allow_unused=True
    )
    half = len(list(forward.parameters()))
    assert all(gradient is not None for gradient in gradients[:half])
    assert all(gradient is None for gradient in gradients[half:])


def test_small_vocabularies_are_not_sampled() -> None:
    assert draw_negatives(replace(SMALL, samples=0), VOCAB, 0, CPU) is None
    assert draw_negatives(replace(SMALL, samples=VOCAB), VOCAB, 0, CPU) is None
    assert draw_negatives(SMALL, VOCAB, 0, CPU) is not None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"projection": 24}, r"model\.projection=24: must be less than model\.cell=24"),
        ({"filters": [[51, 4]]}, r"model\.filters: \[51, 4\] .* model\.max_characters=50"),
        ({"filters": [[3]]}, r"model\.filters: \[3\] is no pair"),
        ({"filters": []}, r"model\.filters=\[\]"),
    ],
)
def test_impossible_sizes_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        replace(SMALL, **change).check()
