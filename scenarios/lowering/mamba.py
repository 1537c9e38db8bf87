"""Mamba-2 layers and gated short convolutions, from the normed input of a layer to what goes to its output projection.

Calls as vLLM's Mamba mixer makes them: one projection, a causal convolution, then a state update for requests that
decode and a chunked scan for the others, and a norm with a gate.
"""

from __future__ import annotations

from scenarios.lowering.delta import DECODE_QUERY, convolution, cut
from scenarios.lowering.primitives import activation, linear, weight
from scenarios.lowering.step import Step
from scenarios.models.states import Mamba2, ShortConv
from scenarios.ops.program import Attr, Group, Op, Tensor


def mamba2(step: Step, x: Tensor, state: Mamba2) -> tuple[Op, ...]:
    """`normed` -> `attended`, [tokens, inner]."""
    tokens, act = step.tokens, step.act
    shared = state.groups * state.state_dim
    packed = state.inner + state.channels + state.heads
    return (
        linear("in_proj", x, "zxbcdt", packed),
        cut(act, "zxbcdt", "mamba_gate", (tokens, state.inner), 0),
        cut(act, "zxbcdt", "mixed", (tokens, state.channels), state.inner),
        cut(act, "zxbcdt", "mamba_dt", (tokens, state.heads), -state.heads),
        convolution(step, "mixed", state.channels, state.kernel, bias=True),
        cut(act, "convolved", "mamba_x", (tokens, state.inner), 0),
        cut(act, "convolved", "mamba_b", (tokens, shared), state.inner),
        cut(act, "convolved", "mamba_c", (tokens, shared), -shared),
        *_scans(step, state),
        _gated_norm(step, state),
    )


def _scans(step: Step, state: Mamba2) -> tuple[Op, ...]:
    """The update for requests that decode, then the scan for those that are prefilled, whose rows join the others'."""
    decoding = tuple(g for g in step.batch.groups if g.query <= DECODE_QUERY)
    prefilling = tuple(g for g in step.batch.groups if g.query > DECODE_QUERY)
    ops: list[Op] = []
    if decoding:
        ops.append(_scan(step, state, "selective_state_update", decoding, ()))
    if prefilling:
        before = (ops[0].out,) if ops else ()
        ops.append(_scan(step, state, "mamba_chunk_scan", prefilling, before))
    return tuple(ops)


def _scan(step: Step, state: Mamba2, kind: str, groups: tuple[Group, ...], before: tuple[Tensor, ...]) -> Op:
    heads = (step.tokens, state.heads)
    shared = (step.tokens, state.groups, state.state_dim)
    channels = (*heads, state.head_dim)
    held = Tensor(
        "ssm_state", (step.batch.requests, *state.matrix), "fp32" if state.dtype == "fp32" else step.act, "kv_cache"
    )
    each = (state.heads,)
    inputs = (
        activation("mamba_x", channels, step.act),
        activation("mamba_b", shared, step.act),
        activation("mamba_c", shared, step.act),
        activation("mamba_dt", heads, step.act),
        weight("A_log.weight", each, "fp32"),
        weight("D.weight", each, "fp32"),
        weight("dt.bias", each, step.act),
        held,
        *before,
    )
    attrs: tuple[tuple[str, Attr], ...] = (
        ("groups", tuple((g.count, g.query, g.context) for g in groups)),
        ("chunk", state.chunk),
    )
    return Op(kind, kind, inputs, (activation("mamba_out", channels, step.act), held), attrs)


def _gated_norm(step: Step, state: Mamba2) -> Op:
    """What the heads give times the SiLU of the gate, normed group by group."""
    shape = (step.tokens, state.groups, state.inner // state.groups)
    x, gate = activation("mamba_out", shape, step.act), activation("mamba_gate", shape, step.act)
    gamma = weight("mamba_norm.weight", (state.inner,), step.act)
    return Op(
        "gated_rms_norm",
        "mamba_norm",
        (x, gamma, gate),
        (activation("attended", shape, step.act),),
        (("eps", step.model.norm_eps), ("gate_first", True)),
    )


def short_convolution(step: Step, x: Tensor, state: ShortConv) -> tuple[Op, ...]:
    """`normed` -> `attended`: the convolution of one part, gated before it by another and behind it by a third."""
    tokens, act, size = step.tokens, step.act, state.channels

    def part(name: str) -> Tensor:
        return activation(name, (tokens, size), act)

    return (
        linear("in_proj", x, "bcx", 3 * size),
        *(cut(act, "bcx", f"conv_{name}", (tokens, size), at * size) for at, name in enumerate(("b", "c", "x"))),
        Op("mul", "conv.gate_in", (part("conv_b"), part("conv_x")), (part("mixed"),)),
        convolution(step, "mixed", size, state.kernel, activated=False),
        Op("mul", "conv.gate_out", (part("conv_c"), part("convolved")), (part("attended"),)),
    )
