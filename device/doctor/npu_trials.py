"""What only an NPU can show, ready to run: nothing here has been run on one."""

from __future__ import annotations

from device.doctor.checks import Trial

_RUN = "whatif run qwen3_0_6b_decode --backend npu"
_SAME = "the same `next_ids` as trial 2, in the JSON under measured"

TRIALS = (
    Trial(
        "Numbers: every switch against the plain operators, by dtype, on the device",
        "python -m device.measure.numerics npu",
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
        "INT4 weights beside INT8 rows: the offset stands for the shift of the half bytes",
        f"{_RUN} --set optimizations.weights=w4a8 --json npu_w4a8.json",
        "form `fused` for quant_matmul; next_ids as `--backend cpu` with the same switch",
    ),
    Trial(
        "Scales, SwiGLU and quantisation in one call",
        f"{_RUN} --set optimizations.weights=w8a8 --set optimizations.fusion.swiglu_quant=true --json npu_gate.json",
        "form `fused` for dequant_swiglu_quant; next_ids of the run with w8a8 alone",
    ),
    Trial(
        "The feed-forward layer in one call: its gate is the first half",
        "whatif run qwen2_5_0_5b_prefill_ffn --backend npu --set optimizations.kv.layout=paged --json npu_ffn.json",
        "form `fused` for ffn; next_ids as with --set optimizations.fusion.ffn=false",
    ),
    Trial(
        "Norms, rotation and cache write in one call, INT8 blocks in FRACTAL_NZ",
        "whatif run qwen3_32b_w8a8_decode --backend npu --set optimizations.kv.dtype=int8 "
        "--set optimizations.fusion.qkv_norm_rope_cache=true --json npu_nz_cache.json",
        "form `fused` for qkv_norm_rope_cache and attention; next_ids as with the fusion off",
    ),
    Trial(
        "Experts: choice, permutation, grouped products and the way back, captured",
        "whatif run qwen3_30b_a3b_decode --backend npu --json npu_experts.json",
        "next_ids as with --set optimizations.graph=eager; moe_finalize_routing is not refused (drop_pad_mode 2)",
    ),
    Trial(
        "The shared expert beside the routed ones",
        "torchrun --nproc-per-node 8 -m cli run glm_4_5_air_ep8_decode --backend npu "
        "--set engine.enable_expert_parallel=false --set optimizations.overlap.shared_expert_stream=true",
        "next_ids as with the switch off; in a profile the two streams overlap",
    ),
    Trial(
        "Latent attention: absorbed over blocks with query_rope and key_rope, captured",
        "torchrun --nproc-per-node 16 -m cli run deepseek_v3_ep16_decode --backend npu "
        "--set engine.enable_expert_parallel=false --set engine.data_parallel_size=1 "
        "--set engine.tensor_parallel_size=16 --set optimizations.fusion.qkv_norm_rope_cache=true",
        "form `fused` for attention, kv_norm_rope_cache and interleave_rope; next_ids as with the fusion off",
    ),
    Trial(
        "A prefill over unpacked heads of 192 and 128 (as many query tokens as keys)",
        "torchrun --nproc-per-node 16 -m cli run deepseek_v3_ep16_decode --backend npu "
        "--set engine.enable_expert_parallel=false --set engine.data_parallel_size=1 "
        "--set engine.tensor_parallel_size=16 --set workload.phase=prefill --set optimizations.graph=eager",
        "form `fused` for prefill_attention; not refused by the device",
    ),
    Trial(
        "Keys and values beside the query on a second stream",
        f"{_RUN} --set optimizations.overlap.streams=2 --json npu_streams.json",
        f"{_SAME}; in a profile the two streams overlap",
    ),
    Trial(
        "Products and their sums in pieces over two ranks",
        f"torchrun --nproc-per-node 2 -m cli {_RUN.removeprefix('whatif ')} --set engine.tensor_parallel_size=2 "
        "--set workload.batch=16 --set optimizations.overlap.comm_chunks=4",
        "next_ids of the two ranks without pieces; the sums of a profile lie beside products",
    ),
    Trial(
        "A profile: device rows beside the host's",
        f"{_RUN} --set optimizations.graph=aclgraph --profile npu_profile",
        "npu_profile/rank0_*_ascend_pt/ASCEND_PROFILER_OUTPUT with kernel_details.csv and step_trace_time.csv",
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
