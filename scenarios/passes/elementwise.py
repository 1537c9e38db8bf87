"""RoPE and SwiGLU as one kernel each, and SwiGLU with the quantisation around it."""

from __future__ import annotations

from dataclasses import replace

from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Op, Program, Tensor
from scenarios.passes.base import Context, Pass, in_block, in_layers, replace_runs

ROTATE_CALLS = ("mul", "slice", "neg", "slice", "concat", "mul", "add")
ANGLE_CALLS = ("mul", "concat", "cos", "sin", "cast", "cast")


def fuse_rope(program: Program, context: Context) -> Program:
    """Both rotations of a layer -> one call; the angles of a step -> two look-ups in tables made once."""
    scenario = context.scenario
    rows = scenario.engine.positions(context.model.max_position, scenario.longest_request_tokens)

    def rope(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        (q, cos), k = run[0].inputs, run[len(ROTATE_CALLS)].inputs[0]
        sin, q_out, k_out = run[5].inputs[1], run[len(ROTATE_CALLS) - 1].out, run[-1].out
        name = "index_rope" if run[0].name.startswith("index_rope") else "rope"
        return (Op("rope", name, (q, k, cos, sin), (q_out, k_out), (("layout", "TND"),)),)

    def look_up(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        positions = run[0].inputs[0]
        ops = []
        for cast, name in zip(run[4:], ("cos", "sin"), strict=True):
            width, which = cast.out.shape[-1], cast.out.name.removeprefix(name)
            table = Tensor(f"{cast.out.name}_table", (rows, width), cast.out.dtype, "table")
            ops.append(Op("index_select", f"rotary{which}.{name}_lookup", (table, positions), (cast.out,)))
        return tuple(ops)

    program = in_block(program, "embed", "", lambda ops: replace_runs(ops, ANGLE_CALLS, look_up))
    return in_layers(program, "fusion.rope", lambda ops: replace_runs(ops, ROTATE_CALLS * 2, rope))


def fuse_swiglu(program: Program, _: Context) -> Program:
    """silu(gate) * up -> one call on the packed tensor; separate gate and up are first laid side by side."""

    def swiglu_of(mul: Op) -> str:
        return f"{mul.name.removesuffix('mul_up')}swiglu"

    def with_slices(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        mul = run[3]
        source = run[0].inputs[0]
        tokens, half = mul.out.shape
        packed = Tensor(source.name, (tokens, 2 * half), source.dtype)
        return (Op("swiglu", swiglu_of(mul), (packed,), (mul.out,), (("dim", -1),)),)

    def apart(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        silu, mul = run
        gate, up = silu.inputs[0], mul.inputs[1]
        prefix = mul.name.removesuffix("mul_up")
        packed = Tensor(f"{prefix}gate_up", (gate.shape[0], 2 * gate.shape[1]), gate.dtype)
        return (
            Op("concat", f"{prefix}concat_gate_up", (gate, up), (packed,)),
            Op("swiglu", swiglu_of(mul), (packed,), (mul.out,), (("dim", -1),)),
        )

    program = in_layers(program, "", lambda o: replace_runs(o, ("slice", "slice", "silu", "mul"), with_slices))
    return in_layers(program, "fusion.swiglu", lambda o: replace_runs(o, ("silu", "mul"), apart))


def fuse_swiglu_quant(program: Program, _: Context) -> Program:
    """Product with its scales, SwiGLU, quantisation -> the bare sums, and one call that scales, gates and quantises."""

    def make(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        product, swiglu, quant = run
        chained = swiglu.inputs[0].name == product.out.name and quant.inputs[0].name == swiglu.out.name
        if not chained or len(product.inputs) != 4 or product.inputs[1].dtype != "int8":
            return None
        x, weight, scale, row_scale = product.inputs
        sums = replace(product.out, dtype="int32")
        # The dense product's call wants scales in any case; the one of experts does not.
        dense = kind_of(product).dense
        kept = (x, weight, scale) if dense else (x, weight)
        attrs = () if dense else product.attrs
        return (
            replace(product, inputs=kept, outputs=(sums,)),
            Op("dequant_swiglu_quant", swiglu.name, (sums, scale, row_scale), quant.outputs, attrs),
        )

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        for product in ("quant_matmul", "quant_grouped_matmul"):
            ops = replace_runs(ops, (product, "swiglu", "dynamic_quant"), make)
        return ops

    return in_layers(program, "fusion.swiglu_quant", rewrite)


ROPE = Pass(
    switch="fusion.rope",
    title="RoPE as one kernel",
    rewrite=fuse_rope,
    rewrites=(
        "ten elementwise calls on q and k, and the copies of halves they need -> npu_apply_rotary_pos_emb; "
        "the angles become table look-ups"
    ),
    saves="thirteen kernels a layer and the round trips between them",
    costs="the layout must be given; q and k are rewritten in place",
    claim="fusion saves launches and round trips, not arithmetic",
    name=("fused RoPE", "融合 RoPE"),
    label=("RoPE", "RoPE"),
    help=(
        "Rotary embedding of query and key -> npu_apply_rotary_pos_emb.",
        "Q 与 K 的旋转位置编码 → npu_apply_rotary_pos_emb。",
    ),
)
SWIGLU = Pass(
    switch="fusion.swiglu",
    title="SwiGLU as one kernel",
    rewrite=fuse_swiglu,
    rewrites="(slices,) silu, mul -> npu_swiglu",
    saves="one to three launches a layer and the round trip of silu(gate)",
    costs="wants gate and up side by side: without fusion.gate_up a concat is added, which can eat the gain",
    claim="deeper is not always faster",
    name=("fused SwiGLU", "融合 SwiGLU"),
    label=("SwiGLU", "SwiGLU"),
    help=("SiLU and multiply -> npu_swiglu.", "SiLU 与乘法 → npu_swiglu。"),
)
SWIGLU_QUANT = Pass(
    switch="fusion.swiglu_quant",
    title="Dequantise + SwiGLU + quantise",
    rewrite=fuse_swiglu_quant,
    needs=(("fusion.gate_up", (True,)), ("fusion.swiglu", (True,)), ("weights", ("w8a8",))),
    rewrites="scales of the gate and up product, npu_swiglu, npu_dynamic_quant -> npu_dequant_swiglu_quant",
    saves="one launch and the round trip of the gated activations",
    costs="the product writes sums of 32 bits instead of values of 16",
    claim="deeper is not always faster",
    name=("dequantise + SwiGLU + quantise", "反量化 + SwiGLU + 量化"),
    label=("Dequantise + SwiGLU + quantise", "反量化 + SwiGLU + 量化"),
    help=(
        "Dequantisation of the gate's sums, SwiGLU and dynamic quantisation -> npu_dequant_swiglu_quant (with w8a8).",
        "反量化、SwiGLU 与动态量化 → npu_dequant_swiglu_quant（配合 w8a8）。",
    ),
)
