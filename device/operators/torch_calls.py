"""What torch has one call for on any device: products, RMSNorm, attention by scaled_dot_product_attention."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from device.operators import attention, experts, mla, norms, quant
from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.step import Layout, Step
from scenarios.ops.program import Op


def _linear(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return quant.split(op, F.linear(*inputs))


def _linear_into(_: Op, inputs: Inputs, __: Step, out: torch.Tensor) -> None:
    x, w, *bias = inputs
    if bias:
        torch.addmm(bias[0], x, w.t(), out=out)
    else:
        torch.mm(x, w.t(), out=out)


def _batch_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    a, b = inputs
    if attention.scores_or_values(op):
        return (attention.operand_by_request(a, op.inputs[0], step) @ b.transpose(-1, -2),)
    return (attention.by_token(a @ b, step.layout).reshape(op.out.shape),)


def _rms_norm(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """Without the statistics: torch keeps them to itself, and no op of a Program reads them."""
    x, gamma = inputs
    return (F.rms_norm(x, gamma.shape, gamma, norms.eps_of(op)),)


def _attention(op: Op, inputs: Inputs, step: Step) -> Outputs:
    query = attention.heads_of(inputs[0], op)
    q = attention.by_request(query, step.layout)
    k, v = attention.keys_and_values(op, inputs, step, query.dtype)
    visible, scale = attention.seen_by(op, step), attention.scale_of(op)
    causal = step.causal and visible is step.visible
    mask = None if causal else visible
    if (sinks := attention.sinks_of(op, inputs)) is not None:
        y = _with_sinks(q, k, v, visible, scale, sinks)
    else:
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True, scale=scale)
    return (attention.by_token(y, step.layout).reshape(op.out.shape),)


def _with_sinks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor | None, scale: float, sinks: torch.Tensor
) -> torch.Tensor:
    """A key of zeros whose score is the sink of each head, and whose value is zeros: the mask adds the score."""
    k, v = (torch.cat((x, x.new_zeros((*x.shape[:2], 1, x.shape[-1]))), 2) for x in (k, v))
    shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    bias = torch.zeros(shape, dtype=q.dtype, device=q.device)
    if visible is not None:
        bias[..., :-1].masked_fill_(~visible, float("-inf"))
    bias[..., -1] = sinks.view(1, -1, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=True, scale=scale)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: Layout, scale: float) -> torch.Tensor:
    """Of latent attention: `mla.attend` by one call."""
    mask = attention.visible_keys(layout, q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)


def _quant_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    x, w, scale, *rest = inputs
    product = torch._int_mm(x, quant.integers(w).t())
    if not rest:  # bare sums
        return (product,)
    row_scale, *bias = rest
    return quant.split(op, quant.scaled(product, scale, row_scale, bias).to(step.dtypes[op.out.dtype]))


def _weight_quant_matmul(op: Op, inputs: Inputs, _: Step) -> Outputs:
    x, w, scale, *bias = inputs
    weight = quant.integers(w).to(x.dtype) * scale.unsqueeze(-1).to(x.dtype)
    return quant.split(op, F.linear(x, weight, *bias))


def _grouped_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    (x, w, *scale), bias = experts.without_bias(op, inputs)

    def product(part: torch.Tensor, expert: int, _: slice) -> torch.Tensor:
        own = None if bias is None else bias[expert]
        if not scale:
            return F.linear(part, w[expert], own)
        return F.linear(part, quant.integers(w[expert]).to(x.dtype) * scale[0][expert].unsqueeze(-1).to(x.dtype), own)

    return experts.by_expert(op, x, step, product)


def _quant_grouped_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    (x, w, *scales), bias = experts.without_bias(op, inputs)

    def product(part: torch.Tensor, expert: int, rows: slice) -> torch.Tensor:
        integers = torch._int_mm(part, quant.integers(w[expert]).t())
        if not scales:  # bare sums
            return integers
        scale, row_scale = scales
        own = () if bias is None else (bias[expert],)
        return quant.scaled(integers, scale[expert], row_scale[rows], own)

    return experts.by_expert(op, x, step, product)


def _kv_b_proj(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (F.linear(mla.new_or_seen(op, inputs[0], step), inputs[1]),)


#: What stands over the reference on every device of torch's own.
KERNELS: dict[str, Kernel] = {
    "matmul": Kernel(_linear, into=_linear_into),
    "batch_matmul": Kernel(_batch_matmul, raw=True),
    "rms_norm": Kernel(_rms_norm, "fused"),
    "attention": Kernel(_attention, "fused", raw=True),
    "grouped_matmul": Kernel(_grouped_matmul, "composed"),
    "quant_grouped_matmul": Kernel(_quant_grouped_matmul, "composed"),
    "quant_matmul": Kernel(_quant_matmul, "composed"),
    "weight_quant_matmul": Kernel(_weight_quant_matmul, "composed"),
}
#: The same for ops that latent attention means in its own way, by name.
NAMED = {
    "attention": Kernel(partial(mla.absorbed, by=attend), "composed", raw=True),
    "prefill_attention": Kernel(partial(mla.unpacked, by=attend), "composed", raw=True),
    "kv_b_proj": Kernel(_kv_b_proj, raw=True),
}
#: torch's attention reads neither block tables nor INT8: blocks are gathered and dequantised before it.
COMPOSED_ATTENTION = Kernel(_attention, "composed", raw=True)
