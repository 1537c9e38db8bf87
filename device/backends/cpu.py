"""The CPU: torch's own fused kernels, and torch.compile's where torch has none and a C++ compiler is present.

Everything runs when it is called, on one stream: an event is over as soon as it is recorded, and the time between two
marks is the call itself.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

import torch

from device.operators import torch_calls
from device.operators.attention import by_runs
from device.operators.compiled import KERNELS as COMPILED
from device.operators.compiled import compiled
from device.operators.kernel import Kernel
from device.operators.reference import REFERENCE, ops_of, refusals, special
from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Op, Program, Tensor
from scenarios.passes import branches, collectives, micro_batches, prefetch
from scenarios.passes.base import Pass

if TYPE_CHECKING:
    from device.run.call import Call, Unit

#: The optimisation that puts work on a stream, by the stream; collectives have theirs from either of two.
STREAMS = {
    prefetch.STREAM: prefetch.PREFETCH,
    collectives.STREAM: collectives.COMM_CHUNKS,
    branches.SHARED_EXPERT_STREAM: branches.SHARED_EXPERT,
    branches.KEYS_STREAM: branches.STREAMS,
}


def stream_switch(program: Program, op: Op) -> Pass:
    """The optimisation that has put `op` on its stream."""
    if micro_batches.MICRO_BATCHES.switch in program.applied and op.stream == micro_batches.STREAM:
        return micro_batches.MICRO_BATCHES
    return STREAMS[op.stream]


def off(item: Pass) -> str:
    """The value that switches an optimisation off, as a scenario spells it."""
    return str(item.off[0]).lower()


def compiler() -> str | None:
    """The C++ compiler that torch.compile would use, None where it or the headers of Python are missing."""
    compiler = next(
        (path for name in (os.environ.get("CXX", ""), "g++", "clang++") if (path := shutil.which(name))), None
    )
    return compiler if (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file() else None


def _ragged(kernel: Kernel) -> Kernel:
    """torch has no attention over ragged batches for a CPU: one call for each run of requests that are alike."""
    return replace(kernel, compute=partial(by_runs, kernel.compute))


#: Options of glibc's mallopt, and what they are set to: more than a step frees; the largest that the second takes.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
TRIM_BYTES, MMAP_BYTES = 1 << 30, 32 << 20


def keep_freed_memory() -> None:
    """Have malloc keep what is freed, as a GPU's allocator of torch does and tcmalloc does under engines.

    glibc gives large blocks back to the system, by what happens to lie above them, and the next op pays more to get
    their pages again than it takes to write them: one mask of 4 MB took 4 ms in one process and 10 in another.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library, or Windows, keeps to its own ways
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)
        mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)


#: What stands over the reference on a CPU.
KERNELS: dict[str, Kernel] = {
    **torch_calls.KERNELS,
    **COMPILED,
    "attention": _ragged(torch_calls.KERNELS["attention"]),
}
COMPOSED_ATTENTION = _ragged(torch_calls.COMPOSED_ATTENTION)


class Cpu:
    """This machine's CPU, with as many threads as torch has been given."""

    name = "cpu"
    device = torch.device("cpu")
    streams = 1
    collectives = "gloo"
    devices = None

    def __init__(self) -> None:
        keep_freed_memory()

    def describe(self) -> dict[str, str | int]:
        return {
            "backend": self.name,
            "device": _processor(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "capability": torch.backends.cpu.get_cpu_capability(),
            "bf16_units": bf16_units(),
            "compiler": compiler() or "none",
        }

    def kernel(self, op: Op) -> Kernel:
        if kernel := special(op):
            return torch_calls.NAMED.get(op.name, kernel)
        if kind_of(op).family == "attention" and (op.attr("block_size") or op.inputs[1].dtype == "int8"):
            return COMPOSED_ATTENTION
        return KERNELS.get(op.kind) or REFERENCE[op.kind]

    def lacks(self, program: Program, model: Model) -> list[str]:
        lacking: dict[str, str] = {}
        if program.graph != "eager" and compiler() is None:
            lacking["graph"] = "torch.compile captures a step, and there is no C++ compiler for it; set it to eager"
        ops = ops_of(program)
        for op in ops:
            kind = kind_of(op)
            if kind.torch_kernel == "compiled" and compiler() is None:
                what = f"torch has no {op.kind} kernel for a CPU, and there is no C++ compiler to make one"
                lacking[kind.switch] = f"{what}; set it to false"
            if kind.torch_kernel == "none":
                what = f"torch has no {op.kind} kernel for a CPU, nor can torch.compile make one"
                lacking.setdefault(kind.switch, f"{what}; set it to false")
            if kind.unit == "copy":
                lacking[kind.switch] = "torch brings no weight into a CPU's cache ahead; set it to false"
            elif op.stream:
                switch = stream_switch(program, op)
                what = f"{op.name} wants stream {op.stream}, and a CPU has one"
                lacking.setdefault(switch.switch, f"{what}; set optimizations.{switch.switch} to {off(switch)}")
            if any(t.format == "nz" and t.role == "weight" for t in op.inputs):  # blocks of a cache lie its own way
                lacking["weight_format"] = "FRACTAL_NZ is the layout of Ascend's cube; set it to nd"
        return refusals(lacking, ops, "a CPU")

    def held(
        self, op: Op, tensor: Tensor, value: torch.Tensor, act: torch.dtype, others: Callable[[Tensor], torch.Tensor]
    ) -> torch.Tensor:
        return value

    def units(self, graph: str, calls: Sequence[Call], captures: dict[object, Any]) -> tuple[Unit, ...]:
        from device.run.graphs import units

        return units(calls, compiled, captures)

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

    def keep(self, x: torch.Tensor) -> None:
        """What has read it has ended."""

    def mark(self) -> tuple[int, int]:
        """(wall clock, this thread's own clock), ns."""
        return perf_counter_ns(), thread_time_ns()

    def queue(self, ns: float) -> bool:
        return False

    def is_done(self, mark: tuple[int, int]) -> bool:
        return True

    def between_ns(self, start: tuple[int, int], end: tuple[int, int]) -> int:
        return end[0] - start[0]

    def busy_ns(self, start: tuple[int, int], end: tuple[int, int]) -> int:
        return end[1] - start[1]

    def own_ns(self) -> int:
        return thread_time_ns()

    def profiler(self, folder: Path, rank: int, steps: int) -> Any:
        from device.backends.profiler import torch_profiler

        return torch_profiler(folder, rank, steps, on_gpu=False)


def bf16_units() -> str:
    """What multiplies 16-bit numbers on this CPU: without it a product of many rows takes 10 to 18 times as long."""
    asked = (("AMX", "_is_amx_tile_supported"), ("AVX512-BF16", "_is_avx512_bf16_supported"))
    names = [name for name, asks in asked if getattr(torch.cpu, asks, lambda: False)()]
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        flags = ""
    if not names and re.search(r"^Features\s*:.*\bbf16\b", flags, re.MULTILINE):  # as Arm spells it
        names = ["BF16"]
    return ", ".join(names) or "none"


def _processor() -> str:
    """The CPU's name, as the system knows it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"
