"""The shipped scenarios on the wheels that people have: rehearsed whole, as each wheel is called."""

from __future__ import annotations

import pytest

from device.operators.npu.plan import lacking
from device.operators.npu.versions import V2_IN_CAPTURE, WHEELS, Wheel
from scenarios.batches import reported_batch
from scenarios.build import build
from scenarios.loader import load_scenario, shipped_names
from scenarios.lowering.parallel import shard_of
from scenarios.models.hf_config import load_model
from sim.hardware.profile import load_hardware

#: A stage is rehearsed as any part of a Program is: tier 3 has them.
SETS = ("engine.pipeline_parallel_size=1",)
#: What no call of torch_npu is made for yet: sparse attention's indexer; INT4 weights with INT8 rows by expert; the
#: delta rule; DeepSeek-V4's compressed rows and streams.
REFUSED = (
    "deepseek_v3_2_ep16_long_context",
    "deepseek_v4_flash_ep16_long_context",
    "kimi_k2_w4a8_ep16_decode",
    "qwen3_5_35b_tp2_long_context",
)
NAMES = [
    name
    for name in shipped_names()
    if name not in REFUSED and load_hardware(load_scenario(name, []).scenario.hardware).profile.device == "npu"
]
#: One wheel of each line, with ATB and without where that decides.
STACKS = [(wheel, atb) for wheel in WHEELS if wheel.torch == "2.8.0" or wheel.cann is None for atb in (False, True)]


#: What 2.8.0 has no call for: the line, by scenario.
ONLY_LATER = {
    "deepseek_v3_ep16_decode": (
        f"torch_npu 2.8.0 has no {V2_IN_CAPTURE}, 2.8.0.post2 (CANN 8.5.0) has, and latent attention is one; "
        "set it to eager"
    ),
    "qwen3_8b_long_context_int8_kv": (
        "torch_npu 2.8.0 has no npugraph_ex, 2.8.0.post2 (CANN 8.5.0) has; set it to aclgraph"
    ),
}


#: A prefill behind as many tokens would be longer than the model's positions.
SHORTER = {"gpt_oss_20b_long_context": ("workload.input_tokens=4096", "workload.context_tokens=4096")}
#: Attention with learned sinks is version 2's alone.
SINKS = f"optimizations.fusion.attention: torch_npu 2.8.0 has no {V2_IN_CAPTURE}, 2.8.0.post2 (CANN 8.5.0) has"


def refused(name: str, phase: str, torch_npu: str, atb: bool) -> list[str]:
    scenario = load_scenario(
        name, [*SETS, f"workload.phase={phase}", "optimizations.kv.layout=paged", *SHORTER.get(name, ())]
    ).scenario
    engine, model = scenario.engine, load_model(scenario.model)
    part = shard_of(engine, model, engine.tensor_parallel_size, engine.data_parallel_size)
    return lacking(build(scenario, part, reported_batch(scenario)), part, torch_npu, atb)


@pytest.mark.parametrize(("wheel", "atb"), STACKS, ids=lambda value: getattr(value, "torch_npu", str(value)))
@pytest.mark.parametrize("name", NAMES)
def test_a_paged_scenario_is_taken_by(name: str, wheel: Wheel, atb: bool) -> None:
    captured = wheel.torch_npu == "2.8.0" and name in ONLY_LATER
    sinks = [SINKS] if wheel.torch_npu == "2.8.0" and name == "gpt_oss_20b_long_context" else []
    assert refused(name, "decode", wheel.torch_npu, atb) == (
        [f"optimizations.graph: {ONLY_LATER[name]}"] if captured else sinks
    )
    assert refused(name, "prefill", wheel.torch_npu, atb) == sinks
