"""Where HBM goes and how many requests fit, counted by hand on a tiny model."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.lowering.parallel import shard
from scenarios.lowering.stages import split_depth
from scenarios.models.hf_config import load_model
from scenarios.schema import Scenario
from sim.hardware.profile import load_hardware
from sim.predict.memory import (
    GRAPH_BYTES,
    RUNTIME_BYTES,
    Memory,
    kv_bytes_per_token,
    memory_of,
    reserved_tokens,
    weight_bytes,
)
from sim.predict.predict import DoesNotFit, check, predict
from sim.predict.steps import Case
from tests.scenarios.making import BIASED, PLAIN, TINY, bare, program, scenario, switched
from tests.scenarios.making import weight_bytes as weight_bytes_of_program
from tests.sim.hardware_maker import hardware

GIB = 1 << 30


def memory(result: Scenario, capacity: int = 2 * GIB) -> Memory:
    return memory_of(result, TINY, hardware(chip__hbm_visible_bytes=capacity))


#: 100 tokens in, 28 out.
TWO = {"workload__batch": 2, "workload__input_tokens": 100, "workload__output_tokens": 28}


def test_the_parts_of_the_memory() -> None:
    result = memory(scenario(**TWO, optimizations__kv__layout="contiguous"))
    # Linear weights 3,840, embedding and head 2 * 512, norms 2 * (32 + 8) + 16: 4,960 of 2 bytes.
    assert result.weights == 2 * 4960
    # Two requests of 128 tokens; K and V of 2 layers, 2 heads of 4, 2 bytes.
    assert result.kv_cache == 2 * 128 * 64
    # Prefill of 200 tokens: residual, norm, gate, up and their product, 2 * 16 + 3 * 24 wide.
    assert result.activations == 200 * 104 * 2
    assert result.graph_pool == 0
    assert result.runtime == RUNTIME_BYTES == int(0.53 * GIB)
    assert result.usable == int(0.9 * 2 * GIB)
    assert result.total == 9_920 + 16_384 + 41_600 + RUNTIME_BYTES
    assert result.too_much == 0


def test_what_is_too_much() -> None:
    result = memory(scenario(**TWO), capacity=RUNTIME_BYTES)
    assert result.too_much == result.total - int(0.9 * RUNTIME_BYTES) > 0


def test_a_large_vocabulary_can_need_more_than_the_mlp() -> None:
    result = scenario(workload__batch=200, workload__input_tokens=1, engine__max_num_seqs=256)
    wide = replace(TINY, vocab=10_000)
    # Logits of 200 requests in 16 and in 32 bits.
    assert memory_of(result, wide, hardware()).activations == 200 * 10_000 * 6


def test_captured_graphs_hold_static_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    def pool(**more: object) -> int:
        return memory(scenario(**TWO, **more)).graph_pool

    row_bytes = (2 * 16 + 3 * 24 + 32) * 2
    assert pool(optimizations__graph="eager") == 0
    # Less than any graph takes: what the smallest one in a log does.
    assert pool(optimizations__graph="ge_graph") == GRAPH_BYTES > 256 * row_bytes

    monkeypatch.setattr("sim.predict.memory.GRAPH_BYTES", 0)
    assert pool(optimizations__graph="ge_graph") == 2 * row_bytes  # compiled for this batch
    assert pool(optimizations__graph="aclgraph") == 256 * row_bytes  # for the largest captured size
    sizes = {"engine__cudagraph_capture_sizes": (4, 16)}
    assert pool(optimizations__graph="npugraph_ex", **sizes) == 16 * row_bytes


def test_unfused_attention_needs_its_score_matrix() -> None:
    fused = memory(scenario(**TWO)).activations
    scores = memory(scenario(**TWO, optimizations__fusion__attention=False)).activations
    assert scores - fused == 200 * 100 * 4 * (2 + 2 + 4)  # 4 heads of 200 x 100, twice in 16 bits and once in 32


# ---- the KV cache ----


def test_kv_bytes_of_a_token() -> None:
    def per_token(dtype: str, scale: str = "channel") -> int:
        return kv_bytes_per_token(scenario(optimizations__kv__scale=scale), TINY, dtype)

    assert per_token("bf16") == per_token("fp16") == 2 * 2 * 8 * 2
    assert per_token("int8") == 2 * 2 * 8
    assert per_token("int8", "token") == 32 + 2 * 2 * 4  # an fp32 scale for K and one for V, each layer
    assert per_token("int8", "head") == 32 + 2 * 2 * 2 * 4
    assert kv_bytes_per_token(Scenario(), load_model("Qwen3-8B"), "bf16") == 147_456


def test_what_a_request_takes_of_the_cache() -> None:
    def reserved(input_tokens: int, **more: object) -> tuple[int, int]:
        result = scenario(workload__input_tokens=input_tokens, workload__output_tokens=28, **more)
        return reserved_tokens(result, result.optimizations.kv)

    contiguous = {"optimizations__kv__layout": "contiguous"}
    assert reserved(100, **contiguous) == (128, 0)
    assert reserved(100, **contiguous, engine__max_model_len=4096) == (4096, 0)  # reserved for the longest
    paged = {"optimizations__kv__block_size": 16}
    assert reserved(100, **paged) == (128, 0)
    assert reserved(101, **paged) == (144, 0)  # the last block holds one token
    assert reserved(101, **paged, engine__max_model_len=4096) == (144, 0)  # blocks come on demand
    shared = {"optimizations__kv__prefix_sharing": True, "optimizations__kv__shared_prefix_tokens": 50}
    assert reserved(100, **paged, **shared) == (80, 48)  # three whole blocks are common, 128 - 48 are the request's own


def test_a_shared_prefix_is_held_once() -> None:
    apart = scenario(**TWO, optimizations__kv__block_size=16)
    shared = scenario(
        **TWO,
        optimizations__kv__block_size=16,
        optimizations__kv__prefix_sharing=True,
        optimizations__kv__shared_prefix_tokens=96,
    )
    assert memory(apart).kv_cache == 2 * 128 * 64
    assert memory(shared).kv_cache == (96 + 2 * 32) * 64


def test_a_deep_context_is_held_too() -> None:
    # 5,000 tokens are cached before the reported step, of requests that are given as 100 + 28.
    result = scenario(**TWO, workload__context_tokens=5000, optimizations__kv__block_size=16)
    assert memory(result).kv_cache == 2 * 5008 * 64


def test_how_many_requests_fit() -> None:
    # Room for exactly 1,000 tokens of 64 bytes and a bit.
    result = scenario(
        workload__batch=2,
        workload__input_tokens=100,
        workload__output_tokens=29,
        engine__gpu_memory_utilization=1.0,
        engine__max_model_len=200,
        optimizations__kv__block_size=16,
    )
    outcome = memory(result, capacity=RUNTIME_BYTES + 9_920 + 41_600 + 1000 * 64 + 63)
    by_layout = {
        f"{c.layout} {c.dtype}": (c.kv_tokens, c.reserved_tokens, c.max_concurrent_requests) for c in outcome.others
    }
    assert by_layout == {
        "contiguous bf16": (1000, 200, 5),
        "paged bf16": (992, 144, 6),  # 62 blocks, 9 for each request
        "contiguous int8": (2001, 200, 10),
        "paged int8": (2000, 144, 13),
    }
    assert outcome.capacity == next(c for c in outcome.others if (c.layout, c.dtype) == ("paged", "bf16"))


def test_the_bytes_of_a_token_do_not_depend_on_the_layout() -> None:
    result = memory(scenario(**TWO))
    assert {(c.layout, c.dtype): c.bytes_per_token for c in result.others} == {
        ("contiguous", "bf16"): 64,
        ("paged", "bf16"): 64,
        ("contiguous", "int8"): 32,
        ("paged", "int8"): 32,
    }


def test_an_fp16_model_keeps_its_cache_in_fp16() -> None:
    result = memory(scenario(**TWO, optimizations__weights="fp16"))
    assert {c.dtype for c in result.others} == {"fp16", "int8"}


@settings(max_examples=200)
@given(
    st.integers(1, 60),
    st.integers(1, 400),
    st.sampled_from([16, 128]),
    st.sampled_from(["contiguous", "paged"]),
    st.sampled_from(["auto", "int8"]),
    st.integers(0, 4_000_000),
    st.booleans(),
)
def test_a_batch_fits_if_it_is_at_most_the_number_that_fits(
    batch: int, prompt: int, block: int, layout: str, dtype: str, room: int, sharing: bool
) -> None:
    share = {"optimizations__kv__prefix_sharing": True, "optimizations__kv__shared_prefix_tokens": prompt // 2 + 1}
    result = scenario(
        workload__batch=batch,
        workload__input_tokens=prompt,
        optimizations__kv__layout=layout,
        optimizations__kv__block_size=block,
        optimizations__kv__dtype=dtype,
        engine__gpu_memory_utilization=1.0,
        **(share if sharing and layout == "paged" else {}),
    )
    outcome = memory(result, capacity=RUNTIME_BYTES + room)
    assert (outcome.too_much == 0) == (batch <= outcome.capacity.max_concurrent_requests)


# ---- the same weights as the program reads ----


@pytest.mark.parametrize("weights", ["bf16", "fp16", "w8a16", "w8a8", "w4a16", "w4a8"])
@pytest.mark.parametrize("model", [TINY, PLAIN, BIASED], ids=lambda m: m.name)
def test_weights_in_memory_are_those_that_the_program_reads(weights: str, model) -> None:
    result = switched(bare(), weights=weights)
    assert weight_bytes(result, model) == weight_bytes_of_program(program(result, model))


def test_a_tied_embedding_is_held_once_though_it_is_read_twice() -> None:
    tied = replace(TINY, tied_embeddings=True)
    assert weight_bytes_of_program(program(bare(), tied)) - weight_bytes(bare(), tied) == 32 * 16 * 2


def test_published_sizes_in_bytes() -> None:
    def gib(name: str, weights: str) -> float:
        return round(weight_bytes(scenario(optimizations__weights=weights), load_model(name)) / GIB, 1)

    assert gib("Qwen3-8B", "bf16") == 15.3  # 16.4 GB
    assert gib("Llama-3.1-70B", "bf16") == 131.4
    assert gib("Llama-3.1-70B", "w4a16") < 40


# ---- refusal ----


def test_what_does_not_fit_is_refused_with_the_parts_and_the_way_out() -> None:
    result = scenario(workload__batch=256, workload__input_tokens=4000, workload__output_tokens=96, model="Qwen3-8B")
    case = Case(result, load_model("Qwen3-8B"), hardware())
    with pytest.raises(DoesNotFit) as caught:
        predict(case)
    message = str(caught.value)
    assert re.fullmatch(
        r"does not fit: [\d.]+ GiB needed \(weights 15\.3, KV cache 144\.0, activations [\d.]+, "
        r"graph, buffers and runtime [\d.]+\) of 54\.9 GiB usable on \w+: [\d.]+ GiB too much; "
        r"at most \d+ requests of this length fit",
        message,
    )
    assert check(case) == [("workload.batch", message)]


def test_the_number_in_the_refusal_is_right() -> None:
    def case(batch: int) -> Case:
        result = scenario(workload__batch=batch, workload__input_tokens=4000, workload__output_tokens=96)
        return Case(result, load_model("Qwen3-8B"), hardware())

    ((_, message),) = check(case(256))
    match = re.search(r"at most (\d+) requests", message)
    assert match
    fits = int(match[1])
    assert check(case(fits)) == []
    assert check(case(fits + 1)) != []


def test_weights_alone_can_be_too_much() -> None:
    ((field, message),) = check(Case(scenario(), load_model("Llama-3.1-70B"), hardware()))
    assert field == "model"
    assert message.endswith("not even one request fits: shrink the weights")


def test_one_request_can_be_too_much_beside_weights_that_fit() -> None:
    # Of 57.6 GiB the weights take 15.3; a million tokens of 147,456 bytes would need 137.
    model = replace(load_model("Qwen3-8B"), max_position=2_000_000)
    ((field, message),) = check(Case(scenario(workload__input_tokens=1_000_000), model, hardware()))
    assert field == "workload.batch"
    assert message.endswith(
        "not even one request fits beside the weights: fewer or shorter ones, or less max_num_batched_tokens"
    )


def test_whether_the_weights_fit() -> None:
    # 9,920 bytes of weights and the runtime; all of the memory is usable.
    result = scenario(**TWO, engine__gpu_memory_utilization=1.0)
    assert memory(result, capacity=RUNTIME_BYTES + 9_921).weights_fit
    assert not memory(result, capacity=RUNTIME_BYTES + 9_920).weights_fit


# ---- what software sees ----


def test_software_sees_less_than_the_stacks_hold() -> None:
    """torch_npu reports 60.96 GiB on a 64 GiB A2 card, 61.27 GiB on an A3 die and 29.49 GiB on a 910B4 of 32 GiB."""
    seen = {name: load_hardware(name).chip.hbm_visible_bytes / GIB for name in ("910b2", "atlas_a3_die", "910b4")}
    assert [round(gib, 2) for gib in seen.values()] == [60.96, 61.27, 29.49]


def test_the_kv_capacity_of_qwen3_8b_is_what_is_left_of_that() -> None:
    """3.04 GiB that no engine gets are 6.6 % of the cache of Qwen3-8B at 0.9."""
    a2 = load_hardware("atlas_a2_910b2")
    as_sold = replace(a2, chip=replace(a2.chip, hbm_visible_bytes=a2.chip.hbm_capacity_bytes))
    asked, model = scenario(model="Qwen3-8B"), load_model("Qwen3-8B")
    seen, sold = (memory_of(asked, model, hw).capacity.kv_tokens for hw in (a2, as_sold))
    assert 1 - seen / sold == pytest.approx(0.066, abs=0.001)


def test_qwen3_14b_does_not_fit_a_32_gib_card() -> None:
    """vLLM reports -0.87 GiB for the cache at 0.9 on a virtual NPU of 32 GiB, which shows more than the card does:
    there, and more so on the card, the weights alone are more than it may use."""
    asked = scenario(model="Qwen3-14B", engine__max_model_len=4096, optimizations__graph="eager")
    card = load_hardware("910b4")
    virtual = replace(card, chip=replace(card.chip, hbm_visible_bytes=int(60.96 / 64 * card.chip.hbm_capacity_bytes)))
    left = []
    for hw in (virtual, card):
        memory = memory_of(asked, load_model("Qwen3-14B"), hw)
        assert memory.usable < memory.weights
        assert memory.capacity.kv_tokens == 0
        left.append((memory.usable - memory.total + memory.kv_cache) / GIB)
    assert left[0] == pytest.approx(-0.87, abs=0.2)
    assert left[0] - left[1] == pytest.approx(0.9 * (30.48 - 29.49), abs=0.01)


def test_what_engines_logs_say_of_the_rest() -> None:
    """Qwen3-14B on a 64 GiB card at 0.6: 27.54 GiB of weights, 0.26 of activations, 0.18 of other memory after 0.35
    at the start, 0.47 of graphs, 8.04 left for the cache (a public vLLM-Ascend log of 2026)."""
    asked = scenario(
        model="Qwen3-14B",
        engine__max_model_len=32768,
        engine__gpu_memory_utilization=0.6,
        optimizations__graph="aclgraph",
    )
    memory = memory_of(asked, load_model("Qwen3-14B"), load_hardware("910b2"))
    assert memory.weights / GIB == pytest.approx(27.54, abs=0.05)
    assert memory.runtime / GIB == pytest.approx(0.35 + 0.18, abs=0.01)
    assert memory.graph_pool / GIB < 0.47
    room = memory.usable - memory.total + memory.kv_cache
    assert room / GIB == pytest.approx(8.04, abs=0.5)


def test_the_graphs_of_the_smallest_model_take_something() -> None:
    """vLLM-Ascend's memory line shows 0.04 GiB for Qwen3-0.6B."""
    asked = scenario(model="Qwen3-0.6B", engine__cudagraph_capture_sizes=(1,), optimizations__graph="aclgraph")
    memory = memory_of(asked, load_model("Qwen3-0.6B"), load_hardware("atlas_a3_die"))
    assert memory.graph_pool / GIB == pytest.approx(0.04, abs=0.01)


