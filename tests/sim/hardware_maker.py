"""A small device and host with round numbers, for times that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from scenarios.ops.catalogue import CATALOGUE
from scenarios.ops.work import Work
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.kernel.time import KernelTime, Lane

#: Host costs in us, gaps in ns: easy to distinguish in a sum.
HOST = {
    "aten_python_us": 20.0, "matmul_python_us": 30.0, "fused_op_python_us": 40.0,
    "collective_python_us": 40.0, "enqueue_us": 5.0, "launch_us": 10.0,
    "tiling_us": 6.0, "synchronize_us": 7.0, "model_execute_us": 50.0, "input_copy_us": 100.0,
    "attention_update_us": 90.0, "jitter_sigma": 0.0, "rank_skew_us": 0.0, "queue_depth": 4096,
}  # fmt: skip
GRAPH = {
    "node_gap_ns": 30.0, "mix_gap_ns": 1000.0, "replay_node_gap_ns": 500.0, "start_us": 25.0, "capture_node_us": 60.0,
    "compile_node_us": 1000.0, "compile_fixed_us": 2_000_000.0, "trace_fixed_us": 3_000_000.0,
}  # fmt: skip


def hardware(name: str = "atlas_a2_910b2", **numbers: float) -> HardwareProfile:
    """The profile with the round numbers above and `numbers` on top, as hardware(host__launch_us=3)."""
    loaded = load_hardware(name)
    changed: dict[str, dict[str, float]] = {"host": dict(HOST), "graph": dict(GRAPH)}
    for path, value in numbers.items():
        section, _, field = path.partition("__")
        changed.setdefault(section, {})[field] = value
    sections = {section: replace(getattr(loaded, section), **fields) for section, fields in changed.items()}
    return replace(loaded, **sections)


#: Durations of the stub below by the cores that run a kernel, ns.
FLAT_NS = {"cube": 10_000, "mix": 20_000, "vector": 2_000, "ai_cpu": 50_000, "copy": 1_000}
LANES: dict[str, Lane] = {"cube": "AI_CORE", "mix": "MIX_AIC", "vector": "AI_VECTOR_CORE", "ai_cpu": "AI_CPU"}


def flat_price(work: Work, *_: object, **__: object) -> KernelTime:
    """In place of `sim.kernel.price.price`: every kernel of one kind of cores takes one time, whatever its work."""
    return KernelTime(FLAT_NS[work.unit], LANES[work.unit], 8, "hbm", work.gm_bytes, work.gm_bytes, work.cube_flops, 1)


def unit_of(kind: str) -> str:
    return CATALOGUE[kind].unit
