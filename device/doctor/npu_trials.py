"""What only an NPU can show, ready to run: nothing here has been run on one."""

from __future__ import annotations

from device.doctor.checks import Trial

_RUN = "whatif run qwen3_0_6b_decode --backend npu"
_SAME = "the same `next_ids` as trial 2, in the JSON under measured"

TRIALS = (
    Trial(
        "Numbers: every switch against the plain operators, by dtype, on the device",
        "python -m device.numerics npu",
        "relative errors of the size that docs/numerics.md has for the CPU; refused rows say why",
    ),
    Trial(
        "An eager decode step, predicted beside measured",
        f"{_RUN} --set optimizations.graph=eager --json npu_eager.json",
        "a measured column; `fused` as form of every fused op; errors of ops listed",
    ),
    Trial(
        "A captured step: attention waits for its lengths and gets them",
        f"{_RUN} --set optimizations.graph=aclgraph --json npu_aclgraph.json",
        f"{_SAME}; no hang (a task group that is not updated would never end); unmarked_step below that of trial 2",
    ),
    Trial(
        "torch.compile's pieces",
        f"{_RUN} --set optimizations.graph=npugraph_ex --json npu_npugraph_ex.json",
        _SAME,
    ),
    Trial(
        "The graph engine (max-autotune), which no test without a device runs",
        f"{_RUN} --set optimizations.graph=ge_graph --json npu_ge_graph.json",
        f"{_SAME}; the first step takes seconds to minutes (compilation)",
    ),
    Trial(
        "FRACTAL_NZ weights: npu_format_cast really changes the layout",
        f"{_RUN} --set optimizations.weight_format=nz --json npu_nz.json",
        _SAME,
    ),
    Trial(
        "INT8 weights and activations",
        f"{_RUN} --set optimizations.weights=w8a8 --json npu_w8a8.json",
        "form `fused` for quant_matmul and dynamic_quant; no refusal",
    ),
    Trial(
        "INT4 weights: npu_convert_weight_to_int4pack lays them out as the product reads them",
        f"{_RUN} --set optimizations.weights=w4a16 --json npu_w4a16.json",
        "form `fused` for weight_quant_matmul; next_ids as `--backend cpu` with the same switch",
    ),
    Trial(
        "INT8 KV cache, scales a channel (antiquant mode 0)",
        f"{_RUN} --set optimizations.kv.dtype=int8 --json npu_int8_kv.json",
        "form `fused` for attention; next_ids as `--backend cpu` with the same switches",
    ),
    Trial(
        "INT8 KV cache, scales a token (antiquant mode 4)",
        f"{_RUN} --set optimizations.kv.dtype=int8 --set optimizations.kv.scale=token",
        "form `fused` for attention; not refused",
    ),
    Trial(
        "Prefetch into L2 on a second stream (aclrtCmoAsync)",
        f"{_RUN} --set optimizations.overlap.prefetch=true --json npu_prefetch.json",
        f"{_SAME}; products after attention faster where L2 keeps their weights",
    ),
    Trial(
        "Two ranks over HCCL",
        f"torchrun --nproc-per-node 2 -m cli {_RUN.removeprefix('whatif ')} --set engine.tensor_parallel_size=2",
        "next_ids of trial 2 up to rounding of the sums; no rank left behind (npu-smi info shows no process)",
    ),
    Trial(
        "Memory: the KV cache that was taken is the one predicted",
        f"{_RUN} --set workload.batch=32 --json npu_memory.json",
        "measured.memory.kv_cache_bytes is what npu-smi shows beyond the weights; too large a batch is one line",
    ),
)
