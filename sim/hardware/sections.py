"""What a hardware profile holds, section by section: plain frozen numbers, as the hot code reads them.

The fields live here once. `profile.py` makes the strict file schema from them, in which each number also carries its
source. Rates are decimal (GB/s = 1e9 bytes a second = bytes a nanosecond), capacities bytes, times as their suffix
says.
"""

from __future__ import annotations

from scenarios.records import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    """Cores, clock and on-chip memories of one die.

    cube_m, cube_n, cube_k: the block one cube core multiplies in a cycle (FP16; INT8 doubles K). vector_bytes: bytes
    one vector core computes on in a cycle. ub, l1, l0c: buffers of one core. hbm_capacity: of the stacks; hbm_visible:
    what software is given of it, the total that torch reports.
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
    hbm_visible_bytes: int

    @property
    def cube_flops_per_ns(self) -> float:
        """Peak of all cube cores on 16-bit inputs, flops per nanosecond (1000 = 1 TFLOPS)."""
        return 2.0 * self.cube_m * self.cube_n * self.cube_k * self.cube_cores * self.clock_mhz / 1000


@dataclass(frozen=True, slots=True)
class Memory:
    """Global memory.

    hbm_peak_gbps: of the stacks. hbm_gbps: what a kernel on all cores sustains. core_hbm_gbps: what one core can draw
    from HBM. core_l2_gbps, core_write_gbps: what one core reads from L2 and writes. core_random_gbps: what one core
    reads of rows scattered over HBM. core_kv_gbps: what one core draws of a static KV cache from HBM; far_kv_gbps: what
    all cores together read of a layer's KV cache that L2 cannot hold. l2_read_gbps: all cores together.
    l2_resident_share: part of L2 in which a kernel still finds what the kernels before it have written. vector_l2_gbps:
    a vector kernel's reads and writes together where L2 holds them; vector_hbm_share: part of hbm_gbps that it, and
    attention over a static cache, draws in a network where L2 does not. nz_flat_share: rate of FRACTAL_NZ weights in a
    matmul of at most 128 rows, of hbm_gbps; nd_tall_share: the same of row-major weights in one of more rows;
    nd_odd_share: of row-major 16-bit weights of few rows where the length of a row is no power of two.
    """

    hbm_peak_gbps: float
    hbm_gbps: float
    core_hbm_gbps: float
    core_l2_gbps: float
    core_write_gbps: float
    core_random_gbps: float
    core_kv_gbps: float
    far_kv_gbps: float
    l2_read_gbps: float
    l2_resident_share: float
    vector_l2_gbps: float
    vector_hbm_share: float
    nz_flat_share: float
    nd_tall_share: float
    nd_odd_share: float


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel cost model's parameters that hold for every kernel; `sim/fitting/shipped.py` re-derives the fitted
    ones.

    start_us, core_us: start and end of a kernel on one core, and each core more, where no program says otherwise.
    static_share: part of a vector kernel's cost a core that remains where a graph compiler made it for its shapes,
    warm_share: where, moreover, its code is still in L2, twin_share: where the kernel just before left it in the cores.
    register_cycles:
    cycles of one vector instruction over one register (256 bytes: 64 FP32 lanes).
    cube_efficiency: part of its peak that the cube reaches inside a tile. overlap_power: how a
    product's multiplying and streaming add up: the exponent of a p-norm, 1 for one after the other. jitter_sigma:
    log-normal spread of one kernel's time from run to run, which other ranks wait for; long kernels spread no more
    than one of jitter_cap_us.
    """

    start_us: float
    core_us: float
    static_share: float
    warm_share: float
    twin_share: float
    register_cycles: float
    cube_efficiency: float
    overlap_power: float
    jitter_sigma: float
    jitter_cap_us: float


@dataclass(frozen=True, slots=True)
class KernelParams:
    """What one kernel program adds to its work; an effect that a profile does not name is 0.

    Of a vector kernel (`sim.kernel.vector`): start_us: its start and end. core_us: each core that it starts on.
    element_ns: each element of the fullest core. rows_multiple: rows that a core takes at once (ArgMax of CANN 8.5:
    8), 0 counts as 1.

    Of a kernel on the cube cores: fixed_us: start and set-up, once. row_us: each attention task on a core. combine_us:
    joining the parts into which the keys of decode attention are cut. element_ns: each score of an attention, each
    dequantised element of a product.

    On a CPU only fixed_us, row_us, element_ns and mac_ns count, each for what `sim.kernel.cpu.effects` says; mac_ns:
    each multiply-add.
    """

    start_us: float = 0.0
    core_us: float = 0.0
    rows_multiple: int = 0
    fixed_us: float = 0.0
    row_us: float = 0.0
    combine_us: float = 0.0
    element_ns: float = 0.0
    mac_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Host:
    """Host costs, microseconds.

    *_python_us: the Python thread per call, by class of call; a collective's holds the work of torch.distributed and of
    HCCL's task building. enqueue, launch, tiling: the launch path. rank_skew_us:
    mean time by which the host of one rank starts a step later than the first.
    """

    aten_python_us: float
    matmul_python_us: float
    fused_op_python_us: float
    collective_python_us: float
    enqueue_us: float
    launch_us: float
    tiling_us: float
    synchronize_us: float
    model_execute_us: float
    input_copy_us: float
    attention_update_us: float
    jitter_sigma: float
    rank_skew_us: float
    queue_depth: int


