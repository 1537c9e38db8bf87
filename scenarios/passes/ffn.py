"""The feed-forward part of a layer as one kernel: npu_ffn."""

from __future__ import annotations

from scenarios.ops.program import Op, Program
from scenarios.passes.base import Context, Pass, in_layers, replace_runs


def fuse_ffn(program: Program, _: Context) -> Program:
    """Packed gate and up projection, SwiGLU, down projection -> one call on both weights."""

    def make(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        gate_up, swiglu, down = run
        chained = swiglu.inputs[0].name == gate_up.out.name and down.inputs[0].name == swiglu.out.name
        if not chained or len(gate_up.inputs) + len(down.inputs) > 4:
            return None
        (x, w1), (_, w2) = gate_up.inputs, down.inputs
        name = f"{down.name.removesuffix('down_proj')}ffn"
        return (Op("ffn", name, (x, w1, w2), down.outputs, (("activation", "swiglu"),)),)

    return in_layers(program, "fusion.ffn", lambda ops: replace_runs(ops, ("matmul", "swiglu", "matmul"), make))


def _without_prefetch(context: Context) -> str | None:
    if context.scenario.optimizations.overlap.prefetch:
        return "cannot be combined with overlap.prefetch: when npu_ffn reads prefetched weights is not modelled"
    return None


FFN = Pass(
    switch="fusion.ffn",
    title="Feed-forward layer as one kernel",
    rewrite=fuse_ffn,
    # With a gated activation npu_ffn takes float16 and row-major weights only, gate and up side by side.
    needs=(
        ("fusion.gate_up", (True,)),
        ("fusion.swiglu", (True,)),
        ("weights", ("fp16",)),
        ("weight_format", ("nd",)),
    ),
    refuse=_without_prefetch,
    rewrites="gate and up projection, SwiGLU, down projection -> npu_ffn",
    saves="two launches; the activation runs beside the first product",
    costs=(
        "no bytes are saved (a workspace in global memory joins the products); a fixed grid that may leave cores "
        "idle, blocks that are not loaded ahead, cores that wait for each other between the products"
    ),
    claim="deeper is not always faster",
    name=("whole feed-forward", "整个前馈层融合"),
    label=("Whole feed-forward", "整个前馈层"),
    help=(
        "Gate and up projection, SwiGLU and down projection -> npu_ffn (float16 only).",
        "gate/up 投影、SwiGLU 与 down 投影 → npu_ffn（仅 float16）。",
    ),
)
