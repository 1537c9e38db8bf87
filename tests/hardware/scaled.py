"""Shipped scenarios made small enough for one core: the same family, phase, cache and weights, narrower layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scenarios.loader import load_scenario
from scenarios.models.hf_config import SHIPPED

#: What a config is cut to; keys that it does not have stay away.
CUT: dict[str, int] = {
    "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 4096, "num_experts": 8, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 128, "q_lora_rank": 96, "kv_lora_rank": 64,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "max_position_embeddings": 4096,
}  # fmt: skip
#: What a CPU has not, or has only by compiling it, and sizes for one core.
LACKING = (
    "fusion.add_rms_norm", "fusion.rope", "fusion.swiglu", "fusion.qkv_norm_rope_cache", "fusion.matmul_all_reduce",
    "fusion.add_rms_norm_quant", "fusion.ffn", "graph_prefill", "overlap.prefetch", "overlap.shared_expert_stream",
)  # fmt: skip


def scaled_config(name: str, folder: Path) -> Path:
    """A folder with the config of the shipped model `name`, cut down."""
    config: dict[str, Any] = json.loads((SHIPPED / name / "config.json").read_text(encoding="utf-8"))
    for key, value in CUT.items():
        if config.get(key) is not None:
            config[key] = min(config[key], value)
    config.pop("rope_scaling", None)
    if "qk_nope_head_dim" in config:  # latent attention has as many key heads as heads
        config["num_key_value_heads"] = config["num_attention_heads"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def settings(name: str, folder: Path) -> tuple[str, ...]:
    """The `--set` pairs that take the shipped scenario `name` to this machine's CPU."""
    scenario = load_scenario(name).scenario
    workload = scenario.workload
    result = [
        f"model={scaled_config(scenario.model, folder / name)}", "hardware=cpu",
        f"workload.batch={min(workload.batch, 4)}", f"workload.input_tokens={min(workload.input_tokens, 96)}",
        f"workload.output_tokens={min(workload.output_tokens, 32)}", "workload.context_tokens=null",
        "engine.tensor_parallel_size=1", "engine.pipeline_parallel_size=1", "engine.data_parallel_size=1",
        "engine.enable_expert_parallel=false", "engine.sequence_parallel=false", "engine.task_queue_enable=0",
        "engine.max_num_batched_tokens=512", "protocol.synchronize=op",
        "optimizations.graph=eager", "optimizations.weight_format=nd",
    ]  # fmt: skip
    return (*result, *(f"optimizations.{switch}=false" for switch in LACKING))
