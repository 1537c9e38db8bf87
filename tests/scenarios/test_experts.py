"""Experts in the Program: choice, grouped products, expert-parallel or each expert sliced, MLA around them."""

from __future__ import annotations

import pytest

from scenarios.batches import decode_batch, prefill_batches
from scenarios.build import build, problems_of
from scenarios.errors import ScenarioError
from scenarios.lowering.parallel import shard
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.ops.catalogue import work_of
from scenarios.ops.product_work import placed
from scenarios.ops.program import Op, Program
from scenarios.ops.routing import Routing
from scenarios.ops.work import GroupedShape
from tests.scenarios.making import EXPERTS, LATENT, PARTIAL, TINY, bare, names, op, program, scenario, switched

DEEPSEEK = load_model("DeepSeek-V3")


def spread(tp: int, dp: int, **settings: object) -> tuple[Program, Model]:
    """A captured decode step of DeepSeek-V3 in W8A8, expert-parallel over tp x dp ranks."""
    result = scenario(
        model="DeepSeek-V3",
        workload__batch=8,
        workload__input_tokens=512,
        engine__tensor_parallel_size=tp,
        engine__data_parallel_size=dp,
        engine__enable_expert_parallel=True,
        optimizations__graph="aclgraph",
        optimizations__weights="w8a8",
        **settings,
    )
    model = shard(DEEPSEEK, tp, dp, expert_parallel=True)
    return build(result, model, decode_batch(result)), model


def test_a_decode_layer_of_deepseek_is_what_a_profile_of_16_dies_shows() -> None:
    # Op types and shapes of one rank in a public profile of DeepSeek-V3 W8A8 on 16 A3 dies (TP8, DP2, EP16).
    result, model = spread(8, 2)
    assert (model.heads, model.experts and model.experts.held, model.vocab) == (16, 16, 16160)
    shapes = {o.name: (o.inputs[0].shape, o.inputs[1].shape) for o in result.block("layers").ops if len(o.inputs) > 1}
    assert shapes["qkv_a_proj"] == ((8, 7168), (2112, 7168))
    assert shapes["q_b_proj"] == ((8, 1536), (3072, 1536))
    assert shapes["absorb_k"] == ((16, 8, 128), (16, 128, 512))
    assert shapes["absorb_v"] == ((16, 8, 512), (16, 512, 128))
    assert shapes["o_proj"] == ((8, 2048), (7168, 2048))
    assert shapes["router"] == ((1, 7168), (256, 7168))  # each rank routes its own token
    assert shapes["router.gating"] == ((1, 256), (256,))
    assert shapes["shared.gate_up_proj"] == ((1, 7168), (4096, 7168))
    assert shapes["shared.down_proj"] == ((1, 2048), (7168, 2048))
    dense = {o.name: [t.shape for t in o.inputs[:2]] for o in result.block("dense_layers").ops}
    assert dense["gate_up_proj"] == [(8, 7168), (4608, 7168)]
    assert dense["down_proj"] == [(8, 2304), (7168, 2304)]
    assert [(b.name, b.repeat) for b in result.blocks if b.is_layer] == [("dense_layers", 3), ("layers", 58)]


def test_a_dispatch_quantises_what_it_sends_and_the_router_stays_in_16_bit() -> None:
    result, _ = spread(8, 2)
    dispatch = op(result, "exchange.dispatch")
    assert dispatch.outputs[0].dtype == "int8"
    assert op(result, "experts.gate_up_proj").inputs[0].name == dispatch.outputs[0].name
    assert op(result, "router").inputs[1].dtype == op(result, "absorb_k").inputs[1].dtype == "bf16"


def test_tokens_of_a_rank_are_gathered_again_and_sums_are_not_reduced() -> None:
    result, _ = spread(8, 2)
    links = [(o.kind, o.inputs[0].shape, o.out.shape) for o in result.block("layers").ops if work_of(o).unit == "link"]
    assert links == [
        ("all_reduce", (8, 7168), (8, 7168)),  # attention's partial sums
        ("moe_dispatch", (1, 7168), (8, 7168)),
        ("moe_combine", (8, 7168), (1, 7168)),
        ("all_gather", (1, 7168), (8, 7168)),
    ]


