"""What only an NPU can show, ready to run: nothing here has been run on one.

Whether numbers are right is reported by errors against the reference operators on the same device and tokens
(device/doctor/errors.py): random weights have near choices everywhere, so equal tokens would say little either way.
"""

from __future__ import annotations

from device.doctor.checks import MAX_ERROR, MAX_ERROR_QUANTISED, Trial

_RUN = "whatif run qwen3_0_6b_decode --backend npu"
_ERRORS = "python -m device.doctor.errors npu"
_SMALL = f"{_ERRORS} qwen3_0_6b_decode"
_RIGHT = f"relative error within {MAX_ERROR:g}"
_ROUGH = f"relative error within {MAX_ERROR_QUANTISED:g}"
_DEEPSEEK = (
    f"torchrun --nproc-per-node 16 -m {_ERRORS.removeprefix('python -m ')} deepseek_v3_ep16_decode "
    "--set engine.enable_expert_parallel=false --set engine.data_parallel_size=1 --set engine.tensor_parallel_size=16"
)
_TWO = f"torchrun --nproc-per-node 2 -m {_SMALL.removeprefix('python -m ')} --set engine.tensor_parallel_size=2"

_SPREAD = f"torchrun --nproc-per-node 8 -m {_ERRORS.removeprefix('python -m ')} glm_4_5_air_ep8_decode"
TRIALS = (
    Trial(
        "Numbers: every switch against the plain operators, by dtype, on the device",
        "python -m device.measure.numerics npu",
        "relative errors of the size that docs/numerics.md has for the CPU; refused rows say why",
    ),
    Trial(
        "An eager step: each fused call against plain torch",
        f"{_SMALL} --set optimizations.graph=eager",
        _RIGHT,
    ),
    Trial(
        "An eager decode step, predicted beside measured",
        f"{_RUN} --set optimizations.graph=eager --json npu_eager.json",
        "a measured column; `fused` as form of every fused op; errors of ops listed",
    ),
    Trial(
        "Keys and values written by ATB, which torch_npu before the wheels for CANN 9.0.0 takes",
        f"{_SMALL} --set optimizations.graph=aclgraph --set optimizations.kv.layout=paged",
        f"{_RIGHT}; with ATB not sourced the same",
    ),
    Trial(
        "A captured step: attention waits for its lengths and gets them",
        f"{_SMALL} --set optimizations.graph=aclgraph",
        f"{_RIGHT}; no hang (a task group that is not updated would never end)",
    ),
    Trial(
        "A captured step, measured",
        f"{_RUN} --set optimizations.graph=aclgraph --json npu_aclgraph.json",
        "rows of form `captured`; unmarked_step below that of the eager step",
    ),
    Trial(
        "torch.compile's pieces",
        f"{_SMALL} --set optimizations.graph=npugraph_ex",
        _RIGHT,
    ),
    Trial(
        "The graph engine (max-autotune), which no test without a device runs",
        f"{_SMALL} --set optimizations.graph=ge_graph",
        f"{_RIGHT}; the first step takes seconds to minutes (compilation)",
    ),
    Trial(
        "FRACTAL_NZ weights: npu_format_cast really changes the layout, and products read it",
        f"{_SMALL} --set optimizations.weight_format=nz",
        _RIGHT,
    ),
    Trial(
        "INT8 weights and activations",
        f"{_SMALL} --set optimizations.weights=w8a8",
        _ROUGH,
    ),
    Trial(
        "INT4 weights: npu_convert_weight_to_int4pack lays them out as the product reads them",
        f"{_SMALL} --set optimizations.weights=w4a16",
        _RIGHT,
    ),
    Trial(
        "INT8 KV cache, scales a channel (antiquant mode 0)",
        f"{_SMALL} --set optimizations.kv.dtype=int8",
        _ROUGH,
    ),
    Trial(
        "INT8 KV cache, scales a token (antiquant mode 4)",
        f"{_SMALL} --set optimizations.kv.dtype=int8 --set optimizations.kv.scale=token",
        _ROUGH,
    ),
    Trial(
        "INT4 weights beside INT8 rows: the offset stands for the shift of the half bytes",
        f"{_SMALL} --set optimizations.weights=w4a8",
        _ROUGH,
    ),
    Trial(
        "Scales, SwiGLU and quantisation in one call",
        f"{_SMALL} --set optimizations.weights=w8a8 --set optimizations.fusion.swiglu_quant=true",
        _ROUGH,
    ),
    Trial(
        "The feed-forward layer in one call: its gate is the first half",
        f"{_ERRORS} qwen2_5_0_5b_prefill_ffn --set optimizations.kv.layout=paged",
        _RIGHT,
    ),
    Trial(
        "Norms, rotation and cache write in one call, INT8 blocks in FRACTAL_NZ",
        f"{_ERRORS} qwen3_32b_w8a8_decode --set optimizations.kv.dtype=int8 "
        "--set optimizations.fusion.qkv_norm_rope_cache=true",
        f"{_ROUGH}; on torch_npu before the wheels for CANN 9.0.0 one line refuses it",
    ),
    Trial(
        "Experts: choice, permutation, grouped products and the way back, captured",
        f"{_ERRORS} qwen3_30b_a3b_decode",
        f"{_RIGHT}; moe_finalize_routing is not refused (drop_pad_mode 2)",
    ),
    Trial(
        "The shared expert beside the routed ones",
        f"torchrun --nproc-per-node 8 -m {_ERRORS.removeprefix('python -m ')} glm_4_5_air_ep8_decode "
        "--set engine.enable_expert_parallel=false --set optimizations.overlap.shared_expert_stream=true",
        f"{_RIGHT}; in a profile the two streams overlap",
    ),
    Trial(
        "Latent attention: absorbed over blocks with query_rope and key_rope, captured",
        f"{_DEEPSEEK} --set optimizations.fusion.qkv_norm_rope_cache=true",
        _RIGHT,
    ),
    Trial(
        "A prefill over unpacked heads of 192 and 128 (as many query tokens as keys)",
        f"{_DEEPSEEK} --set workload.phase=prefill --set optimizations.graph=eager",
        f"{_RIGHT}; not refused by the device",
    ),
    Trial(
        "Keys and values beside the query on a second stream",
        f"{_SMALL} --set optimizations.overlap.streams=2",
        f"{_RIGHT}; in a profile the two streams overlap",
    ),
    Trial(
        "Products and their sums in pieces over two ranks",
        f"{_TWO} --set workload.batch=16 --set optimizations.overlap.comm_chunks=4",
        f"{_RIGHT}; the sums of a profile lie beside products",
    ),
    Trial(
        "A profile: device rows beside the host's",
        f"{_RUN} --set optimizations.graph=aclgraph --profile npu_profile",
        "npu_profile/rank0_*_ascend_pt/ASCEND_PROFILER_OUTPUT with kernel_details.csv and step_trace_time.csv",
    ),
    Trial(
        "Prefetch into L2 on a second stream (aclrtCmoAsync)",
        f"{_RUN} --set optimizations.overlap.prefetch=true --json npu_prefetch.json",
        "products after attention faster than in npu_aclgraph.json where L2 keeps their weights",
    ),
    Trial(
        "Two ranks over HCCL",
        _TWO,
        f"{_RIGHT}; no rank left behind (npu-smi info shows no process)",
    ),
    Trial(
        "Experts on eight dies of Atlas A3, tokens sent by one call each way, captured",
        _SPREAD,
        f"{_RIGHT}; on Atlas A2 one line refuses it; with HCCL_BUFFSIZE of its default 200 MB no error",
    ),
    Trial(
        "The same by HCCL's all-to-all, op by op",
        f"{_SPREAD} --set optimizations.fusion.moe_dispatch=false --set optimizations.graph=eager",
        _RIGHT,
    ),
    Trial(
        "The same with all tokens on all dies: each adds up its own experts",
        f"{_SPREAD} --set engine.all2all_backend=allgather_reducescatter",
        f"{_RIGHT}; npu_moe_init_routing_v2 takes a part of the experts, and gives -1 as place of the others",
    ),
    Trial(
        "Experts one by one",
        f"{_ERRORS} qwen3_30b_a3b_decode --set optimizations.fusion.grouped_matmul=false "
        "--set optimizations.graph=eager",
        f"{_RIGHT}; products of no rows are taken",
    ),
    Trial(
        "Micro-batches: sums of one part beside the other's products",
        f"{_TWO} --set workload.batch=16 --set optimizations.overlap.micro_batches=2 --set optimizations.graph=eager",
        f"{_RIGHT}; the sums of a profile lie beside products",
    ),
    Trial(
        "Two pipeline stages",
        f"{_RUN} --set workload.batch=4 --set engine.pipeline_parallel_size=2 --json npu_stages.json",
        "`stages` of measured has both rounds",
    ),
    Trial(
        "Memory: the KV cache that was taken is the one predicted",
        f"{_RUN} --set workload.batch=32 --json npu_memory.json",
        "measured.memory.kv_cache_bytes is what npu-smi shows beyond the weights",
    ),
    Trial(
        "Too large a batch",
        f"{_RUN} --set workload.batch=200 --set workload.input_tokens=32000 --set engine.max_model_len=34000",
        "one line that names weights, cache and free memory; status 2",
        status=2,
    ),
)
