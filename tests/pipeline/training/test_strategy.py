"""Engines, as far as they can be tested without their devices."""

from datetime import timedelta

import pytest

from pipeline.training.strategy import make_engine


@pytest.mark.parametrize(("accelerator", "index"), [("cuda", 0), ("mps", 0), ("cpu", None)])
def test_a_single_rank_names_its_device_with_the_index_lightning_needs(
    accelerator: str, index: int | None
) -> None:
    device = make_engine("single", accelerator, 1.0, timedelta(minutes=1)).root_device
    assert (device.type, device.index) == (accelerator, index)
