"""A table of GPUs with memory, peak speed and price, for `sesame estimate` and for utilisation.

Peaks are the vendor's dense figures: bf16 with fp32 accumulation on tensor cores, and plain fp32,
torch's default (TF32 is off). Prices are on-demand prices per hour of smaller clouds, correct
within a factor of two; set your own with `sesame estimate --price=`.
"""

import re
from dataclasses import dataclass

TERA = 1e12
GIGA = 1e9


@dataclass(frozen=True)
class Gpu:
    """One GPU model."""

    name: str
    known_as: str  # regular expression for CUDA's device name, without "NVIDIA "
    memory: float  # bytes
    bf16: float  # FLOPs per second
    fp32: float  # FLOPs per second
    price: float  # dollars per hour

    def peak(self, precision: str) -> float:
        """Return the peak FLOPs per second for `trainer.precision`."""
        return self.bf16 if precision == "bf16-mixed" else self.fp32


GPUS = (
    Gpu("A100-40", "A100-(SXM4|PCIE)-40GB", 40 * GIGA, 312 * TERA, 19.5 * TERA, 1.3),
    Gpu("A100-80", "A100-SXM4-80GB|A100 80GB PCIe", 80 * GIGA, 312 * TERA, 19.5 * TERA, 1.8),
    Gpu("H100-PCIe", "H100 PCIe", 80 * GIGA, 756 * TERA, 51 * TERA, 2.4),
    Gpu("H100", "H100 80GB HBM3", 80 * GIGA, 989 * TERA, 67 * TERA, 3.0),
    Gpu("H200", "H200", 141 * GIGA, 989 * TERA, 67 * TERA, 3.8),
    Gpu("L40S", "L40S", 48 * GIGA, 362 * TERA, 91.6 * TERA, 1.0),
    Gpu("L4", "L4", 24 * GIGA, 121 * TERA, 30.3 * TERA, 0.7),
    Gpu("RTX-4090", "GeForce RTX 4090", 24 * GIGA, 165 * TERA, 82.6 * TERA, 0.5),
)


def recognise(device_name: str) -> Gpu | None:
    """Return the GPU with this CUDA device name; None if it is not in the table.

    The whole name must match: an L40 is not an L4, and a MIG slice of an A100 is not an A100.
    """
    name = device_name.removeprefix("NVIDIA ")
    return next((gpu for gpu in GPUS if re.fullmatch(gpu.known_as, name)), None)
