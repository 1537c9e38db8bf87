"""The vLLM-Ascend command of a choice, for a named version, and what that version cannot capture.

Flags and environment are those of the version's own sources (vllm-project/vllm-ascend): `vllm_ascend/envs.py` and
`vllm_ascend/ascend_config.py` of the tags v0.18.0 (e18643f8a4) and v0.23.0 (5cb98caaad), the release notes of v0.23.0
("Deprecation and Configuration Changes"), `check_and_update_config` of `vllm_ascend/platform.py`, which says what
becomes of a graph mode, and `update_aclgraph_sizes` of v0.18.0's `vllm_ascend/utils.py`. What a version would refuse to
start with, or would take for something else, is left out of its command and noted.
"""

from __future__ import annotations

import json
import re
from math import lcm
from shlex import quote
from typing import Any, Literal

from scenarios.batches import capture_sizes
from scenarios.records import dataclass
from sim.engines.graphs import STREAMS, sizes_of_streams, thinned
from sim.predict.steps import Case
from sim.sweep.servers import flags_of_servers, notes_of_servers

Version = Literal["0.18", "0.23"]
VERSIONS: tuple[Version, ...] = ("0.18", "0.23")
#: Environment variables of 0.18 that are fields of --additional-config in 0.23 (#9064).
MOVED = {
    "VLLM_ASCEND_ENABLE_FLASHCOMM1": "enable_flashcomm1",
    "VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE": "enable_matmul_allreduce",
    "VLLM_ASCEND_ENABLE_NZ": "weight_nz_mode",
}
#: VLLM_ASCEND_ENABLE_NZ and weight_nz_mode: no products in NZ; quantised ones, the default; all.
NO_NZ, QUANTISED_NZ, ALL_NZ = 0, 1, 2
#: Stands for a draft's checkpoint, which a scenario does not name.
DRAFT_MODEL = "EAGLE3_CHECKPOINT"
#: Of `engine.finegrained_tp_config`, what starts on an instance that also prefills: the output projection is for decode
#: instances alone; 0.23 takes the embedding only with a scheduler that is for those too (recompute_scheduler_enable).
SHARED_ANYWHERE: dict[Version, tuple[str, ...]] = {
    "0.18": ("lmhead_tensor_parallel_size", "embedding_tensor_parallel_size", "mlp_tensor_parallel_size"),
    "0.23": ("lmhead_tensor_parallel_size", "mlp_tensor_parallel_size"),
}


@dataclass(frozen=True, slots=True)
class Command:
    """version; text: environment and command, one line; notes: what the command cannot say."""

    version: Version
    text: str
    notes: tuple[str, ...]


def graph_mode_of(case: Case, version: Version) -> str:
    """The cudagraph_mode of the command. 0.18 makes PIECEWISE of FULL_AND_PIECEWISE, which would take decode steps
    apart too: it is given the whole decode steps."""
    mode = case.scenario.engine.cudagraph_mode or "FULL_DECODE_ONLY"
    return "FULL_DECODE_ONLY" if version == "0.18" and mode == "FULL_AND_PIECEWISE" else mode


def max_graphs(case: Case, version: Version) -> int | None:
    """Batch sizes that the version can capture; None where nothing but memory limits them: 0.18 counts streams of
    graphs that are cut at attention (PIECEWISE) alone."""
    if version != "0.18" or graph_mode_of(case, version) != "PIECEWISE":
        return None
    return sizes_of_streams(case.scenario, case.model, is_aiv=_expansion(case) == "AIV")


def _expansion(case: Case) -> str:
    """HCCL_OP_EXPANSION_MODE."""
    mode = case.scenario.engine.hccl_op_expansion_mode
    return "AIV" if mode == "auto" else mode


