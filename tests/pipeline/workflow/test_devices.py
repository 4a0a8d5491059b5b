"""Fine-tunings beside each other share no CUDA device while there are enough."""

import pytest
import torch

from pipeline.tasks.config import FinetuneConfig
from pipeline.workflow.devices import VISIBLE, divide_devices, visible_devices


@pytest.mark.parametrize(
    ("devices", "each", "processes", "expected"),
    [
        ("0123", 1, 4, ["0", "1", "2", "3"]),
        ("0123", 2, 2, ["0,1", "2,3"]),
        ("012", 2, 2, ["0,1", "0,1"]),
        ("01", 1, 5, ["0", "1", "0", "1", "0"]),
        ("0", 2, 2, ["0", "0"]),
        ("", 1, 2, ["", ""]),
    ],
)
def test_devices_are_divided(devices: str, each: int, processes: int, expected: list[str]) -> None:
    assert divide_devices(list(devices), each, processes) == expected


def test_the_devices_of_a_job_are_kept_and_a_cpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert visible_devices([FinetuneConfig(accelerator="cpu")]) == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv(VISIBLE, raising=False)
    assert visible_devices([FinetuneConfig()]) == ["0", "1"]
    monkeypatch.setenv(VISIBLE, "GPU-4f,6")
    assert visible_devices([FinetuneConfig(accelerator="cuda")]) == ["GPU-4f", "6"]
    assert visible_devices([FinetuneConfig(accelerator="cpu")]) == []
