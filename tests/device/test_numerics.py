"""The error table: every switch has its row, a number or a reason."""

from __future__ import annotations

from device.backends import choose
from device.measure.numerics import Row, error_table, families, markdown, scaled_down, switches
from scenarios.models.hf_config import load_model, model_names
from scenarios.passes import PASSES


def test_every_family_that_ships_has_a_small_variant() -> None:
    small = families()
    assert {(m.qk_norm, m.qkv_bias, m.tied_embeddings) for m in small} == {
        (m.qk_norm, m.qkv_bias, m.tied_embeddings) for name in small for m in [load_model(name.name.split()[0])]
    }
    assert {m.model_type for m in small} == {load_model(name).model_type for name in model_names()}
    assert {m.model_type for m in small if m.experts} == {
        "PanguProMoE", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "glm4_moe", "gpt_oss",
        "kimi_k2", "qwen3_5_moe_text", "qwen3_moe",
    }  # fmt: skip
    assert {m.model_type for m in small if m.latent} == {
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "kimi_k2",
    }
    assert (scaled_down(load_model("Qwen3-8B")).heads, scaled_down(load_model("Qwen3-8B")).kv_heads) == (4, 2)


def test_every_switch_has_its_row() -> None:
    model = next(m for m in families() if m.model_type == "qwen2")
    named = [name.partition("=")[0] for name, _ in switches(model)]
    assert {item.switch for item in PASSES if not item.idle(model)} <= set(named)
    rows = list(error_table([model], choose("cpu"), choice_is_reference=True))
    assert [row.precision for row in rows[:2]] == ["fp32", "bf16"]
    assert rows[0] == Row(model.name, "none", "fp32")  # the plain program is its own yardstick
    assert len(rows) == 2 * (1 + len(named))
    refused = {row.switch: row.refused for row in rows if row.refused}
    no_norm = refused.pop("fusion.qkv_norm_rope_cache=true")
    assert "no Q and K norm" in no_norm
    assert set(refused) == {"fusion.matmul_all_reduce=true", "overlap.comm_chunks=4"}
    assert all("engine.tensor_parallel_size above 1" in why for why in refused.values())  # one rank has no collectives
    assert all(row.relative < 0.3 for row in rows)
    exact = [
        row for row in rows if row.switch in ("kv.layout=paged", "overlap.prefetch=true") and row.precision == "fp32"
    ]
    assert len(exact) == 2
    assert all(row.largest < 1e-5 for row in exact)


def test_a_row_says_where_the_first_other_token_is() -> None:
    rows = [Row("m", "a", "bf16", 0.5, 0.25, (3, 1)), Row("m", "b", "fp32", refused="why"), Row("m", "c", "fp32")]
    assert list(markdown(rows))[2:] == [
        "| m | a | bf16 | 5.0e-01 | 2.5e-01 | first other at step 3 of request 1 |",
        "| m | b | fp32 | | | refused: why |",
        "| m | c | fp32 | 0.0e+00 | 0.0e+00 | equal |",
    ]