def _default_sizes(case: Case) -> tuple[int, ...]:
    """The sizes that could be captured. FlashComm1 cuts a batch along its tokens, so vLLM-Ascend keeps the multiples of
    the ranks alone, and does not start where there is none: they are rounded up."""
    engine = case.scenario.engine
    sizes = capture_sizes(engine)
    if not engine.sequence_parallel:
        return sizes
    unit = lcm(engine.query_tokens, engine.tensor_parallel_size)
    return tuple(sorted({-(-size // unit) * unit for size in sizes}))


def sizes_to_capture(case: Case, version: Version) -> tuple[int, ...]:
    """The batch sizes to capture: the default ones where the version can hold so many, else evenly chosen ones, the
    smallest and the largest among them."""
    sizes, most = _default_sizes(case), max_graphs(case, version)
    return sizes if most is None else thinned(sizes, most)


def command_of(case: Case, version: Version) -> Command:
    """How to start the deployment of `case`."""
    environment, flags = settings_of_command(case, version)
    flags |= flags_of_servers(case)
    notes = (*notes_of_servers(case), *_notes(case, version))
    return Command(version, line(environment, case.scenario.model, flags), notes)


def line(environment: dict[str, str], model: str, flags: dict[str, str | None]) -> str:
    """One line for a shell."""
    words = [*(f"{name}={value}" for name, value in environment.items()), "vllm serve", quote(model)]
    words += [flag if value is None else f"{flag} {_word(value)}" for flag, value in flags.items()]
    return " ".join(words)


def _word(value: str) -> str:
    """A value as a shell reads it; the address of a server stays a variable."""
    return value if re.fullmatch(r"\$SERVER\d+", value) else quote(value)


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
            "cudagraph_mode": graph_mode_of(case, version),
            "cudagraph_capture_sizes": list(sizes_to_capture(case, version)),
        }
        flags["--compilation-config"] = as_json(graph)
    if (drafts := engine.speculative_config) is not None:
        model = {"model": DRAFT_MODEL} if drafts.method == "eagle3" else {}
        flags["--speculative-config"] = as_json(
            {"method": drafts.method, **model, "num_speculative_tokens": drafts.num_speculative_tokens}
        )
    flags |= _scheduling(case, version)
    if config:
        flags["--additional-config"] = as_json(config)
    return environment, flags


def _scheduling(case: Case, version: Version) -> dict[str, str | None]:
    """Flags of the scheduler and the cache, where the scenario gives them."""
    engine = case.scenario.engine
    flags: dict[str, str | None] = {}
    if engine.async_scheduling is not None:
        flags["--async-scheduling" if engine.async_scheduling else "--no-async-scheduling"] = None
    if engine.scheduling_policy is not None:
        flags["--scheduling-policy"] = engine.scheduling_policy
    if engine.kv_cache_memory_bytes is not None:
        flags["--kv-cache-memory-bytes"] = str(engine.kv_cache_memory_bytes)
    if engine.scheduler_reserve_full_isl is False and version == "0.23":  # 0.18 has no such rule
        flags["--no-scheduler-reserve-full-isl"] = None
    return flags


def _switches(case: Case, version: Version) -> tuple[dict[str, str], dict[str, Any]]:
    """Optimisations as environment variables and as fields of --additional-config."""
    engine, optimizations = case.scenario.engine, case.scenario.optimizations
    environment = {"HCCL_OP_EXPANSION_MODE": _expansion(case), "TASK_QUEUE_ENABLE": str(engine.task_queue_enable)}
    if engine.allow_long_max_model_len:
        environment["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    config: dict[str, Any] = {}
    wanted = {
        "VLLM_ASCEND_ENABLE_FLASHCOMM1": int(engine.sequence_parallel),
        "VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE": int(optimizations.fusion.matmul_all_reduce),
    }
    for name, value in wanted.items():
        if value and version == "0.18":
            environment[name] = str(value)
        elif value:
            config[MOVED[name]] = True
    nz = ALL_NZ if optimizations.weight_format == "nz" else NO_NZ
    if nz != (QUANTISED_NZ if _quantised(case) else NO_NZ):
        if version == "0.18":
            environment["VLLM_ASCEND_ENABLE_NZ"] = str(nz)
        else:
            config[MOVED["VLLM_ASCEND_ENABLE_NZ"]] = nz
    if shared := _shared(case, version)[0]:
        config["finegrained_tp_config"] = shared
    if optimizations.overlap.prefetch:
        config["weight_prefetch_config"] = {"enabled": True}
    if optimizations.overlap.shared_expert_stream:
        config["multistream_overlap_shared_expert"] = True
    return environment, config


def _quantised(case: Case) -> bool:
    return case.scenario.optimizations.weights not in ("bf16", "fp16")


def _shared(case: Case, version: Version) -> tuple[dict[str, int], list[str]]:
    """Of `engine.finegrained_tp_config`, the sizes that the version starts with, and the names of the others."""
    config = case.scenario.engine.finegrained_tp_config
    sizes = {} if config is None else config.sizes
    starts = {name: size for name, size in sizes.items() if name in SHARED_ANYWHERE[version]}
    return starts, [name for name in sizes if name not in starts]


def as_json(value: dict[str, Any]) -> str:
    """As a shell's argument, without spaces."""
    return json.dumps(value, separators=(",", ":"))


def _notes(case: Case, version: Version) -> tuple[str, ...]:
    optimizations, engine = case.scenario.optimizations, case.scenario.engine
    notes = []
    if _quantised(case):
        notes.append(
            f"--quantization ascend reads weights that are quantised already: a {optimizations.weights} checkpoint "
            "(ModelSlim) is needed, and its quality is not predicted here"
        )
    if optimizations.kv.dtype == "int8":
        notes.append(f"{version} has no flag for an INT8 KV cache: the checkpoint's quantisation says it (kv_cache C8)")
    if engine.sequence_parallel and engine.max_num_batched_tokens % engine.tensor_parallel_size:
        notes.append("FlashComm1 wants --max-num-batched-tokens divisible by the tensor-parallel size")
    if engine.speculative_config is not None and engine.speculative_config.method == "eagle3":
        notes.append(f"{DRAFT_MODEL} is the checkpoint of the EAGLE-3 draft, which the scenario does not name")
    planned = (
        ("matmul all-reduce", optimizations.fusion.matmul_all_reduce),
        ("weight prefetch", optimizations.overlap.prefetch),
    )
    if version == "0.23":
        notes += [f"{name} is to be deprecated (release notes of v0.23.0)" for name, on in planned if on]
    notes += _without(case, version)
    most, default = max_graphs(case, version), _default_sizes(case)
    if optimizations.graph != "eager" and most is not None and len(default) > most:
        notes.append(f"{len(default)} sizes would be captured, {max(most, 1)} fit the {STREAMS} streams of {version}")
    return tuple(notes)


def _without(case: Case, version: Version) -> list[str]:
    """What the prediction has and the version's command cannot say."""
    optimizations, engine = case.scenario.optimizations, case.scenario.engine
    notes = []
    if optimizations.graph != "eager" and graph_mode_of(case, version) != (engine.cudagraph_mode or "FULL_DECODE_ONLY"):
        notes.append(
            f"{version} makes PIECEWISE of {engine.cudagraph_mode}, so FULL_DECODE_ONLY is given: decode steps are as "
            "predicted, steps with prefills are issued op by op and take longer"
        )
    left_out = _shared(case, version)[1]
    if left_out:
        notes.append(
            f"{', '.join(left_out)}: left out, {version} starts with it on decode instances alone; the predicted step "
            "and memory have it"
        )
    missing = (
        ("overlap.micro_batches", optimizations.overlap.micro_batches > 1),
        ("overlap.comm_chunks", optimizations.overlap.comm_chunks > 1),
        ("engine.preemption: swap", engine.preemption == "swap"),
        ("engine.kv_pool", engine.kv_pool is not None),
        ("engine.prefill_first", engine.prefill_first is True),
    )
    notes += [f"{version} has no flag here for {name}, which the prediction has" for name, on in missing if on]
    return notes
