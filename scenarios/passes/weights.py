"""Quantised weights and their layout in memory."""

from __future__ import annotations

from dataclasses import replace

from scenarios.models.kept import PACKED, Part
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import DType, Op, Program, Tensor
from scenarios.passes.base import Context, Pass, in_layers

#: Products that stay in 16 bit: the router, whose choice is touchy, the gate of the shared expert, MLA's W_UK and W_UV,
#: which attention absorbs, and of DeepSeek-V4's indexer its weights of heads and the rotation of Hadamard.
KEPT = ("router", "shared_expert_gate", "kv_b_proj", "index_heads_proj", "index_q_hadamard", "index_k_hadamard")


#: Products of a plain MLP, packed or not.
_PLAIN_MLP = ("gate_proj", "up_proj", "gate_up_proj", "down_proj")


def part_of(op: Op) -> Part:
    """The part of a layer that a linear layer belongs to."""
    if op.name.startswith("shared."):
        return "shared"
    if op.expert >= 0 or op.name.startswith("experts."):
        return "experts"
    return "mlp" if op.name in _PLAIN_MLP else "attention"


def is_kept(op: Op, kept: frozenset[Part]) -> bool:
    """Whether a linear layer stays in 16 bits: its part does, or all products that it is made of."""
    part, name = part_of(op), op.name.rpartition(".")[2]
    products = PACKED.get(name, (name,))
    return part in kept or all(f"{part}.{product}" in kept for product in products)


def quantise_weights(program: Program, context: Context) -> Program:
    """Linear layers of the decoder in INT8 or INT4 (the LM head stays 16-bit, as deployments keep it).

    a16: weights are unpacked on the way to the cube. a8: activations are quantised per token first, once for all
    matmuls that read them.
    """
    mode = context.scenario.optimizations.weights
    if mode in ("bf16", "fp16"):
        return program
    kept = context.model.kept_in(mode)
    width: DType = "int4" if mode.startswith("w4") else "int8"
    int8_activations = mode.endswith("a8")

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        out: list[Op] = []
        quantised: set[str] = set()
        for op in ops:
            if not (kind_of(op).dense or kind_of(op).routed) or op.name in KEPT or is_kept(op, kept):
                out.append(op)
                quantised -= {t.name for t in op.outputs}
                continue
            x, weight, *bias = op.inputs
            w = replace(weight, dtype=width)
            scale = Tensor(f"{op.name}.scale", weight.shape[:-1], "fp32", "weight")
            if not int8_activations:
                kind = "weight_quant_matmul" if kind_of(op).dense else op.kind
                out.append(replace(op, kind=kind, inputs=(x, w, scale, *bias), op_type=""))
                continue
            tokens = x.elements // x.shape[-1]
            xq, xs = Tensor(f"{x.name}_int8", x.shape, "int8"), Tensor(f"{x.name}_scale", (tokens,), "fp32")
            if x.name not in quantised:
                if out and kind_of(out[-1]).quantises_sent and out[-1].out.name == x.name:
                    out[-1] = replace(out[-1], outputs=(xq, xs))
                else:
                    out.append(Op("dynamic_quant", f"quant_{x.name}", (x,), (xq, xs), expert=op.expert))
                quantised.add(x.name)
            out.append(replace(op, kind=f"quant_{op.kind}", inputs=(xq, w, scale, xs, *bias), op_type=""))
        return tuple(out)

    return in_layers(program, f"weights={mode}", rewrite)


def lay_out_weights(program: Program, _: Context) -> Program:
    """Weights of the decoder's linear layers in FRACTAL_NZ: 16 x 32-byte tiles, as the cube loads them."""

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        return tuple(
            replace(op, inputs=(op.inputs[0], replace(op.inputs[1], format="nz"), *op.inputs[2:]))
            if kind_of(op).dense or kind_of(op).routed
            else op
            for op in ops
        )

    return in_layers(program, "weight_format", rewrite)


WEIGHTS = Pass(
    switch="weights",
    title="Quantised weights",
    off=("bf16", "fp16"),
    on="w8a8",
    rewrite=quantise_weights,
    rewrites="16-bit matmuls -> INT8 or INT4 weights, with quantised activations for a8",
    saves="half or three quarters of the weight bytes; the INT8 rate of the cube with a8",
    costs="quantise kernels, scales, some quality",
    claim="quantisation shrinks what is moved",
    name=("weights {value}", "权重 {value}"),
    label=("Weights and activations", "权重与激活"),
    help=("Weight and activation types of the linear layers.", "线性层的权重与激活类型。"),
)
WEIGHT_FORMAT = Pass(
    switch="weight_format",
    title="FRACTAL_NZ weights",
    off=("nd",),
    on="nz",
    rewrite=lay_out_weights,
    rewrites="row-major weights -> FRACTAL_NZ",
    saves="the conversion on the way into L1",
    costs="rates differ by shape: NZ can lose",
    claim="a layout helps some shapes and hurts others",
    name=("weight layout {value}", "权重布局 {value}"),
    label=("Weight layout", "权重布局"),
    help=(
        "Layout of the weights in memory: row-major, or FRACTAL_NZ.",
        "权重在内存中的布局：行优先 nd，或 FRACTAL_NZ。",
    ),
)
