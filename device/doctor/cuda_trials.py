"""What only a GPU can show, ready to run: nothing here has been run on one."""

from __future__ import annotations

from device.doctor.checks import MAX_ERROR, MAX_ERROR_QUANTISED, Trial

_RUN = "whatif run llama_3_1_8b_h200_decode --backend cuda"
_ERRORS = "python -m device.doctor.errors cuda llama_3_1_8b_h200_decode"
_RIGHT = f"relative error within {MAX_ERROR:g}"

TRIALS = (
    Trial(
        "Each switch, graphs, streams, ranks: the tests of this backend on the device",
        "pytest -m cuda -rs tests/device tests/cli",
        "all pass; two ranks are skipped where there is one GPU, and each skip says why",
        seconds=600,
    ),
    Trial(
        "Numbers: every switch against the plain operators, by dtype, on the device",
        "python -m device.measure.numerics cuda",
        "relative errors of the size that docs/numerics.md has for the CPU; refused rows say why",
    ),
    Trial(
        "An eager decode step, predicted beside measured",
        f"{_RUN} --set optimizations.graph=eager --json cuda_eager.json",
        "a measured column; attention `fused`, swiglu and rope `compiled`; errors of ops listed",
    ),
    Trial(
        "CUDA graphs of the calls as they are",
        f"{_RUN} --set optimizations.graph=aclgraph --json cuda_graphs.json",
        "rows of form `captured`; unmarked_step below that of trial 3",
    ),
    Trial(
        "CUDA graphs of what torch.compile has made",
        f"{_RUN} --set optimizations.graph=ge_graph --json cuda_compiled.json",
        "rows of form `captured`; the first step takes minutes (compilation)",
    ),
    *(
        Trial(f"The numbers of such a step ({graph})", f"{_ERRORS} --set optimizations.graph={graph}", _RIGHT)
        for graph in ("eager", "aclgraph", "ge_graph")
    ),
    Trial(
        "No attention runs as math: requests of several lengths go to the memory-efficient kernel",
        f"{_RUN} --set workload.phase=mixed --set optimizations.graph=eager --json cuda_mixed.json",
        "form `composed` for attention; not refused with `no fused attention kernel`",
    ),
    Trial(
        "INT8 weights and activations by torch._int_mm",
        f"{_RUN} --set workload.batch=32 --set optimizations.weights=w8a8 --json cuda_w8a8.json",
        "form `composed` for quant_matmul and dynamic_quant; with workload.batch=16 one line refuses it",
    ),
    Trial(
        "The numbers of INT8 weights and activations",
        f"{_ERRORS} --set workload.batch=32 --set optimizations.weights=w8a8",
        f"relative error within {MAX_ERROR_QUANTISED:g}",
    ),
    Trial(
        "The numbers of an INT8 KV cache",
        f"{_ERRORS} --set optimizations.kv.dtype=int8",
        f"relative error within {MAX_ERROR_QUANTISED:g}",
    ),
    Trial(
        "INT8 KV cache, dequantised before attention",
        f"{_RUN} --set optimizations.kv.dtype=int8 --json cuda_int8_kv.json",
        "form `composed` for attention; measured.memory.kv_cache_bytes half of trial 3",
    ),
    Trial(
        "Keys and values on a second stream",
        f"{_RUN} --set optimizations.overlap.streams=2 --set optimizations.graph=eager --trace cuda_streams.json",
        "two lanes in the trace, that of Stream 4 beside the query's kernels",
    ),
    Trial(
        "Two ranks over NCCL",
        f"torchrun --nproc-per-node 2 -m {_ERRORS.removeprefix('python -m ')} --set engine.tensor_parallel_size=2",
        f"{_RIGHT}; no rank left behind (nvidia-smi shows no process)",
    ),
    Trial(
        "Too large a batch",
        f"{_RUN} --set workload.batch=256 --set workload.input_tokens=32000 --set engine.max_model_len=34000",
        "one line that names weights, cache and free memory; status 2",
        status=2,
    ),
)
