"""Attention inside each example of a flat, unpadded batch: one function, `attend`, on every device.

The rows of a flat batch are the tokens of all examples, concatenated. An `AttentionPlan` is made
once per batch from the examples' lengths and shared by all layers. It is made on the host, so that
no device has to synchronise. It sorts examples by length and cuts them into blocks. A block of
equal lengths is a dense view of the batch, without mask or copy. Only examples of rare lengths
share blocks with padding.

N tokens, E examples, B examples of a block, L its longest, H heads, D width of a head
"""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from pipeline.data.device import send
from pipeline.models.dropout import dropped, random_bits

ALONE = 256  # tokens: examples of one length with fewer in total get no block of their own
SLACK = 8  # most difference of lengths in a padded block; or an eighth of the longest, if more


@dataclass(frozen=True)
class Padding:
    """Layout of a block of unequal lengths as B rows of L slots."""

    slots: Tensor  # [rows of the block] slot number, of B·L, of each row
    mask_B1L: Tensor  # added to attention scores: 0, or -inf at padding


@dataclass(frozen=True)
class Block:
    """Adjacent examples, in the plan's order, that one kernel call processes."""

    start: int  # first row
    end: int  # row after the last
    examples: int  # B
    length: int  # L
    padding: Padding | None  # None: all examples have length L

    def to_padded(self, x: Tensor) -> Tensor:
        """Return the block's part of a batch [N, ...] as [B, L, ...], with zeros at padding."""
        part = x[self.start : self.end]
        if self.padding is not None:
            padded = x.new_zeros(self.examples * self.length, *x.shape[1:])
            part = padded.index_copy_(0, self.padding.slots, part)
        return part.view(self.examples, self.length, *x.shape[1:])

    def from_padded(self, x: Tensor) -> Tensor:
        """Return the rows of [B, L, ...] that are not padding, [rows of the block, ...]."""
        x = x.flatten(0, 1)
        return x if self.padding is None else x.index_select(0, self.padding.slots)

    def write_padded(self, x: Tensor, batch: Tensor) -> None:
        """Copy the rows of `x` [B, L, ...] that are not padding into `batch` [N, ...], in place."""
        part = batch[self.start : self.end]
        if self.padding is None:
            part.view(x.shape).copy_(x)
        else:
            torch.index_select(x.flatten(0, 1), 0, self.padding.slots, out=part)


@dataclass(frozen=True)
class AttentionPlan:
    """The order of a batch's tokens, sorted by length of example, and its blocks."""

    lengths: NDArray[np.int64]  # [E] on the host, descending
    order_N: Tensor | None  # sorted row -> given row; None if the batch is sorted already
    place_N: Tensor | None  # given row -> sorted row; None if the batch is sorted already
    starts_E: Tensor  # sorted row of each example's first token, examples in the given order
    offsets: Tensor  # [E + 1] int32, first row of each sorted example, and N
    longest: int  # tokens of the longest example
    is_causal: bool = False  # a token attends to itself and earlier tokens only

    @classmethod
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def of(
        cls,
        lengths: NDArray[np.int64],
        device: torch.device | str = "cpu",
        is_causal: bool = False,
    ) -> "AttentionPlan":
        """Return the plan for examples of these lengths, with its tensors on `device`."""

        by_length = np.argsort(-lengths, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(lengths[by_length])])
        starts_E = np.empty_like(lengths)
        starts_E[by_length] = offsets[:-1]
        order = place = None
        if np.any(np.diff(by_length) < 0):
            given_starts = np.cumsum(lengths) - lengths
            rows = np.arange(offsets[-1])
            place_N = np.repeat(starts_E - given_starts, lengths) + rows
            order_N = np.empty_like(place_N)
            order_N[place_N] = rows
            order, place = send(order_N, device), send(place_N, device)
        return cls(
            lengths[by_length],
            order,
            place,
            send(starts_E, device),
            send(offsets.astype(np.int32), device),
            int(lengths.max(initial=0)),
            is_causal,
        )

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the batch. Flash attention does not need them, so they are made on demand
        and once for all layers."""
        device = self.offsets.device
        return tuple(_block(part, start, device) for start, part in _cut(self.lengths))

    def sort(self, x: Tensor) -> Tensor:
        """Reorder rows from the given order to the plan's."""
        return x if self.order_N is None else x.index_select(0, self.order_N)

    def restore(self, x: Tensor) -> Tensor:
        """Reorder rows from the plan's order to the given one."""
        return x if self.place_N is None else x.index_select(0, self.place_N)

    def rows(self, indices: Tensor) -> Tensor:
        """Convert row numbers of the given order to those of the plan's order."""
        return indices if self.place_N is None else self.place_N[indices]