@dataclass(frozen=True, slots=True)
class Residual:
    """How wrong the model is: standard deviations of the logarithm of measured over predicted.

    matmul, attention, vector: one kernel signature of that family, whole shapes held out. device: all kernels of a
    device together (another board or clock). host: all host times together (another processor, another load).
    host_class: one class of host call against the others. rank_skew: how rank skew start, from one measurement to
    another.
    """

    matmul_sigma: float
    attention_sigma: float
    vector_sigma: float
    device_sigma: float
    host_sigma: float
    host_class_sigma: float
    rank_skew_sigma: float


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


@dataclass(frozen=True, slots=True)
class Collective:
    """Links between dies, and what HCCL's collectives cost on them.

    dies_per_card, dies_per_server, dies_per_pod: how dies are grouped; a pod is what HCCS reaches without RoCE.
    full_mesh: 1 where each two dies of a server have a link of their own, 0 where each die has one port to a switch.
    ai_cpu_default: 1 where HCCL expands on the AI CPU unless told otherwise, 0 where the host does.

    Rates, in one direction: hccs_peak_gbps of the link (full mesh) or port on paper. hccs_gbps, sio_gbps, pod_gbps,
    roce_gbps: what copies sustain inside a server, between the two dies of a card, between servers of a pod, beyond.
    aiv_gbps: what all vector cores of a die pull from other dies; aiv_core_gbps: one of them. reduce_gbps,
    aiv_reduce_gbps: reducing what arrives, next to receiving it. hccs_us, sio_us, pod_us, roce_us: latency of a
    message.

    Times: *_start_us: before the first byte, by expansion mode; ai_cpu_idle_us more where the device was idle, so that
    nothing hides the expansion. step_us, reduce_step_us: one step of an algorithm made of copies, and what a reducing
    one takes more. aiv_step_us: one phase of a kernel on vector cores. inter_choice_us: latency that HCCL assumes when
    it chooses between algorithms over servers.

    Cores: aiv_cores_per_rank; aiv_min_cores, aiv_min_reduce_cores, aiv_max_cores: limits.

    Thresholds, bytes: aiv_*_bytes: largest message on vector cores inside a server (all-gather and all-to-all: a
    rank's or a peer's share; reduce-scatter: what one rank keeps; all-reduce: the message over the ranks),
    aiv_graph_bytes the same in a whole graph; aiv_pod_*_bytes over servers of a pod, 0 for never.
    aiv_one_shot_bytes, one_shot_bytes: largest all-reduce in which each rank reads all others' whole message.
    flat_bytes: largest message, by dies of a server, for which ranks of several servers form one flat NHR.

    In a network: aiv_busy_share: what vector cores take longer for the bytes when their data come from other kernels
    instead of from the benchmark's last turn. arrival_us, arrival_mean_us: what ranks add by not arriving together,
    median and mean. exchange_flag_us, exchange_row_us: of experts' tokens (`sim.kernel.exchange`): what each peer
    adds, and what a core takes to place a row. sigma: standard deviation of the logarithm of measured over predicted.
    """

    dies_per_card: int
    dies_per_server: int
    dies_per_pod: int
    full_mesh: int
    ai_cpu_default: int
    hccs_peak_gbps: float
    hccs_gbps: float
    hccs_us: float
    sio_gbps: float
    sio_us: float
    pod_gbps: float
    pod_us: float
    roce_gbps: float
    roce_us: float
    host_start_us: float
    ai_cpu_start_us: float
    ai_cpu_idle_us: float
    step_us: float
    reduce_step_us: float
    reduce_gbps: float
    aiv_step_us: float
    aiv_gbps: float
    aiv_core_gbps: float
    aiv_reduce_gbps: float
    aiv_cores_per_rank: int
    aiv_min_cores: int
    aiv_min_reduce_cores: int
    aiv_max_cores: int
    aiv_all_reduce_bytes: int
    aiv_all_gather_bytes: int
    aiv_reduce_scatter_bytes: int
    aiv_all_to_all_bytes: int
    aiv_graph_bytes: int
    aiv_pod_all_reduce_bytes: int
    aiv_pod_all_gather_bytes: int
    aiv_pod_reduce_scatter_bytes: int
    aiv_pod_all_to_all_bytes: int
    aiv_one_shot_bytes: int
    one_shot_bytes: int
    flat_bytes: int
    inter_choice_us: float
    aiv_busy_share: float
    arrival_us: float
    arrival_mean_us: float
    exchange_flag_us: float
    exchange_row_us: float
    sigma: float
