"""The CPU: torch's own fused kernels, and torch.compile's where torch has none and a C++ compiler is present.

Everything runs when it is called, on one stream: an event is over as soon as it is recorded, and the time between two
marks is the call itself.
"""

from __future__ import annotations

import os
import platform
import shutil
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from device.operators import attention, elementwise, experts, kv, mla, norms, quant
from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.reference import REFERENCE, special
from device.step import Layout, Step
from scenarios.program import Op, Program, Tensor

if TYPE_CHECKING:
    from device.runner import Call, Unit

#: Fused kinds for which torch has no CPU kernel, with the switch that asks for them.
NEED_COMPILER = {
    "add_rms_norm": "fusion.add_rms_norm",
    "add_rms_norm_dynamic_quant": "fusion.add_rms_norm_quant",
    "rope": "fusion.rope",
    "swiglu": "fusion.swiglu",
    "qkv_norm_rope_cache": "fusion.qkv_norm_rope_cache",
}
#: Kinds of which a CPU has no one kernel at all: products that torch cannot join with what comes behind them.
NOT_ONE_KERNEL = {"ffn": "fusion.ffn", "matmul_all_reduce": "fusion.matmul_all_reduce"}

#: Shapes that one function may be compiled for; torch's own limit of 8 is for programs that should not have more.
MOST_SHAPES = 256


