"""Kimi Delta Attention (arXiv:2510.26692), from the normed input of a layer to what its heads give.

The gated delta rule with a decay of its own for each element of a key, from a low-rank projection; the gate of the
output comes from another one, through a sigmoid. vLLM makes a convolution each for Q, K and V and one product each;
here they are one, as its gated delta rule has them (assumed: no engine has the layer on Ascend).
"""

from __future__ import annotations

from scenarios.lowering.delta import convolution, queries_keys_values, rules
from scenarios.lowering.primitives import activation, linear, weight
from scenarios.lowering.step import Step
from scenarios.models.states import KimiDelta
from scenarios.ops.program import Op, Tensor


def kimi_delta(step: Step, x: Tensor, state: KimiDelta) -> tuple[Op, ...]:
    """`normed` -> `attended`, [tokens, heads x value_dim]."""
    tokens, act = step.tokens, step.act
    low = (tokens, state.rank)
    return (
        linear("in_proj_qkv", x, "mixed_qkv", state.channels),
        linear("in_proj_b", x, "delta_b", state.value_heads),
        linear("in_proj_f_a", x, "decay_low", state.rank),
        linear("in_proj_f_b", activation("decay_low", low, act), "delta_a", state.keys),
        linear("in_proj_g_a", x, "gate_low", state.rank),
        linear("in_proj_g_b", activation("gate_low", low, act), "delta_gate", state.values),
        convolution(step, "mixed_qkv", state.channels, state.kernel),
        _gating(step, state),
        *queries_keys_values(step, state),
        *rules(step, state),
        _gated_norm(step, state),
    )


def _gating(step: Step, state: KimiDelta) -> Op:
    """Decay -exp(A) softplus(a + bias) of each element in logarithm, and beta = sigmoid(b)."""
    heads = (step.tokens, state.value_heads)
    wide = (*heads, state.key_dim)
    a, b = activation("delta_a", wide, step.act), activation("delta_b", heads, step.act)
    log_a, bias = weight("A_log.weight", (state.value_heads,), "fp32"), weight("dt.bias", (state.keys,), step.act)
    decay, beta = activation("delta_decay", wide, "fp32"), activation("delta_beta", heads, step.act)
    return Op("gdn_gating", "delta_gating", (a, b, log_a, bias), (decay, beta), op_type="fused_kda_gate_kernel")


def _gated_norm(step: Step, state: KimiDelta) -> Op:
    """RMSNorm of each head, times the sigmoid of its gate."""
    shape = (step.tokens, state.value_heads, state.value_dim)
    x, gate = activation("delta_out", shape, step.act), activation("delta_gate", shape, step.act)
    gamma = weight("delta_norm.weight", (state.value_dim,), step.act)
    attrs = (("eps", step.model.norm_eps), ("sigmoid", True))
    return Op("gated_rms_norm", "delta_norm", (x, gamma, gate), (activation("attended", shape, step.act),), attrs)