def _cut(lengths: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Cut descending lengths into blocks; return (first row, lengths) per block."""
    edges = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
    cuts: list[int] = []  # the first example of each block
    open_length = 0  # longest example of the padded block that may still grow; 0: there is none
    for first, end in pairwise(edges):
        length = int(lengths[first])
        alone = (end - first) * length >= ALONE
        if alone or open_length - length > max(SLACK, open_length // 8) or not open_length:
            cuts.append(first)
            open_length = 0 if alone else length
    starts = np.cumsum(lengths) - lengths
    return [
        (int(starts[first]), lengths[first:end]) for first, end in pairwise([*cuts, len(lengths)])
    ]


def _block(lengths: NDArray[np.int64], start: int, device: torch.device | str) -> Block:
    examples, longest, end = len(lengths), int(lengths[0]), start + int(lengths.sum())
    if lengths[-1] == longest:
        return Block(start, end, examples, longest, None)
    real_BL = np.arange(longest) < lengths[:, None]
    mask_B1L = np.where(real_BL, 0.0, -np.inf).astype(np.float32)[:, None]
    padding = Padding(send(np.flatnonzero(real_BL), device), send(mask_B1L, device))
    return Block(start, end, examples, longest, padding)


def attend(
    qkv_N3HD: Tensor, plan: AttentionPlan, dropout: float, window: int | None = None
) -> Tensor:
    """Return softmax attention of every token to its own example, [N, H, D].

    In a causal plan a token attends only to itself and to earlier tokens. Rows are in the plan's
    order. `dropout` is the share of attention probabilities set to zero. With `window` a token
    attends to at most so many tokens on each side, in a plan that is not causal.
    """
    assert window is None or not plan.is_causal
    if window is not None and window >= plan.longest - 1:
        window = None
    if qkv_N3HD.is_cuda and has_flash(qkv_N3HD):
        return attend_flash(qkv_N3HD, plan, dropout, window)
    return cast(Tensor, _attend_uncompiled(qkv_N3HD, plan, dropout, window))


def has_flash(qkv_N3HD: Tensor) -> bool:
    """Return True if flash attention supports these tensors: half precision, heads of at most 256
    in multiples of 8, and a GPU of compute capability 8.0 or higher."""
    width = qkv_N3HD.shape[-1]
    fits = qkv_N3HD.dtype in (torch.float16, torch.bfloat16) and width % 8 == 0 and width <= 256
    return fits and _capability(qkv_N3HD.device.index) >= (8, 0)


@cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)


def attend_flash(
    qkv_N3HD: Tensor, plan: AttentionPlan, dropout: float, window: int | None = None
) -> Tensor:
    """Compute `attend` in one call of flash attention over all examples.

    Only the pretended device of our tests has run this line. The public function for examples of
    any length (`torch.nn.attention.varlen`) has no dropout, but its operator has.
    """
    q, k, v = qkv_N3HD.unbind(1)
    offsets, longest = plan.offsets, plan.longest
    output: Tensor = torch.ops.aten._flash_attention_forward(
        q, k, v, offsets, offsets, longest, longest, dropout, plan.is_causal, False,
        window_size_left=window, window_size_right=window,
    )[0]  # fmt: skip
    return output


# Blocks differ from batch to batch, so torch.compile would recompile for every batch.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attend_uncompiled(
    qkv_N3HD: Tensor, plan: AttentionPlan, dropout: float, window: int | None
) -> Tensor:
    if qkv_N3HD.is_cpu and qkv_N3HD.dtype in (torch.float32, torch.float64):
        output: Tensor = _HostAttention.apply(qkv_N3HD, plan, dropout, window)  # type: ignore[no-untyped-call]
        return output
    return attend_blocks(qkv_N3HD, plan, dropout, window)


def attend_blocks(
    qkv_N3HD: Tensor, plan: AttentionPlan, dropout: float, window: int | None = None
) -> Tensor:
    """Compute `attend` block by block with torch's kernels, on any device and in any precision."""
    outputs = []
    for block in plan.blocks:
        q, k, v = block.to_padded(qkv_N3HD).permute(2, 0, 3, 1, 4).unbind()
        mask = None
        if not plan.is_causal:  # otherwise padding follows all real tokens
            mask = _mask(block, window, q)
            mask = None if mask is None else mask[:, None]
        x_BHLD = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=plan.is_causal
        )
        outputs.append(block.from_padded(x_BHLD.transpose(1, 2)))
    return torch.cat(outputs)