@pytest.mark.parametrize(("tensor", "stages", "communicators"), [(1, 1, 0), (2, 1, 1), (1, 2, 1), (2, 2, 2)])
def test_each_communicator_has_its_buffers(tensor: int, stages: int, communicators: int) -> None:
    """The group of a layer and the pipeline's: 2 x 200 MiB each."""
    engine = {"engine__tensor_parallel_size": tensor, "engine__pipeline_parallel_size": stages}
    model = split_depth(shard(load_model("Qwen3-8B"), tensor), stages)
    memory = memory_of(scenario(model="Qwen3-8B", **engine), model, hardware())
    assert memory.hccl_buffers == communicators * 2 * 200 * 2**20


def test_a_cache_of_given_bytes_holds_what_they_hold() -> None:
    asked = scenario(**TWO, engine__kv_cache_memory_bytes=64 * 1000 + 63, optimizations__kv__block_size=16)
    outcome = memory(asked)
    assert outcome.capacity.kv_tokens == 992  # 1,000 tokens of 64 bytes, in blocks of 16
    assert outcome.kv_cache == memory(scenario(**TWO, optimizations__kv__block_size=16)).kv_cache  # the batch's


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (1 << 40, "1,048,576 MiB are more than the 39,927 MiB that weights, activations and buffers leave"),
        (1 << 20, "1.0 MiB hold 0 requests of this length, and workload.batch is 1"),
    ],
)
def test_a_cache_that_cannot_be_given_is_refused(given: int, message: str) -> None:
    model, hw = load_model("Qwen3-8B"), load_hardware("atlas_a2_910b2")
    ((field, what),) = check(Case(scenario(engine__kv_cache_memory_bytes=given), model, hw))
    assert field == "engine.kv_cache_memory_bytes"
    assert message in what


def test_the_room_that_shared_products_save_is_the_published_one() -> None:
    """vLLM-Ascend's page on it: DeepSeek-R1 W8A8 on 32 cards in groups of 8 saves 5.8, 1.51, 1.51 and 0.9 GB."""
    hardware = load_hardware("atlas_a3_die")
    model = shard(load_model("DeepSeek-R1"), 1, replicas=32, expert_parallel=True)

    def weights(**shared: int) -> int:
        result = scenario(
            optimizations__weights="w8a8", optimizations__graph="aclgraph", engine__data_parallel_size=32,
            engine__enable_expert_parallel=True, engine__finegrained_tp_config=shared or None,
        )  # fmt: skip
        return memory_of(result, model, hardware).weights

    products = ("oproj", "lmhead", "embedding", "mlp")
    saved = [(weights() - weights(**{f"{name}_tensor_parallel_size": 8})) / 2**30 for name in products]
    assert saved == pytest.approx([5.84, 1.51, 1.51, 0.97], abs=0.01)
