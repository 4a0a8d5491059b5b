"""A projected LSTM over time-major windows, with optional clipping of memory and output.

One step, with gates i, f, g, o = x W + h U + b (torch's order):
    c = clip(sigmoid(f) c + sigmoid(i) tanh(g)),  h = clip((sigmoid(o) tanh(c)) P)
torch's fused kernels do not support clipping. On CPUs they are slow for projections, because they
sum weight gradients step by step. `_Unrolled` saves the activations of all steps and computes
weight gradients in one matrix product. It is used on CPUs always, and on GPUs with clipping.

T steps, U = T + 1 states, S streams, D input width, C memory width, P projected width, G = 4 C
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class ProjectedLSTM(nn.Module):
    """One layer of one direction."""

    no_bias_G: Tensor

    def __init__(
        self, inputs: int, cell: int, projection: int, cell_clip: float, projection_clip: float
    ) -> None:
        super().__init__()
        self.cell, self.projected = cell, projection
        self.clips = (cell_clip or math.inf, projection_clip or math.inf)
        self.input = nn.Parameter(torch.empty(4 * cell, inputs))
        self.recurrent = nn.Parameter(torch.empty(4 * cell, projection))
        self.bias = nn.Parameter(torch.zeros(4 * cell))
        self.projection = nn.Parameter(torch.empty(projection, cell))
        self.register_buffer("no_bias_G", torch.zeros(4 * cell), persistent=False)
        # As in bilm-tf, TensorFlow's defaults: Glorot over the joint matrix [x; h] -> gates, and a
        # forget gate that starts open (bias 1).
        joint = math.sqrt(6 / (inputs + projection + 4 * cell))
        nn.init.uniform_(self.input, -joint, joint)
        nn.init.uniform_(self.recurrent, -joint, joint)
        nn.init.xavier_uniform_(self.projection)
        nn.init.ones_(self.bias.data[cell : 2 * cell])

    def forward(self, x_TSD: Tensor, h_SP: Tensor, c_SC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs y_TSP of all steps, and the state h_SP, c_SC after the last."""
        if self.clips == (math.inf, math.inf) and not x_TSD.is_cpu:
            return self.fused(x_TSD, h_SP, c_SC)
        inputs_TSG = nn.functional.linear(x_TSD, self.input, self.bias)
        y_TSP, c_SC = _Unrolled.apply(  # type: ignore[no-untyped-call]
            inputs_TSG, h_SP, c_SC, self.recurrent, self.projection, *self.clips
        )
        return y_TSP, y_TSP[-1], c_SC

    def fused(self, x_TSD: Tensor, h_SP: Tensor, c_SC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute `forward` with torch's kernel (cuDNN on NVIDIA GPUs), without clipping."""
        weights = [self.input, self.recurrent, self.bias, self.no_bias_G, self.projection]
        device, dtype = x_TSD.device.type, self.input.dtype
        if torch.is_autocast_enabled(device):  # torch's own rule would choose fp16, without scaling
            dtype = torch.get_autocast_dtype(device)
        # cuDNN requires contiguous states; the carried state is a slice of a larger tensor.
        state = tuple(part[None].to(dtype).contiguous() for part in (h_SP, c_SC))
        with torch.autocast(device, enabled=False):
            y_TSP, h_1SP, c_1SC = torch.lstm(
                x_TSD.to(dtype), state, [part.to(dtype) for part in weights],
                True, 1, 0.0, self.training, False, False,
            )  # fmt: skip
        return y_TSP, h_1SP[0].to(h_SP.dtype), c_1SC[0].to(c_SC.dtype)


class _Unrolled(torch.autograd.Function):
    """The recurrence over all steps; `inputs_TSG` is x W + b. No gradient flows through the
    returned `c`."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs_TSG: Tensor,
        h_SP: Tensor,
        c_SC: Tensor,
        recurrent_GP: Tensor,
        projection_PC: Tensor,
        cell_clip: float,
        projection_clip: float,
    ) -> tuple[Tensor, Tensor]:
        steps, cell = len(inputs_TSG), projection_PC.shape[1]
        recurrent_GP, projection_PC = recurrent_GP.to(inputs_TSG), projection_PC.to(inputs_TSG)
        gates_TSG = torch.empty_like(inputs_TSG)
        h_USP = torch.cat([h_SP[None].to(gates_TSG), gates_TSG.new_empty(steps, *h_SP.shape)])
        c_USC = torch.cat([c_SC[None].to(gates_TSG), gates_TSG.new_empty(steps, *c_SC.shape)])
        for t in range(steps):
            gates_SG = gates_TSG[t]
            torch.addmm(inputs_TSG[t], h_USP[t], recurrent_GP.t(), out=gates_SG)
            gates_SG[:, : 2 * cell].sigmoid_()
            gates_SG[:, 2 * cell : 3 * cell].tanh_()
            gates_SG[:, 3 * cell :].sigmoid_()
            i_SC, f_SC, g_SC, o_SC = gates_SG.chunk(4, 1)
            torch.mul(f_SC, c_USC[t], out=c_USC[t + 1]).addcmul_(i_SC, g_SC)
            if cell_clip < math.inf:
                c_USC[t + 1].clamp_(-cell_clip, cell_clip)
            inner_SC = c_USC[t + 1].tanh().mul_(o_SC)
            torch.mm(inner_SC, projection_PC.t(), out=h_USP[t + 1])
            if projection_clip < math.inf:
                h_USP[t + 1].clamp_(-projection_clip, projection_clip)
        ctx.clips = (cell_clip, projection_clip)
        ctx.save_for_backward(gates_TSG, h_USP, c_USC, recurrent_GP, projection_PC)
        last_SC = c_USC[-1].clone()
        ctx.mark_non_differentiable(last_SC)
        return h_USP[1:], last_SC

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_TSP: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gates_TSG, h_USP, c_USC, recurrent_GP, projection_PC = ctx.saved_tensors
        cell_clip, projection_clip = ctx.clips
        steps = len(gates_TSG)
        d_gates_TSG = torch.empty_like(gates_TSG)
        d_projected_TSP = torch.empty_like(d_y_TSP)
        inner_TSC = torch.empty_like(c_USC[1:])
        d_h_SP, d_c_SC = torch.zeros_like(h_USP[0]), torch.zeros_like(c_USC[0])
        for t in range(steps - 1, -1, -1):
            i_SC, f_SC, g_SC, o_SC = gates_TSG[t].chunk(4, 1)
            d_i_SC, d_f_SC, d_g_SC, d_o_SC = d_gates_TSG[t].chunk(4, 1)
            d_projected_SP = torch.add(d_y_TSP[t], d_h_SP, out=d_projected_TSP[t])
            if projection_clip < math.inf:  # clipped values pass no gradient
                d_projected_SP *= h_USP[t + 1].abs() < projection_clip
            d_inner_SC = d_projected_SP @ projection_PC
            squashed_SC = c_USC[t + 1].tanh()
            torch.mul(squashed_SC, o_SC, out=inner_TSC[t])
            torch.mul(d_inner_SC, squashed_SC, out=d_o_SC)
            d_c_SC = d_c_SC.addcmul_(d_inner_SC.mul_(o_SC), squashed_SC.square_().neg_().add_(1))
            if cell_clip < math.inf:
                d_c_SC *= c_USC[t + 1].abs() < cell_clip
            torch.mul(d_c_SC, g_SC, out=d_i_SC)
            torch.mul(d_c_SC, c_USC[t], out=d_f_SC)
            torch.mul(d_c_SC, i_SC, out=d_g_SC)
            d_c_SC.mul_(f_SC)
            for d_gate_SC, gate_SC in ((d_i_SC, i_SC), (d_f_SC, f_SC), (d_o_SC, o_SC)):
                torch.ops.aten.sigmoid_backward.grad_input(d_gate_SC, gate_SC, grad_input=d_gate_SC)
            torch.ops.aten.tanh_backward.grad_input(d_g_SC, g_SC, grad_input=d_g_SC)
            d_h_SP = d_gates_TSG[t] @ recurrent_GP
        d_recurrent_GP = d_gates_TSG.flatten(0, 1).t() @ h_USP[:-1].flatten(0, 1)
        d_projection_PC = d_projected_TSP.flatten(0, 1).t() @ inner_TSC.flatten(0, 1)
        return d_gates_TSG, d_h_SP, d_c_SC, d_recurrent_GP, d_projection_PC, None, None
