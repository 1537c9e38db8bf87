"""Packed projections: several matmuls that read one input become one."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from scenarios.ops.program import Op, Program, Tensor
from scenarios.passes.base import Context, Pass, in_layers, replace_runs


def _packed(run: tuple[Op, ...], name: str) -> tuple[Tensor, tuple[Tensor, ...], int] | None:
    """(input, [packed weight, packed bias], width) where all of `run` read one input; else None."""
    x = run[0].inputs[0]
    if any(op.inputs[0].name != x.name for op in run):
        return None
    width = sum(op.inputs[1].shape[-2] for op in run)
    held = run[0].inputs[1].shape[:-2]  # (experts,) of a grouped product
    packed = [Tensor(f"{name}.weight", (*held, width, x.shape[-1]), x.dtype, "weight")]
    if len(run[0].inputs) > 2:
        packed.append(Tensor(f"{name}.bias", (*held, width), x.dtype, "weight"))
    return x, tuple(packed), width


def _cut(packed: str, parts: tuple[Tensor, ...]) -> tuple[Op, ...]:
    """One slice for each of `parts`, which lie side by side in the last dimension of `packed`."""
    ends = accumulate(part.shape[-1] for part in parts)
    return tuple(
        Op(
            "slice",
            f"slice_{out.name}",
            (Tensor(packed, out.shape, out.dtype),),
            (out,),
            (("start", end - out.shape[-1]),),
        )
        for out, end in zip(parts, ends, strict=True)
    )


def pack_qkv(program: Program, _: Context) -> Program:
    """Three projections of grouped-query attention, or the two low-rank ones of MLA."""

    def qkv(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        parts = _packed(run, "qkv_proj")
        if parts is None or run[0].name not in ("q_proj", "q_a_proj"):
            return None
        x, weights, width = parts
        tokens = x.shape[0]
        outs = tuple(op.out for op in run)
        if tokens == 1:
            # Slices of one row are contiguous: q, k and v are views, no kernel is needed.
            return (Op("matmul", "qkv_proj", (x, *weights), outs),)
        qkv = Tensor("qkv", (tokens, width), x.dtype)
        return (Op("matmul", "qkv_proj", (x, *weights), (qkv,)), *_cut("qkv", outs))

    def low_rank(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        """The parts of kv_a are cut from a product in any case; the query's part is one more."""
        parts = _packed(run, "qkv_a_proj")
        if parts is None or [op.name for op in run] != ["q_a_proj", "kv_a_proj"]:
            return None
        x, weights, width = parts
        query = run[0].out
        product = Op("matmul", "qkv_a_proj", (x, *weights), (Tensor("qkv_a", (x.shape[0], width), x.dtype),))
        part = Tensor("qkv_a", query.shape, query.dtype)
        return (product, Op("slice", "slice_q_a", (part,), (query,), (("start", 0),)))

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        if any(op.name == "kv_a_proj" for op in ops):
            packed = replace_runs(ops, ("matmul",) * 2, low_rank)
            return packed if packed == ops else tuple(_reads(op, "kv_a", "qkv_a") for op in packed)
        if any(op.name == "k_proj" for op in ops):
            width = sum(op.name in ("q_proj", "q_a_proj", "k_proj", "v_proj") for op in ops)
            return replace_runs(ops, ("matmul",) * width, qkv)
        return ops

    return in_layers(program, "fusion.qkv", rewrite)


def _reads(op: Op, name: str, other: str) -> Op:
    """`op` with what it reads of `name` read from `other`, where a packed product has taken its place."""
    inputs = tuple(replace(t, name=other) if t.name == name else t for t in op.inputs)
    return replace(op, inputs=inputs)


#: What an activation starts with, behind gate and up.
_AFTER_GATE = ("silu", "gelu", "clamp")


def pack_gate_up(program: Program, _: Context) -> Program:
    """In a plain MLP, in each expert by itself and in all experts together."""

    def make(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
        gate, up, after = run
        prefix = gate.name.removesuffix("gate_proj")
        parts = _packed((gate, up), f"{prefix}gate_up_proj")
        if parts is None:
            return None
        x, weights, width = parts
        name = f"{prefix}gate_up"
        packed = Tensor(name, (x.shape[0], width), x.dtype)
        cut = _cut(name, (gate.out, up.out))
        return (replace(gate, name=f"{name}_proj", inputs=(x, *weights), outputs=(packed,)), *cut, after)

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        for product in ("matmul", "grouped_matmul"):
            for after in _AFTER_GATE:
                ops = replace_runs(ops, (product, product, after), make)
        return ops

    return in_layers(program, "fusion.gate_up", rewrite)


QKV = Pass(
    switch="fusion.qkv",
    title="Packed QKV projection",
    rewrite=pack_qkv,
    rewrites="q, k and v (MLA: q_a and kv_a) projections -> one matmul (and slices where there are several tokens)",
    saves="two launches; a wider matmul fills more cores",
    costs="copies of the slices when there are several tokens",
    claim="fewer, larger kernels read the same weight bytes",
    name=("packed QKV", "合并 QKV 投影"),
    label=("Packed QKV", "合并 QKV 投影"),
    help=("Query, key and value projections packed into one matmul.", "Q、K、V 三个投影合并为一次矩阵乘。"),
)
GATE_UP = Pass(
    switch="fusion.gate_up",
    title="Packed gate and up projection",
    rewrite=pack_gate_up,
    rewrites="gate and up projections -> one matmul",
    saves="one launch",
    costs="two slices unless the SwiGLU that follows is fused too",
    claim="fewer, larger kernels read the same weight bytes",
    name=("packed gate and up", "合并 gate 与 up"),
    label=("Packed gate and up", "合并 gate 与 up"),
    help=("Gate and up projections packed into one matmul.", "gate 与 up 投影合并为一次矩阵乘。"),
)
