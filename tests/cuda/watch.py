"""Watches the operations of a step: where tensors live, how they are copied, which kernels run."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipeline.data import device as room

aten = torch.ops.aten
KERNELS = {
    "_flash_attention_forward": "flash",
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_efficient_attention": "sdpa",
    "_scaled_dot_product_cudnn_attention": "sdpa",
    "_safe_softmax": "plain",
    "_softmax": "plain",
    "lstm": "lstm",
    "_cudnn_rnn": "lstm",
}


class Watch(TorchDispatchMode):
    """Counts operations between entering and leaving."""

    def __init__(self) -> None:
        super().__init__()
        self.blocking: Counter[str] = Counter()  # copies for which the host waits
        self.to_host: Counter[str] = Counter()  # copies from the device
        self.host_work: Counter[str] = Counter()  # computations on tensors of the host
        self.kernels: Counter[str] = Counter()
        self.products: Counter[str] = Counter()  # dtypes of matrix products
        self._pinned: set[int] = set()
        self._pin = room._pinned

    def __enter__(self) -> "Watch":
        def note(host: Tensor) -> Tensor:
            self._pinned.add(id(host))
            return host

        room._pinned = note
        return super().__enter__()  # type: ignore[return-value]

    def __exit__(self, *error: Any) -> None:
        room._pinned = self._pin
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        name = func.__name__.partition(".")[0]
        sides = {"given": {t.device.type for t in given}, "made": {t.device.type for t in made}}
        if name in ("_to_copy", "copy_") and {"cpu", "cuda"} <= sides["given"] | sides["made"]:
            self._copy(name, args, kwargs, made)
        elif name in KERNELS:
            self.kernels[KERNELS[name]] += 1
        elif name in ("mm", "addmm", "bmm", "baddbmm"):
            self.products[str(made[0].dtype).removeprefix("torch.")] += 1
        if sides["made"] == {"cpu"} and made[0].numel() > 1 and made[0].is_floating_point():
            self.host_work[name] += 1
        return result

    def _copy(self, name: str, args: Any, kwargs: Any, made: list[Tensor]) -> None:
        source = args[1] if name == "copy_" else args[0]
        what = f"{name} {str(source.dtype).removeprefix('torch.')}{list(source.shape)}"
        if source.device.type == "cuda":
            self.to_host[what] += 1
            return
        is_async = args[2] if name == "copy_" and len(args) > 2 else kwargs.get("non_blocking")
        if not is_async or id(source) not in self._pinned:
            self.blocking[what] += 1

    def report(self) -> dict[str, dict[str, int]]:
        names = ("blocking", "to_host", "host_work", "kernels", "products")
        return {name: dict(getattr(self, name)) for name in names}
