"""The gated delta rule in plain torch: token by token in float32, in both of its ways.

States lie by request: the convolution's last inputs, and the matrix of each head. A request without tokens before this
step starts from zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.norms import eps_of, rms_norm
from device.step.step import Layout, Step
from scenarios.lowering.delta import DECODE_QUERY
from scenarios.ops.program import Op


def requests_of(layout: Layout) -> Iterator[tuple[int, int, slice]]:
    """(number, tokens before, rows) of each request of the step."""
    start = 0
    for number, context, query in zip(layout.requests, layout.contexts, layout.queries, strict=True):
        yield number, context, slice(start, start + query)
        start += query


def _conv1d(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """x [rows, channels], filters [channels, taps], (a bias,) the last taps - 1 inputs of each request -> SiLU of the
    convolution; the state is changed in place."""
    x, filters, *bias, held = inputs
    out = torch.zeros_like(x)
    for number, context, rows in requests_of(step.layout):
        before = held[number] if context else torch.zeros_like(held[number])
        whole = torch.cat((before.to(x.dtype), x[rows]))
        count = rows.stop - rows.start
        summed = sum(whole[tap : tap + count].float() * filters[:, tap].float() for tap in range(filters.shape[1]))
        if bias:
            summed = summed + bias[0].float()
        out[rows] = F.silu(summed).to(x.dtype)
        held[number] = whole[len(whole) - held.shape[1] :]
    return out, held


def _gating(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """(a, b, A, bias) -> the logarithm of the decay in float32, and beta."""
    a, b, log_a, bias = inputs
    decay = -log_a.float().exp() * F.softplus(a.float() + bias.float())
    return decay, torch.sigmoid(b.float()).to(b.dtype)


def _l2_norm(op: Op, inputs: Inputs, _: Step) -> Outputs:
    x = inputs[0].float()
    return ((x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + eps_of(op))).to(inputs[0].dtype),)


def _rule(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """S <- exp(g) S; S <- S + beta k (v - S^T k)^T; o = S^T q / sqrt(key dim), for the requests of this way.

    q, k [rows, key heads, key dim], v [rows, heads, value dim], g and beta [rows, heads], states, and where others have
    gone before what they gave.
    """
    q, k, v, decay, beta, held, *before = inputs
    out = before[0].clone() if before else torch.zeros_like(v)
    group = v.shape[1] // q.shape[1]
    q, k = (x.float().repeat_interleave(group, 1) for x in (q, k))
    decoding = op.kind == "gated_delta_rule"
    for number, context, rows in requests_of(step.layout):
        if (rows.stop - rows.start <= DECODE_QUERY) != decoding:
            continue
        state = held[number].float() if context else torch.zeros_like(held[number], dtype=torch.float32)
        for row in range(rows.start, rows.stop):
            state = state * decay[row].exp().view(-1, 1, 1)
            known = torch.einsum("hkv,hk->hv", state, k[row])
            change = (v[row].float() - known) * beta[row].float().unsqueeze(-1)
            state = state + torch.einsum("hk,hv->hkv", k[row], change)
            out[row] = (torch.einsum("hkv,hk->hv", state, q[row]) * q.shape[-1] ** -0.5).to(v.dtype)
        held[number] = state.to(held.dtype)
    return out, held


def _gated_norm(op: Op, inputs: Inputs, _: Step) -> Outputs:
    x, gamma, gate = inputs
    normed = rms_norm(x.float(), gamma.float(), eps_of(op))[0]
    return ((normed * F.silu(gate.float())).to(x.dtype),)


KERNELS = {
    "causal_conv1d": Kernel(_conv1d, "composed"),
    "gdn_gating": Kernel(_gating, "composed"),
    "l2_norm": Kernel(_l2_norm, "composed"),
    "gated_delta_rule": Kernel(_rule, "composed"),
    "chunk_gated_delta_rule": Kernel(_rule, "composed"),
    "gated_rms_norm": Kernel(_gated_norm, "composed"),
}
