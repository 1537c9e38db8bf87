"""The gated delta rule (Qwen3-Next, Qwen3.5), from the normed input of a layer to what its heads give.

A head keeps a matrix from keys to values. Each token lets it decay, takes from it what it holds for the token's key,
and adds the rest of the token's value (times beta) under that key; its query reads the result. A step of decode touches
the whole state; a prefill goes chunk by chunk, with products inside a chunk. Calls as vLLM-Ascend makes them
(vllm_ascend/ops/gdn.py): npu_causal_conv1d, fused_gdn_gating, l2norm, npu_recurrent_gated_delta_rule for requests that
decode and npu_chunk_gated_delta_rule for the others, RMSNormGated.
"""

from __future__ import annotations

from scenarios.lowering.primitives import activation, linear, weight
from scenarios.lowering.step import Step
from scenarios.models.states import GatedDelta
from scenarios.ops.program import Attr, DType, Group, Op, Tensor

#: Requests with at most this many new tokens take the recurrent way.
DECODE_QUERY = 16
#: Of the L2 norm of queries and keys (FLA's l2norm).
L2_EPS = 1e-6


def gated_delta(step: Step, x: Tensor, state: GatedDelta) -> tuple[Op, ...]:
    """`normed` -> `attended`, [tokens, value heads x value_dim]."""
    tokens, act = step.tokens, step.act
    wide = state.channels + state.values
    heads = (tokens, state.value_heads)
    return (
        linear("in_proj_qkvz", x, "qkvz", wide),
        linear("in_proj_ba", x, "ba", 2 * state.value_heads),
        cut(act, "qkvz", "mixed_qkv", (tokens, state.channels), 0),
        cut(act, "qkvz", "delta_gate", (tokens, state.values), -state.values),
        cut(act, "ba", "delta_b", heads, 0),
        cut(act, "ba", "delta_a", heads, state.value_heads),
        convolution(step, "mixed_qkv", state.channels, state.kernel),
        _gating(step, state),
        *queries_keys_values(step, state),
        *rules(step, state),
        _gated_norm(step, state),
    )


def cut(act: DType, source: str, out: str, shape: tuple[int, ...], start: int) -> Op:
    read = activation(source, shape, act)
    return Op("slice", f"slice_{out}", (read,), (activation(out, shape, act),), (("start", start),))


def convolution(step: Step, source: str, channels: int, kernel: int, bias: bool = False, activated: bool = True) -> Op:
    """Causal and by channel, over the last `kernel` tokens: `source` -> `convolved`. activated: a SiLU is behind it."""
    shape = (step.tokens, channels)
    held = Tensor("conv_state", (step.batch.requests, kernel - 1, channels), step.act, "kv_cache")
    weights = [weight("conv1d.weight", (channels, kernel), step.act)]
    if bias:
        weights.append(weight("conv1d.bias", (channels,), step.act))
    return Op(
        "causal_conv1d",
        "conv1d",
        (activation(source, shape, step.act), *weights, held),
        (activation("convolved", shape, step.act), held),
        () if activated else (("activated", False),),
    )


def _gating(step: Step, state: GatedDelta) -> Op:
    """Decay -exp(A) softplus(a + bias) in logarithm, and beta = sigmoid(b)."""
    heads = (step.tokens, state.value_heads)
    a, b = activation("delta_a", heads, step.act), activation("delta_b", heads, step.act)
    log_a, bias = (
        weight("A_log.weight", (state.value_heads,), "fp32"),
        weight("dt.bias", (state.value_heads,), step.act),
    )
    decay, beta = activation("delta_decay", heads, "fp32"), activation("delta_beta", heads, step.act)
    return Op("gdn_gating", "delta_gating", (a, b, log_a, bias), (decay, beta))


def queries_keys_values(step: Step, state: GatedDelta) -> tuple[Op, ...]:
    keys = (step.tokens, state.key_heads, state.key_dim)
    parts = (("q", state.keys, 0), ("k", state.keys, state.keys), ("v", state.values, -state.values))
    ops = [cut(step.act, "convolved", f"delta_{name}", (step.tokens, width), start) for name, width, start in parts]
    for name in "qk":
        x, out = activation(f"delta_{name}", keys, step.act), activation(f"delta_{name}_normed", keys, step.act)
        ops.append(Op("l2_norm", f"delta_{name}_norm", (x,), (out,), (("eps", L2_EPS),)))
    return tuple(ops)


def rules(step: Step, state: GatedDelta) -> tuple[Op, ...]:
    """The rule for requests that decode, then for those that are prefilled, whose rows join the others'."""
    decoding = tuple(g for g in step.batch.groups if g.query <= DECODE_QUERY)
    prefilling = tuple(g for g in step.batch.groups if g.query > DECODE_QUERY)
    ops = []
    if decoding:
        ops.append(_rule(step, state, "gated_delta_rule", decoding, ()))
    if prefilling:
        before = (ops[0].out,) if ops else ()
        ops.append(_rule(step, state, "chunk_gated_delta_rule", prefilling, before))
    return tuple(ops)


def _rule(step: Step, state: GatedDelta, kind: str, groups: tuple[Group, ...], before: tuple[Tensor, ...]) -> Op:
    heads = (step.tokens, state.value_heads)
    keys = (step.tokens, state.key_heads, state.key_dim)
    decay = (*heads, state.key_dim) if state.decays_by_element else heads
    shape = (step.batch.requests, state.value_heads, state.key_dim, state.value_dim)
    held = Tensor("delta_state", shape, step.act if state.dtype != "fp32" else "fp32", "kv_cache")
    inputs = (
        activation("delta_q_normed", keys, step.act),
        activation("delta_k_normed", keys, step.act),
        activation("delta_v", (*heads, state.value_dim), step.act),
        activation("delta_decay", decay, "fp32"),
        activation("delta_beta", heads, step.act),
        held,
        *before,
    )
    attrs: tuple[tuple[str, Attr], ...] = (("groups", tuple((g.count, g.query, g.context) for g in groups)),)
    return Op(kind, kind, inputs, (activation("delta_out", (*heads, state.value_dim), step.act), held), attrs)


def _gated_norm(step: Step, state: GatedDelta) -> Op:
    """RMSNorm of each head, times the SiLU of its gate."""
    shape = (step.tokens, state.value_heads, state.value_dim)
    x, gate = activation("delta_out", shape, step.act), activation("delta_gate", shape, step.act)
    gamma = weight("delta_norm.weight", (state.value_dim,), step.act)
    return Op(
        "gated_rms_norm",
        "delta_norm",
        (x, gamma, gate),
        (activation("attended", shape, step.act),),
        (("eps", step.model.norm_eps),),
    )
