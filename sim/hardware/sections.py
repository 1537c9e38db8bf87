"""What a hardware profile holds, section by section: plain frozen numbers, as the hot code reads them.

The fields live here once. `profile.py` makes the strict file schema from them, in which each number also carries its
source. Rates are decimal (GB/s = 1e9 bytes a second = bytes a nanosecond), capacities bytes, times as their suffix
says.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    """Cores, clock and on-chip memories of one die.

    cube_m, cube_n, cube_k: the block one cube core multiplies in a cycle (FP16; INT8 doubles K). vector_bytes: bytes
    one vector core computes on in a cycle. ub, l1, l0c: buffers of one core.
    """

    cube_cores: int
    vector_cores: int
    ai_cpu_cores: int
    clock_mhz: float
    cube_m: int
    cube_n: int
    cube_k: int
    vector_bytes: int
    ub_bytes: int
    l1_bytes: int
    l0c_bytes: int
    l2_bytes: int
    hbm_capacity_bytes: int

    @property
    def cube_flops_per_ns(self) -> float:
        """Peak of all cube cores on 16-bit inputs, flops per nanosecond (1000 = 1 TFLOPS)."""
        return 2.0 * self.cube_m * self.cube_n * self.cube_k * self.cube_cores * self.clock_mhz / 1000


@dataclass(frozen=True, slots=True)
class Memory:
    """Global memory.

    hbm_peak_gbps: of the stacks. hbm_gbps: what a kernel on all cores sustains. core_hbm_gbps: what one core can draw
    from HBM. core_l2_gbps, core_write_gbps: what one core reads from L2 and writes. core_random_gbps: what one core
    reads of rows scattered over HBM. core_kv_gbps: what one core reads of a KV cache. l2_read_gbps, l2_write_gbps: all
    cores together. l2_resident_share: part of L2 in which a kernel still finds what the kernels before it have
    written. cube_gbps: activations to and from the cube cores together. nz_flat_share: rate of FRACTAL_NZ weights in a
    matmul of at most 128 rows, of hbm_gbps; nd_tall_share: the same of row-major weights in one of more rows.
    """

    hbm_peak_gbps: float
    hbm_gbps: float
    core_hbm_gbps: float
    core_l2_gbps: float
    core_write_gbps: float
    core_random_gbps: float
    core_kv_gbps: float
    l2_read_gbps: float
    l2_write_gbps: float
    l2_resident_share: float
    cube_gbps: float
    nz_flat_share: float
    nd_tall_share: float


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel cost model's parameters that hold for every kernel; `sim/calibrate.py` re-derives the fitted ones.

    start_us: start and end of a kernel on one core. core_us: each core that it starts on. repeat_share: part of the
    instruction fetch that remains when the same program ran just before. register_cycles: cycles of one vector
    instruction over one register (256 bytes: 64 FP32 lanes). piece_ns: start of one DMA transfer on a core. burst_ns:
    each further run of memory in a strided transfer. cube_efficiency: part of its peak that the cube reaches inside a
    tile. tile_us: start of one output tile. split_us: combining the parts of a product that is split along K.
    """

    start_us: float
    core_us: float
    repeat_share: float
    register_cycles: float
    piece_ns: float
    burst_ns: float
    cube_efficiency: float
    tile_us: float
    split_us: float


@dataclass(frozen=True, slots=True)
class Program:
    """What one kernel program adds to its work; an effect that a profile does not name is 0.

    code_us: fetching its instructions on each core, unless the same program ran just before. fixed_us: synchronisation
    and set-up, once. row_us: each row (or attention task) on a core. element_ns: each element (attention: each score;
    quantised matmul: each dequantised element) on a core, beyond the counted vector operations. grain: fewest elements
    that a core is started for; 0 where a core takes whole rows. buffers: tiles in flight on a core, 2 (double
    buffering) or 1. cores_per_row: cores that share one row; 0 counts as 1.
    """

    code_us: float = 0.0
    fixed_us: float = 0.0
    row_us: float = 0.0
    element_ns: float = 0.0
    grain: int = 0
    buffers: int = 2
    cores_per_row: int = 0


@dataclass(frozen=True, slots=True)
class Host:
    """Host costs, microseconds.

    *_python_us: the Python thread per call, by class of call. enqueue, launch, tiling: the launch path.
    """

    aten_python_us: float
    matmul_python_us: float
    fused_op_python_us: float
    enqueue_us: float
    launch_us: float
    tiling_us: float
    synchronize_us: float
    model_execute_us: float
    input_copy_us: float
    attention_update_us: float
    jitter_sigma: float
    queue_depth: int


@dataclass(frozen=True, slots=True)
class Residual:
    """How wrong the model is: standard deviations of the logarithm of measured over predicted.

    matmul, attention, vector: one kernel signature of that family, whole shapes held out. device: all kernels of a
    device together (another board or clock). host: all host times together (another processor, another load).
    host_class: one class of host call against the others.
    """

    matmul_sigma: float
    attention_sigma: float
    vector_sigma: float
    device_sigma: float
    host_sigma: float
    host_class_sigma: float


@dataclass(frozen=True, slots=True)
class Graph:
    """Graph replay on the device, and what capture and compile cost."""

    node_gap_ns: float
    mix_gap_ns: float
    replay_node_gap_ns: float
    start_us: float
    capture_node_us: float
    compile_node_us: float
    compile_fixed_us: float
    trace_fixed_us: float