class _HostAttention(torch.autograd.Function):
    """`attend_blocks` for CPUs, with less overhead per block and much cheaper dropout."""

    @staticmethod
    def forward(
        ctx: Any, qkv_N3HD: Tensor, plan: AttentionPlan, dropout: float, window: int | None
    ) -> Tensor:
        heads, width = qkv_N3HD.shape[2:]
        output_NHD = qkv_N3HD.new_empty(len(qkv_N3HD), heads, width)
        kept = []
        for block in plan.blocks:
            # One copy makes q, k and v contiguous, each [B·H, L, D].
            q, k, v = block.to_padded(qkv_N3HD).permute(2, 0, 3, 1, 4).flatten(1, 2).unbind()
            weights = torch.softmax(_scores(q, k, block, plan.is_causal, window), -1)
            bits = random_bits(weights.shape) if dropout else None
            mixed = torch.bmm(dropped(weights, bits, dropout), v)
            x_BHLD = mixed.view(block.examples, heads, block.length, width)
            block.write_padded(x_BHLD.transpose(1, 2), output_NHD)
            kept += [q, k, v, weights, bits]
        ctx.plan, ctx.dropout = plan, dropout
        ctx.save_for_backward(output_NHD, *kept)
        return output_NHD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output_NHD: Tensor) -> tuple[Tensor, None, None, None]:
        output_NHD, *kept = ctx.saved_tensors
        rows, heads, width = output_NHD.shape
        d_qkv_N3HD = output_NHD.new_empty(rows, 3, heads, width)
        # The backward pass of softmax needs Σ_keys weight · d_weight. That equals output · d_output
        # summed over D, which is cheaper.
        inner_NH1 = (d_output_NHD * output_NHD).sum(-1, keepdim=True)
        for number, block in enumerate(ctx.plan.blocks):
            q, k, v, weights, bits = kept[5 * number : 5 * number + 5]
            d_output = block.to_padded(d_output_NHD).transpose(1, 2).flatten(0, 1)
            inner = block.to_padded(inner_NH1).transpose(1, 2).flatten(0, 1)
            d_weights = dropped(torch.bmm(d_output, v.transpose(1, 2)), bits, ctx.dropout)
            d_scores = d_weights.sub_(inner).mul_(weights).mul_(width**-0.5)
            d_qkv = q.new_empty(3, *q.shape)
            torch.bmm(d_scores, k, out=d_qkv[0])
            torch.bmm(d_scores.transpose(1, 2), q, out=d_qkv[1])
            used = dropped(weights, bits, ctx.dropout)
            torch.bmm(used.transpose(1, 2), d_output, out=d_qkv[2])
            d_qkv_3BHLD = d_qkv.view(3, block.examples, heads, block.length, width)
            block.write_padded(d_qkv_3BHLD.permute(1, 3, 0, 2, 4), d_qkv_N3HD)
        return d_qkv_N3HD, None, None, None


def _scores(q: Tensor, k: Tensor, block: Block, is_causal: bool, window: int | None) -> Tensor:
    """Return scaled products of queries and keys [B·H, L, L], with -inf at keys that a query must
    not see: padding, distant or (causal) later tokens. Padding is later than every real token."""
    scale = q.shape[-1] ** -0.5
    if is_causal:
        mask: Tensor | None = q.new_full((block.length, block.length), -torch.inf).triu_(1)
    else:
        mask = _mask(block, window, q)
        if mask is not None and len(mask) > 1:
            mask = mask.repeat_interleave(len(q) // block.examples, 0)
    if mask is None:
        return torch.baddbmm(q.new_empty(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=scale)
    return torch.baddbmm(mask, q, k.transpose(1, 2), alpha=scale)


def _mask(block: Block, window: int | None, like: Tensor) -> Tensor | None:
    """Return 0, or -inf at keys that a query must not see, [B or 1, L or 1, L]; None: it may see
    all."""
    padding = None if block.padding is None else block.padding.mask_B1L.to(like.dtype)
    if window is None or window >= block.length - 1:
        return padding
    places_L = torch.arange(block.length, device=like.device)
    distance_LL = (places_L[:, None] - places_L).abs()
    mask_1LL = torch.zeros_like(distance_LL, dtype=like.dtype)[None]
    mask_1LL = mask_1LL.masked_fill(distance_LL > window, -torch.inf)
    if padding is None:
        return mask_1LL
    # A padding query may have no real key in its window. It sees itself: softmax needs one key.
    return (mask_1LL + padding).masked_fill(distance_LL == 0, 0.0)
