"""Our linear layer computes what torch's does, with or without oneDNN."""

import pytest
import torch
from torch import nn

from pipeline.models import linear
from pipeline.models.linear import Linear, uses_onednn


@pytest.mark.parametrize("has_gelu", [True, False])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 16), (37, 16), (3, 5, 16), (0, 16)])
def test_predictions_are_those_of_torch(
    shape: tuple[int, ...], has_bias: bool, has_gelu: bool
) -> None:
    torch.manual_seed(0)
    ours, theirs = Linear(16, 24, has_bias, has_gelu), nn.Linear(16, 24, has_bias)
    theirs.load_state_dict(ours.state_dict())
    after = nn.GELU() if has_gelu else nn.Identity()
    x = torch.randn(shape)
    with torch.inference_mode():
        torch.testing.assert_close(ours(x), after(theirs(x)), rtol=1e-5, atol=1e-6)
        both = ours.double()(x.double()), after(theirs.double()(x.double()))
        torch.testing.assert_close(*both)


def test_gradients_are_those_of_torch() -> None:
    torch.manual_seed(0)
    ours, theirs = Linear(8, 4, has_gelu=True), nn.Linear(8, 4)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 8)
    for layer in (ours, nn.Sequential(theirs, nn.GELU())):
        torch.autograd.backward(layer(x).square().sum())
    assert torch.equal(ours.weight.grad, theirs.weight.grad)


def test_onednn_is_called_in_inference_mode_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.Tensor] = []
    monkeypatch.setattr(linear, "uses_onednn", lambda x: bool(asked.append(x)))
    layer, x = Linear(8, 4), torch.randn(5, 8)
    with torch.no_grad():
        layer(x)
    assert not asked
    with torch.inference_mode():
        layer(x)
    assert len(asked) == 1
    assert not uses_onednn(x.double())
    assert not uses_onednn(x.to("meta"))