def compiler() -> str | None:
    """The C++ compiler that torch.compile would use, None where it or the headers of Python are missing."""
    found = next((path for name in (os.environ.get("CXX", ""), "g++", "clang++") if (path := shutil.which(name))), None)
    return found if (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file() else None


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as one kernel, made at its first call for each shape; plain inside what is being compiled anyway."""
    return function if torch.compiler.is_compiling() else _compiled(function)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.config.recompile_limit = MOST_SHAPES
    made: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False)
    return made


def _linear(op: Op, inputs: Inputs, _: Step) -> Outputs:
    return quant.split(op, F.linear(*inputs))


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
    mask = None if step.causal else step.visible
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=step.causal, enable_gqa=True)
    return (attention.by_token(y, step.layout).reshape(op.out.shape),)


def _quant_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    x, w, scale, row_scale, *bias = inputs
    product = torch._int_mm(x, quant.integers(w).t())
    return quant.split(op, quant.scaled(product, scale, row_scale, bias).to(step.dtypes[op.out.dtype]))


def _weight_quant_matmul(op: Op, inputs: Inputs, _: Step) -> Outputs:
    x, w, scale, *bias = inputs
    weight = quant.integers(w).to(x.dtype) * scale.unsqueeze(-1).to(x.dtype)
    return quant.split(op, F.linear(x, weight, *bias))


def _grouped_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    x, w, *scale = inputs

    def product(part: torch.Tensor, expert: int, _: slice) -> torch.Tensor:
        if not scale:
            return F.linear(part, w[expert])
        return F.linear(part, quant.integers(w[expert]).to(x.dtype) * scale[0][expert].unsqueeze(-1).to(x.dtype))

    return experts.by_expert(op, x, step, product)


def _quant_grouped_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    x, w, scale, row_scale = inputs

    def product(part: torch.Tensor, expert: int, rows: slice) -> torch.Tensor:
        integers = torch._int_mm(part, quant.integers(w[expert]).t())
        return quant.scaled(integers, scale[expert], row_scale[rows], ())

    return experts.by_expert(op, x, step, product)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: Layout, scale: float) -> torch.Tensor:
    mask = attention.visible_keys(layout, q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)


def _kv_b_proj(op: Op, inputs: Inputs, step: Step) -> Outputs:
    return (F.linear(mla.new_or_seen(op, inputs[0], step), inputs[1]),)


def _swiglu(_: Op, inputs: Inputs, __: Step) -> Outputs:
    return (compiled(elementwise.swiglu)(inputs[0]),)


def _rotate_both(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return norms.rotate(q, cos, sin), norms.rotate(k, cos, sin)


def _rope(_: Op, inputs: Inputs, __: Step) -> Outputs:
    made: Outputs = compiled(_rotate_both)(*inputs)
    return made


def _normed(function: Callable[..., Outputs], op: Op, inputs: Inputs, _: Step) -> Outputs:
    made: Outputs = compiled(function)(*inputs, norms.eps_of(op))
    return made


def _qkv_norm_rope_cache(op: Op, inputs: Inputs, _: Step) -> Outputs:
    made: Outputs = compiled(kv.norm_rope_cache)(list(inputs), op.out.shape[1], norms.eps_of(op))
    return made


#: What stands over the reference on a CPU.
KERNELS: dict[str, Kernel] = {
    "matmul": Kernel(_linear),
    "batch_matmul": Kernel(_batch_matmul, raw=True),
    "rms_norm": Kernel(_rms_norm, "fused"),
    "attention": Kernel(_attention, "fused", raw=True),
    "grouped_matmul": Kernel(_grouped_matmul, "composed"),
    "quant_grouped_matmul": Kernel(_quant_grouped_matmul, "composed"),
    "quant_matmul": Kernel(_quant_matmul, "composed"),
    "weight_quant_matmul": Kernel(_weight_quant_matmul, "composed"),
    "add_rms_norm": Kernel(partial(_normed, norms.add_rms_norm), "compiled"),
    "add_rms_norm_dynamic_quant": Kernel(partial(_normed, norms.add_rms_norm_dynamic_quant), "compiled"),
    "rope": Kernel(_rope, "compiled"),
    "swiglu": Kernel(_swiglu, "compiled"),
    "qkv_norm_rope_cache": Kernel(_qkv_norm_rope_cache, "compiled", raw=True),
}
#: The same for ops that latent attention means in its own way, by name.
NAMED = {
    "attention": Kernel(partial(mla.absorbed, by=_attend), "composed", raw=True),
    "prefill_attention": Kernel(partial(mla.unpacked, by=_attend), "composed", raw=True),
    "kv_b_proj": Kernel(_kv_b_proj, raw=True),
}
#: torch's attention reads neither block tables nor INT8: blocks are gathered and dequantised before it.
COMPOSED_ATTENTION = Kernel(_attention, "composed", raw=True)


class Cpu:
    """This machine's CPU, with as many threads as torch has been given."""

    name = "cpu"
    device = torch.device("cpu")
    streams = 1
    collectives = "gloo"

    def describe(self) -> dict[str, str | int]:
        return {
            "backend": self.name,
            "device": _processor(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "capability": torch.backends.cpu.get_cpu_capability(),
            "compiler": compiler() or "none",
        }

    def kernel(self, op: Op) -> Kernel:
        if found := special(op):
            return NAMED.get(op.name, found)
        if op.kind == "attention" and (op.attr("block_size") or op.inputs[1].dtype == "int8"):
            return COMPOSED_ATTENTION
        return KERNELS.get(op.kind) or REFERENCE[op.kind]

    def lacks(self, program: Program) -> list[str]:
        found: dict[str, str] = {}
        if program.graph != "eager" and compiler() is None:
            found["graph"] = "torch.compile captures a step, and there is no C++ compiler for it; set it to eager"
        ops = [op for block in program.blocks for whole in block.ops for op in (whole.parts or (whole,))]
        for op in ops:
            if op.kind in NEED_COMPILER and compiler() is None:
                what = f"torch has no {op.kind} kernel for a CPU, and there is no C++ compiler to make one"
                found[NEED_COMPILER[op.kind]] = f"{what}; set it to false"
            if op.kind in NOT_ONE_KERNEL:
                what = f"torch has no {op.kind} kernel for a CPU, nor can torch.compile make one"
                found[NOT_ONE_KERNEL[op.kind]] = f"{what}; set it to false"
            if op.kind == "prefetch":
                found["overlap.prefetch"] = "torch brings no weight into a CPU's cache ahead; set it to false"
            elif op.stream:
                found["overlap"] = f"{op.name} wants stream {op.stream}, and a CPU has one"
            if any(t.format == "nz" for t in op.inputs):
                found["weight_format"] = "FRACTAL_NZ is the layout of Ascend's cube; set it to nd"
        unknown = dict.fromkeys(op.kind for op in ops if op.kind not in REFERENCE)
        return [
            *(f"optimizations.{switch}: {why}" for switch, why in found.items()),
            *(f"model: its {kind} has no operator on a CPU in this version" for kind in unknown),
        ]

    def held(self, op: Op, tensor: Tensor, value: torch.Tensor, act: torch.dtype) -> torch.Tensor:
        return value

    def units(self, graph: str, calls: Sequence[Call], captures: dict[object, Any]) -> tuple[Unit, ...]:
        from device.graphs import units

        return units(calls, self.capture, captures)

    def free_bytes(self) -> int:
        try:
            with open("/proc/meminfo", encoding="ascii") as lines:
                fields = dict(line.split(":", 1) for line in lines)
            return int(fields["MemAvailable"].split()[0]) * 1024
        except (OSError, KeyError, ValueError):  # no Linux: what there is in all
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def synchronize(self) -> None:
        """Every call has ended when it returns."""

    def stream(self, number: int) -> AbstractContextManager[None]:
        if number:
            raise ValueError(f"stream {number}: a CPU has one stream")
        return nullcontext()

    def record(self) -> None:
        """Over at once."""

    def wait(self, event: None) -> None:
        """It is over."""

    def mark(self) -> tuple[int, int]:
        """(wall clock, this thread's own clock), ns."""
        return perf_counter_ns(), thread_time_ns()

    def capture(self, body: Callable[..., Any]) -> Callable[..., Any]:
        return compiled(body)

    def between_ns(self, start: tuple[int, int], end: tuple[int, int]) -> int:
        return end[0] - start[0]

    def busy_ns(self, start: tuple[int, int], end: tuple[int, int]) -> int:
        return end[1] - start[1]

    def own_ns(self) -> int:
        return thread_time_ns()


def _processor() -> str:
    """The CPU's name, as the system knows it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"
