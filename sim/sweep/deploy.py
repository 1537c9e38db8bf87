"""The vLLM-Ascend command of a choice, for a named version, and what that version cannot capture.

Flags and environment are those of the version's own sources (vllm-project/vllm-ascend): `vllm_ascend/envs.py` and
`vllm_ascend/ascend_config.py` of the tags v0.18.0 (e18643f8a4) and v0.23.0 (5cb98caaad), the release notes of v0.23.0
("Deprecation and Configuration Changes") and `update_aclgraph_sizes` of v0.18.0's `vllm_ascend/utils.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from shlex import quote
from typing import Any, Literal

from scenarios.batches import capture_sizes
from sim.predict.steps import Case

Version = Literal["0.18", "0.23"]
VERSIONS: tuple[Version, ...] = ("0.18", "0.23")
#: Streams that graphs of 0.18 may take, of 2048 (v0.18.0, vllm_ascend/utils.py: MAX_CAPTURE_SIZE). 0.23 asks for
#: CANN 8.5, which has no such limit (release notes of v0.21.0rc1, #9572).
STREAMS = 1800
#: Environment variables of 0.18 that are fields of --additional-config in 0.23 (#9064).
MOVED = {
    "VLLM_ASCEND_ENABLE_FLASHCOMM1": "enable_flashcomm1",
    "VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE": "enable_matmul_allreduce",
    "VLLM_ASCEND_ENABLE_NZ": "weight_nz_mode",
}


@dataclass(frozen=True, slots=True)
class Command:
    """version; text: environment and command, one line; notes: what the command cannot say."""

    version: Version
    text: str
    notes: tuple[str, ...]


def max_graphs(case: Case, version: Version) -> int | None:
    """Batch sizes that the version can capture; None where nothing but memory limits them.

    With HCCL_OP_EXPANSION_MODE=AIV each graph takes layers + 1 streams, times 1 + the kinds of groups that communicate.
    """
    if version != "0.18":
        return None
    engine, model = case.scenario.engine, case.model
    groups = (engine.tensor_parallel_size > 1) + (engine.data_parallel_size > 1)
    factor = 1 + groups + engine.enable_expert_parallel + case.scenario.optimizations.overlap.shared_expert_stream
    per_graph = model.layers + 1
    if model.experts:
        return STREAMS // per_graph // (factor + (engine.data_parallel_size > 1))
    return (STREAMS - factor * per_graph) // per_graph // factor


def sizes_to_capture(case: Case, version: Version) -> tuple[int, ...]:
    """The batch sizes to capture: the default ones where the version can hold so many, else evenly chosen ones, the
    smallest and the largest among them."""
    sizes, most = capture_sizes(case.scenario.engine), max_graphs(case, version)
    if most is None or len(sizes) <= most:
        return sizes
    if most < 2:
        return sizes[-1:]
    step = (len(sizes) - 1) / (most - 1)
    return tuple(dict.fromkeys(sizes[round(i * step)] for i in range(most)))


def command_of(case: Case, version: Version) -> Command:
    """How to start the deployment of `case`."""
    environment, flags = settings_of_command(case, version)
    return Command(version, line(environment, case.scenario.model, flags), _notes(case, version))


def line(environment: dict[str, str], model: str, flags: dict[str, str | None]) -> str:
    """One line for a shell."""
    words = [*(f"{name}={value}" for name, value in environment.items()), "vllm serve", quote(model)]
    words += [flag if value is None else f"{flag} {quote(value)}" for flag, value in flags.items()]
    return " ".join(words)


def settings_of_command(case: Case, version: Version) -> tuple[dict[str, str], dict[str, str | None]]:
    """The environment and the flags that start the deployment of `case`; a flag without a value has None."""
    scenario, engine, optimizations = case.scenario, case.scenario.engine, case.scenario.optimizations
    environment, config = _switches(case, version)
    flags: dict[str, str | None] = {"--tensor-parallel-size": str(engine.tensor_parallel_size)}
    if engine.pipeline_parallel_size > 1:
        flags["--pipeline-parallel-size"] = str(engine.pipeline_parallel_size)
    if engine.data_parallel_size > 1:
        flags["--data-parallel-size"] = str(engine.data_parallel_size)
    if engine.enable_expert_parallel:
        flags["--enable-expert-parallel"] = None
    flags |= {
        "--max-num-seqs": str(engine.max_num_seqs),
        "--max-num-batched-tokens": str(engine.max_num_batched_tokens),
        "--max-model-len": str(scenario.longest_request_tokens),
        "--gpu-memory-utilization": f"{engine.gpu_memory_utilization:g}",
        "--block-size": str(optimizations.kv.block_size),
    }
    if optimizations.weights not in ("bf16", "fp16"):
        flags["--quantization"] = "ascend"
    if optimizations.graph == "eager":
        flags["--enforce-eager"] = None
    else:
        graph = {
            "cudagraph_mode": engine.cudagraph_mode or "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": list(sizes_to_capture(case, version)),
        }
        flags["--compilation-config"] = as_json(graph)
    if engine.speculative_config is not None:
        drafts = engine.speculative_config
        flags["--speculative-config"] = as_json(
            {"method": drafts.method, "num_speculative_tokens": drafts.num_speculative_tokens}
        )
    if config:
        flags["--additional-config"] = as_json(config)
    return environment, flags


def _switches(case: Case, version: Version) -> tuple[dict[str, str], dict[str, Any]]:
    """Optimisations as environment variables and as fields of --additional-config."""
    engine, optimizations = case.scenario.engine, case.scenario.optimizations
    environment = {"HCCL_OP_EXPANSION_MODE": "AIV", "TASK_QUEUE_ENABLE": str(engine.task_queue_enable)}
    if engine.allow_long_max_model_len:
        environment["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    config: dict[str, Any] = {}
    wanted = {
        "VLLM_ASCEND_ENABLE_FLASHCOMM1": int(engine.sequence_parallel),
        "VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE": int(optimizations.fusion.matmul_all_reduce),
        "VLLM_ASCEND_ENABLE_NZ": 2 * (optimizations.weight_format == "nz"),
    }
    for name, value in wanted.items():
        if value and version == "0.18":
            environment[name] = str(value)
        elif value:
            config[MOVED[name]] = value if MOVED[name] == "weight_nz_mode" else True
    if engine.finegrained_tp_config is not None:
        config["finegrained_tp_config"] = engine.finegrained_tp_config.sizes
    if optimizations.overlap.prefetch:
        config["weight_prefetch_config"] = {"enabled": True}
    if optimizations.overlap.shared_expert_stream:
        config["multistream_overlap_shared_expert"] = True
    return environment, config


def as_json(value: dict[str, Any]) -> str:
    """As a shell's argument, without spaces."""
    return json.dumps(value, separators=(",", ":"))


