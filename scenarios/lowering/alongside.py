"""Experts next to a plain MLP, each with norms of its own (Gemma 4): `mlp_in` and the residual -> `mlp_sum`.

The router and the experts read the residual through norms of their own; both halves are normed before they are added.
"""

from __future__ import annotations

from scenarios.lowering.moe import mixture
from scenarios.lowering.primitives import activation, gated, rms_norm
from scenarios.lowering.step import Step
from scenarios.models.parts import Experts
from scenarios.ops.program import Op


def plain_and_experts(step: Step, experts: Experts) -> tuple[Op, ...]:
    model, act, form = step.model, step.act, step.model.form
    shape = (step.tokens, model.hidden)
    residual = activation("residual_mid", shape, act)
    dense, routed = activation("dense_out", shape, act), activation("experts_out", shape, act)
    halves = tuple(activation(f"{x.name}_normed", shape, act) for x in (dense, routed))
    return (
        *gated(activation("mlp_in", shape, act), "", model.intermediate, dense.name, form.activation),
        *rms_norm("dense_norm", dense, halves[0].name, model.norm_eps),
        *rms_norm("router_norm", residual, "router_in", model.norm_eps),
        *rms_norm("moe_norm", residual, "moe_in", model.norm_eps),
        *mixture(step, experts, "moe_in", "router_in", routed.name),
        *rms_norm("experts_norm", routed, halves[1].name, model.norm_eps),
        Op("add", "add_experts", halves, (activation("mlp_sum", shape, act),)),
    )
