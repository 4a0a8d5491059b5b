"""The device of a fine-tuning."""

import pytest
import torch

from data_prep.errors import UsageError
from pipeline.tasks.device import choose_device


def test_an_accelerator_that_is_not_there_is_a_usage_error() -> None:
    if torch.cuda.is_available():
        assert choose_device("auto").type == "cuda"
    else:
        with pytest.raises(UsageError, match=r"finetune\.accelerator=cuda"):
            choose_device("cuda")
    assert choose_device("cpu").type == "cpu"
