"""GPUs by name: memory, peak speed and a price, for estimates and for utilisation in the logs.

Peaks are the makers' dense figures: bf16 with fp32 sums on tensor cores, and plain fp32, which is
what torch computes with unless TF32 is asked for. Prices are what an hour costs on demand at
smaller clouds, to a factor of two; `sesame estimate --price=` takes yours.
"""

import re
from dataclasses import dataclass

TERA = 1e12
GIGA = 1e9


@dataclass(frozen=True)
class Gpu:
    """One device."""

    name: str
    known_as: str  # a pattern of the whole name that CUDA gives it, without the maker's
    memory: float  # bytes
    bf16: float  # operations a second
    fp32: float
    price: float  # dollars an hour

    def peak(self, precision: str) -> float:
        """Operations a second for `trainer.precision`."""
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
    """The GPU that CUDA calls by this name; None for a name that is not in the table.

    The whole name must match: an L40 is no L4, and a MIG slice of an A100 is no A100.
    """
    name = device_name.removeprefix("NVIDIA ")
    return next((gpu for gpu in GPUS if re.fullmatch(gpu.known_as, name)), None)
