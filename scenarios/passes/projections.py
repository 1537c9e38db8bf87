"""Packed projections: several matmuls that read one input become one."""

from __future__ import annotations

from itertools import accumulate

from scenarios.passes.base import Context, Pass, in_block, never, replace_runs
from scenarios.program import Op, Program, Tensor


def _packed(run: tuple[Op, ...], name: str) -> tuple[Tensor, tuple[Tensor, ...], int] | None:
    """(input, [packed weight, packed bias], width) where all of `run` read one input; else None."""
    x = run[0].inputs[0]
    if any(op.inputs[0].name != x.name for op in run):
        return None
    width = sum(op.inputs[1].shape[0] for op in run)
    packed = [Tensor(f"{name}.weight", (width, x.shape[-1]), x.dtype, "weight")]
    if len(run[0].inputs) > 2:
        packed.append(Tensor(f"{name}.bias", (width,), x.dtype, "weight"))
    return x, tuple(packed), width


def _cut(packed: str, parts: tuple[Tensor, ...]) -> tuple[Op, ...]:
    """One slice for each of `parts`, which lie side by side in the last dimension of `packed`."""
    ends = accumulate(part.shape[-1] for part in parts)
    return tuple(
        Op("slice", f"slice_{out.name}", (Tensor(packed, out.shape, out.dtype),), (out,),
           (("start", end - out.shape[-1]),))
        for out, end in zip(parts, ends, strict=True)
    )  # fmt: skip


def pack_qkv(program: Program, _: Context) -> Program:
    def make(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        found = _packed(run, "qkv_proj")
        if found is None:
            return None
        x, weights, width = found
        tokens = x.shape[0]
        outs = tuple(op.out for op in run)
        if tokens == 1:
            # Slices of one row are contiguous: q, k and v are views, no kernel is needed.
            return (Op("matmul", "qkv_proj", (x, *weights), outs),)
        qkv = Tensor("qkv", (tokens, width), x.dtype)
        return (Op("matmul", "qkv_proj", (x, *weights), (qkv,)), *_cut("qkv", outs))

    return in_block(program, "layers", "fusion.qkv", lambda ops: replace_runs(ops, ("matmul",) * 3, make))


def pack_gate_up(program: Program, _: Context) -> Program:
    def make(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        gate, up, silu = run
        found = _packed((gate, up), "gate_up_proj")
        if found is None:
            return None
        x, weights, width = found
        packed = Tensor("gate_up", (x.shape[0], width), x.dtype)
        return (Op("matmul", "gate_up_proj", (x, *weights), (packed,)), *_cut("gate_up", (gate.out, up.out)), silu)

    return in_block(
        program, "layers", "fusion.gate_up", lambda ops: replace_runs(ops, ("matmul", "matmul", "silu"), make)
    )


QKV = Pass(
    "fusion.qkv", "Packed QKV projection", (False,), True, pack_qkv, (), never,
    rewrites="q, k and v projections -> one matmul (and a split where there is more than one token)",
    saves="two launches; a wider matmul fills more cores",
    costs="copies of the slices when there are several tokens",
    claim="fewer, larger kernels read the same weight bytes",
)  # fmt: skip
GATE_UP = Pass(
    "fusion.gate_up", "Packed gate and up projection", (False,), True, pack_gate_up, (), never,
    rewrites="gate and up projections -> one matmul",
    saves="one launch",
    costs="two slices unless the SwiGLU that follows is fused too",
    claim="fewer, larger kernels read the same weight bytes",
)  # fmt: skip
