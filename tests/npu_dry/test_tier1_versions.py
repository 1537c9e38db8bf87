"""Every call that an adapter makes, against the signatures of each wheel of torch_npu in schemas.json."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from device.operators.npu import call as door
from device.operators.npu.call import enforced
from device.operators.npu.rules import RULES
from device.operators.npu.versions import (
    NEWEST,
    NPUGRAPH_EX,
    QKV_IN_ONE,
    SINCE,
    V2_IN_CAPTURE,
    WHEELS,
    has,
    lacks,
    line_of,
    order,
    wheel_of,
    wrong_pairing,
)
from device.run.host_inputs import Requests
from tests.npu_dry import schemas
from tests.npu_dry.making import CASES, GLM, QWEN2, QWEN3, QWEN3_MOE, SPECIAL, VARIANTS, On, session

SCHEMAS = schemas.load()
#: Variants whose weights are laid out by calls without a meta kernel.
NO_META = ("w4a16", "nz", "w8a8 nz")
#: The cases that make all calls with all their keywords.
CHOSEN = (
    *(f"{model.name}, {name}" for model in (QWEN3, QWEN2) for name in VARIANTS if name not in NO_META),
    *(
        f"{model.name}, {name}"
        for model in (QWEN3_MOE, GLM)
        for name in ("experts, all fused", "experts w8a8", "experts w8a16")
    ),
    "small-deepseek, experts, all fused",
    "small-deepseek, latent write",
    *SPECIAL,
)
#: Made with two ranks only (tiers 2 and 3): their keywords by hand.
WITH_RANKS = {
    ("npu_mm_all_reduce_base", 3, frozenset({"bias", "antiquant_scale", "dequant_scale", "pertoken_scale"})),
    (
        "npu_moe_distribute_dispatch_v2",
        6,
        frozenset({"x_active_mask", "quant_mode", "expert_token_nums_type"}),
    ),
    ("npu_moe_distribute_combine_v2", 9, frozenset({"x_active_mask"})),
}

Call = tuple[str, int, frozenset[str]]


def parameters(signature: str) -> list[tuple[str, bool, bool]]:
    """(name, may be positional, has a default) of each parameter of `name(Tensor x, *, int? n=None) -> ...`,
    or of one that is cut off."""
    inside, depth, parts = signature.partition("(")[2].rpartition(") ->")[0] or signature.partition("(")[2], 0, [""]
    for character in inside:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    result, positional = [], True
    for part in (p.strip() for p in parts):
        if part == "*":
            positional = False
            continue
        declared, has_default, _ = part.partition("=")
        result.append((declared.split()[-1], positional, bool(has_default)))
    return result


def abilities(version: str) -> tuple[bool, ...]:
    """What decides which calls are made on a wheel."""
    return tuple(has(what, version) for what in SINCE)


@cache
def made(of: tuple[bool, ...]) -> set[Call]:
    """(call, positional arguments, keywords) of all that the adapters call on a wheel of these abilities, in prefill
    and decode."""
    version = next(wheel.torch_npu for wheel in WHEELS if abilities(wheel.torch_npu) == of)
    calls: set[Call] = set(WITH_RANKS)
    honest = door.rules.check

    def note(name: str, args: Any, kwargs: Any) -> None:
        calls.add((name, len(args), frozenset(key for key, value in kwargs.items() if value is not None)))
        honest(name, args, kwargs)

    door.rules.check = note
    chosen = [case for case in CHOSEN if has(QKV_IN_ONE, version) or "qkv, norms" not in case]
    chosen = [case for case in chosen if has(V2_IN_CAPTURE, version) or "sinks" not in case]
    for case in chosen:
        model, _ = CASES[case]
        # Calls that lay out weights, or read latent rows back, have no meta kernel.
        made_by(case, On("cpu" if case in SPECIAL or model.latent else "meta", version))
    made_by("small-qwen3, all fused, paged", On("cpu", version, atb=True))
    door.rules.check = honest
    return calls


def made_by(case: str, backend: On) -> None:
    """A prefill, a second part of it and a decode step."""
    ready = session(backend, *CASES[case])
    for number in range(3):
        ready.cache.allocator.allocate(number, 44)
    with enforced():
        ready.run("prefill", Requests((0, 1, 2), (0, 0, 0), ((1,) * 20,) * 3))
        ready.run("prefill", Requests((0, 1, 2), (20, 20, 20), ((1,) * 20,) * 3))
        ready.run("decode", Requests((0, 1, 2), (40, 40, 40), ((1,),) * 3))


def test_all_calls_are_made() -> None:
    newest, oldest = ({name for name, _, _ in made(abilities(version))} for version in ("2.13.0", "2.8.0"))
    assert newest | oldest == set(RULES)
    assert newest - oldest == {"npu_qkv_rms_norm_rope_cache", "npu_gather_pa_kv_cache", "npu_scatter_pa_kv_cache"}
    assert oldest - newest == {"_npu_reshape_and_cache"}


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.torch_npu)
def test_every_call_fits_the_signature_of(wheel: Any) -> None:
    for name, count, keywords in made(abilities(wheel.torch_npu)):
        known = parameters(SCHEMAS[wheel.torch_npu].calls[name])
        positional = [p for p, may_be, _ in known if may_be]
        assert count <= len(positional), name
        assert keywords <= {p for p, _, _ in known[count:]}, name
        given = {*positional[:count], *keywords}
        assert not [p for p, _, has_default in known if not has_default and p not in given], name


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.torch_npu)
def test_what_a_wheel_is_said_to_lack_is_what_its_files_lack(wheel: Any) -> None:
    read = SCHEMAS[wheel.torch_npu]
    lacking = {what for what in SINCE if not has(what, wheel.torch_npu)}
    removed = {name for name in (QKV_IN_ONE, "npu_gather_pa_kv_cache") if name not in read.calls}
    if "cache_mode" not in read.calls["npu_scatter_pa_kv_cache"]:
        removed.add("npu_scatter_pa_kv_cache(cache_mode)")
    if "npu_fused_infer_attention_score_v2" not in read.updated:
        removed.add(V2_IN_CAPTURE)
    if not read.npugraph_ex:
        removed.add(NPUGRAPH_EX)
    assert lacking == removed
    assert "npu_fused_infer_attention_score" in read.updated


def test_a_call_that_no_wheel_has_would_be_found() -> None:
    """The 2.9.0 that stopped every paged scenario: a keyword that it does not know."""
    known = parameters(SCHEMAS["2.9.0"].calls["npu_scatter_pa_kv_cache"])
    assert "cache_mode" not in {name for name, _, _ in known}
    assert ("npu_scatter_pa_kv_cache", 5, frozenset({"cache_mode"})) in made(abilities("2.13.0"))
    assert "npu_scatter_pa_kv_cache" not in {name for name, _, _ in made(abilities("2.9.0"))}


def test_the_default_layout_of_rope_is_why_it_is_always_named() -> None:
    texts = {version: read.calls["npu_apply_rotary_pos_emb"] for version, read in SCHEMAS.items()}
    assert "layout='BSH'" in texts["2.8.0.post4"]
    assert "layout='BSND'" in texts["2.10.0.post4"]
    calls = made(abilities("2.13.0"))
    assert all("layout" in keywords for name, _, keywords in calls if name == "npu_apply_rotary_pos_emb")


def test_versions_are_ordered_and_paired() -> None:
    versions = ["2.7.1.post2", "2.8.0", "2.8.0.post2", "2.8.0.post4", "2.9.0", "2.10.0.post4", "2.13.0"]
    assert sorted(versions, key=order) == versions
    assert wrong_pairing("2.10.0+cpu", "2.10.0.post4") is None
    assert "pip install torch==2.8.0" in str(wrong_pairing("2.13.0", "2.8.0.post4"))
    assert "or torch-npu==2.9.0.post6 for this torch" in str(wrong_pairing("2.9.0", "2.8.0"))
    assert wheel_of("2.9.1") is None
    assert wheel_of("2.9.0+git1234") == wheel_of("2.9.0")


def test_a_lacking_call_is_told_with_the_wheel_that_has_it_and_its_cann() -> None:
    wanted = "torch_npu 2.9.0 has no npu_qkv_rms_norm_rope_cache, 2.9.0.post2 (CANN 9.0.0) has"
    assert lacks(QKV_IN_ONE, "2.9.0") == wanted
    assert str(lacks(QKV_IN_ONE, "2.7.1.post2")).endswith("2.7.1.post4 (CANN 9.0.0) has")
    assert lacks(QKV_IN_ONE, "2.10.0.post4") is None
    assert str(lacks(V2_IN_CAPTURE, "2.8.0")).endswith("2.8.0.post2 (CANN 8.5.0) has")


def test_an_unknown_version_has_what_the_nearest_older_one_for_its_torch_has() -> None:
    assert line_of("2.9.0.post4") == (26, 0)
    assert line_of("2.7.1.post1") == (7, 2)
    assert line_of("2.14.0") == NEWEST
    assert line_of("2.6.0") == (7, 2)
