"""RMSNorm as one kernel, and the residual add inside it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

from scenarios.ops.program import Op, Program, Tensor
from scenarios.passes.base import Context, Pass, each_block, replace_runs

RMS_NORM_CALLS = ("cast", "pow", "reduce_mean", "adds", "rsqrt", "mul", "cast", "mul")


def _fuse_norm(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
    cast, mean, scale = run[0], run[2], run[7]
    x, gamma = cast.inputs[0], scale.inputs[1]
    chained = all(a.out.name in {t.name for t in b.inputs} for a, b in pairwise(run))
    if not chained or gamma.role != "weight":
        return None
    name = cast.name.rsplit(".", 1)[0]
    rstd = Tensor(f"{name}.rstd", mean.out.shape, "fp32")
    return (Op("rms_norm", name, (x, gamma), (scale.out, rstd), (("eps", run[3].attr("value")),)),)


def fuse_rms_norm(program: Program, _: Context) -> Program:
    return each_block(program, "fusion.rms_norm", lambda ops: replace_runs(ops, RMS_NORM_CALLS, _fuse_norm))


def _fuse_add(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
    add, norm = run
    if norm.inputs[0].name != add.out.name:
        return None
    y, rstd = norm.outputs
    rows = Tensor(rstd.name, (prod(add.out.shape[:-1]), 1), "fp32")
    # Three outputs: the third is the new residual, which the next add still needs.
    return (Op("add_rms_norm", norm.name, (*add.inputs, norm.inputs[1]), (y, rows, add.out), norm.attrs),)


def _fuse_add_and_calls(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
    norm = _fuse_norm(run[1:])
    return None if norm is None else _fuse_add((run[0], *norm))


def fuse_add_rms_norm(program: Program, _: Context) -> Program:
    """Works on a norm of primitive calls as well as on a fused one: the two switches are independent."""

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        ops = replace_runs(ops, ("add", *RMS_NORM_CALLS), _fuse_add_and_calls)
        return replace_runs(ops, ("add", "rms_norm"), _fuse_add)

    return each_block(program, "fusion.add_rms_norm", rewrite)


def _fuse_quant(run: tuple[Op, ...]) -> tuple[Op, ...] | None:
    norm, quant = run
    if quant.inputs[0].name != norm.out.name:
        return None
    quantised, scale = quant.outputs
    outputs = (quantised, norm.outputs[2], scale)
    return (replace(norm, kind="add_rms_norm_dynamic_quant", outputs=outputs, op_type=""),)


def fuse_add_rms_norm_quant(program: Program, _: Context) -> Program:
    return each_block(
        program,
        "fusion.add_rms_norm_quant",
        lambda ops: replace_runs(ops, ("add_rms_norm", "dynamic_quant"), _fuse_quant),
    )


RMS_NORM = Pass(
    switch="fusion.rms_norm",
    title="RMSNorm as one kernel",
    rewrite=fuse_rms_norm,
    rewrites="cast, pow, mean, add, rsqrt, mul, cast, mul -> npu_rms_norm",
    saves="seven launches and the round trips of float32 intermediates",
    costs="one more small output (rstd)",
    claim="fusion saves launches and round trips, not arithmetic",
    name=("fused RMSNorm", "融合 RMSNorm"),
    label=("RMSNorm", "RMSNorm"),
    help=("RMSNorm's eight primitive calls -> npu_rms_norm.", "RMSNorm 的八次基础调用 → npu_rms_norm。"),
)
ADD_RMS_NORM = Pass(
    switch="fusion.add_rms_norm",
    title="Add + RMSNorm",
    rewrite=fuse_add_rms_norm,
    rewrites="add, RMSNorm -> npu_add_rms_norm (three outputs, the residual is the third)",
    saves="one launch and one read of the sum",
    costs="the whole row must stay in UB",
    claim="the sum is reused on chip; the residual is still written once",
    name=("fused Add + RMSNorm", "融合 Add + RMSNorm"),
    label=("Add + RMSNorm", "Add + RMSNorm"),
    help=("Residual add and RMSNorm -> npu_add_rms_norm.", "残差相加与 RMSNorm → npu_add_rms_norm。"),
)
ADD_RMS_NORM_QUANT = Pass(
    switch="fusion.add_rms_norm_quant",
    title="Add + RMSNorm + quantise",
    rewrite=fuse_add_rms_norm_quant,
    needs=(("fusion.add_rms_norm", (True,)), ("weights", ("w8a8", "w4a8"))),
    rewrites="npu_add_rms_norm, npu_dynamic_quant -> npu_add_rms_norm_dynamic_quant",
    saves="one launch and a round trip of the normed activations",
    costs="more UB; deeper is not always faster",
    claim="fusion saves launches and round trips, not arithmetic",
    name=("Add + RMSNorm + quantise", "Add + RMSNorm + 量化"),
    label=("Add + RMSNorm + quantise", "Add + RMSNorm + 量化"),
    help=(
        "Residual add, RMSNorm and dynamic quantisation -> npu_add_rms_norm_dynamic_quant (with w8a8 or w4a8).",
        "残差相加、RMSNorm 与动态量化合一（配合 w8a8 或 w4a8）。",
    ),
)