def _notes(case: Case, version: Version) -> tuple[str, ...]:
    optimizations, engine = case.scenario.optimizations, case.scenario.engine
    notes = []
    if optimizations.weights not in ("bf16", "fp16"):
        notes.append(
            f"--quantization ascend reads weights that are quantised already: a {optimizations.weights} checkpoint "
            "(ModelSlim) is needed, and its quality is not predicted here"
        )
    if optimizations.kv.dtype == "int8":
        notes.append(f"{version} has no flag for an INT8 KV cache: the checkpoint's quantisation says it (kv_cache C8)")
    if engine.sequence_parallel and engine.max_num_batched_tokens % engine.tensor_parallel_size:
        notes.append("FlashComm1 wants --max-num-batched-tokens divisible by the tensor-parallel size")
    planned = (
        ("matmul all-reduce", optimizations.fusion.matmul_all_reduce),
        ("weight prefetch", optimizations.overlap.prefetch),
    )
    if version == "0.23":
        notes += [f"{name} is to be deprecated (release notes of v0.23.0)" for name, on in planned if on]
    most, default = max_graphs(case, version), capture_sizes(engine)
    if optimizations.graph != "eager" and most is not None and len(default) > most:
        notes.append(f"{len(default)} sizes would be captured, {max(most, 1)} fit the {STREAMS} streams of {version}")
    return tuple(notes)
