"""Which GPU a device name means; a name that is not in the table means none."""

import pytest

from pipeline.training.gpus import recognise

KNOWN = {
    "NVIDIA A100-SXM4-40GB": "A100-40",
    "A100-SXM4-40GB": "A100-40",  # older drivers leave the maker's name out
    "NVIDIA A100-PCIE-40GB": "A100-40",
    "NVIDIA A100-SXM4-80GB": "A100-80",
    "NVIDIA A100 80GB PCIe": "A100-80",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100-PCIe",
    "NVIDIA H200": "H200",
    "NVIDIA L40S": "L40S",
    "NVIDIA L4": "L4",
    "NVIDIA GeForce RTX 4090": "RTX-4090",
}
# Each has another peak than the GPU whose name its own contains, or is not in the table at all.
UNKNOWN = (
    "NVIDIA L40",
    "NVIDIA L40G",
    "NVIDIA H100 NVL",
    "NVIDIA H200 NVL",
    "NVIDIA GH200 480GB",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "NVIDIA A10",
    "NVIDIA A10G",
    "NVIDIA RTX A4000",
    "Quadro RTX 4000",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "",
)


@pytest.mark.parametrize(("device", "name"), KNOWN.items())
def test_a_known_device_is_recognised(device: str, name: str) -> None:
    found = recognise(device)
    assert found is not None and found.name == name


def test_the_pcie_card_has_a_peak_of_its_own() -> None:
    card, module = recognise("NVIDIA H100 PCIe"), recognise("NVIDIA H100 80GB HBM3")
    assert card is not None and module is not None
    assert (card.bf16, module.bf16) == (756e12, 989e12)


@pytest.mark.parametrize("device", UNKNOWN)
def test_an_unknown_device_is_not_taken_for_another(device: str) -> None:
    assert recognise(device) is None