def test_sliced_experts_are_summed_over_the_ranks() -> None:
    result = scenario(model="Qwen3-30B-A3B", workload__batch=4, engine__tensor_parallel_size=4)
    model = shard(load_model("Qwen3-30B-A3B"), 4)
    layer = build(result, model, decode_batch(result)).block("layers").ops
    by_name = {o.name: o for o in layer}
    assert by_name["experts.gate_up_proj"].inputs[1].shape == (128, 2 * 768 // 4, 2048)
    assert by_name["experts.unpermute"].out.name == "mlp_out"
    assert [o.name for o in layer if o.kind == "all_reduce"] == ["o_proj.all_reduce", "experts.all_reduce"]


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("model", [EXPERTS, LATENT], ids=lambda m: m.name)
def test_no_fusion_loses_a_collective(model: Model, spread: bool) -> None:
    """All that ranks exchange is there before and after the passes, scattered over tokens or not."""
    local = shard(model, 2, expert_parallel=spread)
    for scattered in (False, True):
        how = {
            "workload__phase": "prefill",
            "workload__input_tokens": 1200,
            "engine__tensor_parallel_size": 2,
            "engine__enable_expert_parallel": spread,
            "engine__sequence_parallel": scattered,
        }
        lowered, fused = program(bare(local, **how), local), program(scenario(**how), local)

        def links(result: Program) -> list[tuple[str, str]]:
            return [(b.name, o.name) for b in result.blocks for o in b.ops if work_of(o).unit == "link"]

        sent = [name for _, name in links(lowered) if name in ("exchange.send", "exchange.return")]
        assert len(sent) == (2 if spread else 0)
        assert len(links(fused)) > 5  # embedding, two sums and their gathers a layer, head
        assert links(fused) == links(lowered)


def test_gathered_experts_see_all_tokens_and_sum_up() -> None:
    result = scenario(
        model="Qwen3-30B-A3B",
        workload__batch=4,
        engine__tensor_parallel_size=2,
        engine__data_parallel_size=2,
        engine__enable_expert_parallel=True,
        engine__all2all_backend="allgather_reducescatter",
    )
    model = shard(load_model("Qwen3-30B-A3B"), 2, 2, True, True)
    layer = build(result, model, decode_batch(result)).block("layers").ops
    assert model.experts
    assert model.experts.held == 32
    links = [(o.name, o.inputs[0].shape, o.out.shape) for o in layer if work_of(o).unit == "link"]
    assert links == [
        ("o_proj.all_reduce", (4, 2048), (4, 2048)),
        ("gather.mlp_in", (4, 2048), (8, 2048)),
        ("gather.expert_ids", (4, 8), (8, 8)),
        ("gather.expert_weights", (4, 8), (8, 8)),
        ("scatter.experts", (8, 2048), (4, 2048)),
        ("scatter.experts.all_reduce", (4, 2048), (4, 2048)),
    ]
    one = shard(load_model("DeepSeek-V2-Lite"), 2, 1, True, True)
    assert one.experts
    assert (one.experts.held, one.experts.shared) == (32, 1408)  # of the shared expert a slice


@pytest.mark.parametrize("gathered", [False, True], ids=["sent", "gathered"])
def test_a_rank_whose_experts_nobody_drew_still_makes_its_sum(gathered: bool) -> None:
    """Eight tokens choose two of eight experts each, and in this draw none chooses the first, which is rank 0's."""
    engine = {"engine__data_parallel_size": 8, "engine__enable_expert_parallel": True}
    result = switched(bare(EXPERTS, workload__batch=1, **engine, protocol__seed=5), fusion__moe_dispatch=gathered)
    model = shard(EXPERTS, 1, 8, expert_parallel=True, gathered=gathered)
    assert Routing(8, 8, 1, 2, 0.0, 5).loads(0) == (0,)
    ops = build(result, model, decode_batch(result)).block("layers").ops
    total = "moe_partial" if gathered else "rows_done"
    reader = next(i for i, o in enumerate(ops) if any(t.name == total for t in o.inputs))
    assert any(t.name == total for o in ops[:reader] for t in o.outputs)
    assert {o.inputs[0].shape[0] for o in ops if o.name == "expert0.down_proj"} == {1}


def test_a_grouped_product_reads_the_weights_of_chosen_experts_only() -> None:
    result, _ = spread(8, 2)
    product = op(result, "experts.gate_up_proj")
    work = work_of(product)
    assert isinstance(work.shape, GroupedShape)
    busy = len(work.shape.loads)
    assert 0 < busy < 16
    scales = product.inputs[2].bytes * busy // 16
    assert work.cold_read_bytes == busy * 4096 * 7168 + scales
    elsewhere = {work_of(placed(product, layer, rank)).cold_read_bytes for layer in range(4) for rank in range(4)}
    assert len(elsewhere) > 1  # other layers and ranks, other experts


def test_choice_and_experts_one_by_one_become_four_and_five_calls() -> None:
    off = bare(EXPERTS, workload__batch=2, workload__input_tokens=9, workload__output_tokens=1)
    loop = [o.name for o in program(off, EXPERTS).block("layers").ops]
    experts = {name.partition(".")[0] for name in loop if name.startswith("expert")}
    assert 2 <= len(experts) <= 4  # two tokens that take two of eight experts each
    fused = switched(off, fusion__moe_routing=True, fusion__grouped_matmul=True, fusion__gate_up=True)
    after = names(program(switched(fused, fusion__swiglu=True), EXPERTS))
    assert [n for n in after if n.startswith(("router", "expert"))] == [
        "router", "router.gating", "router.sum", "router.normalise", "router.cast_weights",
        "experts.permute", "experts.gate_up_proj", "experts.swiglu", "experts.down_proj", "experts.unpermute",
    ]  # fmt: skip


def test_a_large_step_keeps_the_all_to_all() -> None:
    def kinds(tokens: int) -> set[str]:
        result = scenario(
            model="GLM-4.5-Air",
            workload__phase="prefill",
            workload__input_tokens=tokens,
            engine__tensor_parallel_size=2,
            engine__enable_expert_parallel=True,
        )
        model = shard(load_model("GLM-4.5-Air"), 2, expert_parallel=True)
        batch = prefill_batches(result)[0]
        return {o.kind for o in build(result, model, batch).block("layers").ops}

    assert kinds(1024) & {"moe_dispatch", "all_to_all"} == {"moe_dispatch"}  # 512 tokens a rank
    assert kinds(1026) & {"moe_dispatch", "all_to_all"} == {"all_to_all"}


@pytest.mark.parametrize(
    ("model", "ranks", "replicas", "spreads", "words"),
    [
        (TINY, 2, 1, True, "tiny has no experts to spread over ranks"),
        (EXPERTS, 4, 4, True, "8 experts do not divide by the 16 ranks that share them"),
        (EXPERTS, 4, 1, False, ""),
        (LATENT, 8, 1, False, "4 attention heads do not divide by 8"),
    ],
)
def test_what_does_not_divide_is_refused_with_the_reason(
    model: Model, ranks: int, replicas: int, spreads: bool, words: str
) -> None:
    if not words:
        shard(model, ranks if ranks <= model.kv_heads else 2, replicas, spreads)
        return
    with pytest.raises(ScenarioError, match=words):
        shard(model, ranks, replicas, spreads)


@pytest.mark.parametrize(
    ("model", "settings", "told"),
    [
        (TINY, {"workload__expert_skew": 1.0}, ("workload.expert_skew", "has no effect: tiny has no experts")),
        (
            TINY,
            {"optimizations__fusion__grouped_matmul": False},
            ("optimizations.fusion.grouped_matmul", "has no effect here: tiny has no experts"),
        ),
        (
            LATENT,
            {"optimizations__fusion__attention": False},
            (
                "optimizations.fusion.attention",
                "has no effect here: latent attends to latent rows: only the fused kernel of that is modelled",
            ),
        ),
        (
            LATENT,
            {"optimizations__kv__dtype": "int8"},
            ("optimizations.kv.dtype", "latent keeps latent rows, and those are not modelled in INT8"),
        ),
    ],
)
def test_settings_without_effect_are_refused(model: Model, settings: dict[str, object], told: tuple[str, str]) -> None:
    assert problems_of(scenario(workload__input_tokens=64, workload__output_tokens=4, **settings), model) == [told]


def test_a_prefill_of_latent_attention_unpacks_what_it_sees() -> None:
    result = scenario(
        workload__phase="prefill", workload__input_tokens=100, workload__context_tokens=28, workload__output_tokens=1
    )
    by_name: dict[str, Op] = {o.name: o for o in program(result, LATENT).block("layers").ops}
    assert by_name["kv_b_proj"].inputs[0].shape == (128, 8)  # cached rows and new ones
    assert by_name["read_latent"].outputs[0].shape == (28, 8)
    attention = by_name["prefill_attention"]
    assert (attention.inputs[0].shape, attention.inputs[1].shape, attention.out.shape) == (
        (100, 4, 6),
        (128, 4, 6),
        (100, 4, 4),
    )
    assert "absorb_k" not in by_name


def test_weights_are_divided_by_their_sum_where_the_model_wants_that() -> None:
    divided, taken = (
        [n for n in names(program(switched(bare(model), fusion__grouped_matmul=True), model)) if "router." in n]
        for model in (EXPERTS, PARTIAL)
    )
    assert divided == ["router.cast", "router.softmax", "router.top_k", "router.sum", "router.normalise"]
    assert taken == ["router.cast", "router.softmax", "router.top_k"]


def test_a_fused_cache_write_that_turns_whole_heads_is_refused_for_part_of_them() -> None:
    result = switched(
        bare(PARTIAL),
        fusion__qkv=True,
        fusion__rms_norm=True,
        fusion__rope=True,
        fusion__attention=True,
        kv__layout="paged",
        fusion__qkv_norm_rope_cache=True,
    )
    what = "partial turns part of each head, and the fused kernel turns whole ones"
    assert problems_of(result, PARTIAL) == [("optimizations.fusion.qkv_norm_rope_cache", what)]
