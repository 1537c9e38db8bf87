"""Layers with a state in plain torch, token by token in float32: gated delta rule, Mamba-2, convolutions.

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
from scenarios.ops.catalogue import kind_of
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
    activated = op.attr("activated", True)
    out = torch.zeros_like(x)
    for number, context, rows in requests_of(step.layout):
        before = held[number] if context else torch.zeros_like(held[number])
        whole = torch.cat((before.to(x.dtype), x[rows]))
        count = rows.stop - rows.start
        summed = sum(whole[tap : tap + count].float() * filters[:, tap].float() for tap in range(filters.shape[1]))
        if bias:
            summed = summed + bias[0].float()
        out[rows] = (F.silu(summed) if activated else summed).to(x.dtype)
        held[number] = whole[len(whole) - held.shape[1] :]
    return out, held


def _gating(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """(a, b, A, bias) -> the logarithm of the decay in float32, and beta."""
    a, b, log_a, bias = inputs
    steep = log_a.float().exp()
    if op.inputs[0].elements > op.inputs[1].elements:  # each element of a key has a decay of its own
        a = a.reshape(*b.shape, -1)
        steep, bias = steep.unsqueeze(-1), bias.view(a.shape[1:])
    decay = -steep * F.softplus(a.float() + bias.float())
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
    decoding = kind_of(op).token_by_token
    for number, context, rows in requests_of(step.layout):
        if (rows.stop - rows.start <= DECODE_QUERY) != decoding:
            continue
        state = held[number].float() if context else torch.zeros_like(held[number], dtype=torch.float32)
        for row in range(rows.start, rows.stop):
            state = state * decay[row].exp().view(len(state), -1, 1)
            known = torch.einsum("hkv,hk->hv", state, k[row])
            change = (v[row].float() - known) * beta[row].float().unsqueeze(-1)
            state = state + torch.einsum("hk,hv->hkv", k[row], change)
            out[row] = (torch.einsum("hkv,hk->hv", state, q[row]) * q.shape[-1] ** -0.5).to(v.dtype)
        held[number] = state.to(held.dtype)
    return out, held


def _gated_norm(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """The norm of x times the SiLU of the gate (attribute sigmoid: its sigmoid), or (attribute gate_first) the norm of
    their product."""
    x, gamma, gate = inputs
    gate = gate.float().view(x.shape)
    wide, opened = x.float(), torch.sigmoid(gate) if op.attr("sigmoid", False) else F.silu(gate)
    if not op.attr("gate_first", False):
        return ((rms_norm(wide, gamma.float(), eps_of(op))[0] * opened).to(x.dtype),)
    ones = torch.ones(x.shape[-1], device=x.device)
    normed = rms_norm(wide * opened, ones, eps_of(op))[0]
    return ((normed * gamma.float().view(x.shape[1:])).to(x.dtype),)


def _scan(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Mamba-2 token by token: S <- exp(-exp(A) dt) S + dt x B^T; y = S C + D x, with dt = softplus(dt + bias).

    x [rows, heads, head dim], B and C [rows, groups, state], dt [rows, heads], A, D and bias of each head, states.
    """
    x, b, c, dt, log_a, skip, bias, held, *before = inputs
    out = before[0].clone() if before else torch.zeros_like(x)
    share = x.shape[1] // b.shape[1]
    b, c = (y.float().repeat_interleave(share, 1) for y in (b, c))
    steps = F.softplus(dt.float() + bias.float())
    decoding = kind_of(op).token_by_token
    for number, context, rows in requests_of(step.layout):
        if (rows.stop - rows.start <= DECODE_QUERY) != decoding:
            continue
        state = held[number].float() if context else torch.zeros_like(held[number], dtype=torch.float32)
        for row in range(rows.start, rows.stop):
            kept = torch.exp(-log_a.float().exp() * steps[row]).view(-1, 1, 1)
            new = torch.einsum("hp,hn->hpn", x[row].float() * steps[row].unsqueeze(-1), b[row])
            state = kept * state + new
            read = torch.einsum("hpn,hn->hp", state, c[row]) + skip.float().unsqueeze(-1) * x[row].float()
            out[row] = read.to(x.dtype)
        held[number] = state.to(held.dtype)
    return out, held


KERNELS = {
    "causal_conv1d": Kernel(_conv1d, "composed"),
    "gdn_gating": Kernel(_gating, "composed"),
    "l2_norm": Kernel(_l2_norm, "composed"),
    "gated_delta_rule": Kernel(_rule, "composed"),
    "chunk_gated_delta_rule": Kernel(_rule, "composed"),
    "gated_rms_norm": Kernel(_gated_norm, "composed"),
    "selective_state_update": Kernel(_scan, "composed"),
    "mamba_chunk_scan": Kernel(_scan, "composed"),
}
