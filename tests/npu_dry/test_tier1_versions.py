"""Every call that an adapter makes, against the signatures of each supported torch_npu."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from device.operators.npu import call as door
from device.operators.npu.call import enforced
from device.operators.npu.rules import RULES
from device.operators.npu.versions import SUPPORTED, lacks_call, order, pair_of, wrong_pairing
from device.run.host_inputs import Requests
from tests.npu_dry.making import CASES, GLM, QWEN2, QWEN3, QWEN3_MOE, SPECIAL, VARIANTS, On, session

SCHEMAS = json.loads((Path(__file__).parent / "schemas.json").read_text(encoding="utf-8"))
#: Variants whose weights are laid out by calls without a meta kernel.
NO_META = ("w4a16", "nz", "w8a8 nz")
#: The cases that make all calls with all their keywords.
CHOSEN = (
    *(f"{model.name}, {name}" for model in (QWEN3, QWEN2) for name in VARIANTS if name not in NO_META),
    *(f"{model.name}, {name}" for model in (QWEN3_MOE, GLM)
      for name in ("experts, all fused", "experts w8a8", "experts w8a16")),
    "small-deepseek, experts, all fused", "small-deepseek, latent write", *SPECIAL,
)  # fmt: skip
#: Made with two ranks only: its keywords by hand.
WITH_RANKS = ("npu_mm_all_reduce_base", 3, frozenset({"bias", "antiquant_scale", "dequant_scale", "pertoken_scale"}))

Call = tuple[str, int, frozenset[str]]


def parameters(signature: str) -> list[tuple[str, bool, bool]]:
    """(name, may be positional, has a default) of each parameter of `name(Tensor x, *, int? n=None) -> ...`."""
    inside, depth, parts = signature[signature.index("(") + 1 : signature.rindex(") ->")], 0, [""]
    for character in inside:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    found, positional = [], True
    for part in (p.strip() for p in parts):
        if part == "*":
            positional = False
            continue
        declared, has_default, _ = part.partition("=")
        found.append((declared.split()[-1], positional, bool(has_default)))
    return found


@pytest.fixture(scope="module")
def made() -> set[Call]:
    """(call, positional arguments, keywords) of all that the adapters call, in prefill and decode."""
    found: set[Call] = {WITH_RANKS}
    honest = door.rules.check

    def note(name: str, args: Any, kwargs: Any) -> None:
        found.add((name, len(args), frozenset(key for key, value in kwargs.items() if value is not None)))
        honest(name, args, kwargs)

    door.rules.check = note
    for case in CHOSEN:
        model, switches = CASES[case]
        # Calls that lay out weights, or read latent rows back, have no meta kernel.
        ready = session(On("cpu" if case in SPECIAL or model.latent else "meta"), model, switches)
        for number in range(3):
            ready.cache.allocator.allocate(number, 44)
        with enforced():
            ready.run("prefill", Requests((0, 1, 2), (0, 0, 0), ((1,) * 20,) * 3))
            ready.run("prefill", Requests((0, 1, 2), (20, 20, 20), ((1,) * 20,) * 3))
            ready.run("decode", Requests((0, 1, 2), (40, 40, 40), ((1,),) * 3))
    door.rules.check = honest
    return found


def test_all_calls_are_made(made: set[Call]) -> None:
    assert {name for name, _, _ in made} == set(RULES)


@pytest.mark.parametrize("pair", SUPPORTED, ids=lambda pair: pair.torch_npu)
def test_every_call_fits_the_signature_of(made: set[Call], pair: Any) -> None:
    for name, count, keywords in made:
        known = parameters(SCHEMAS[pair.torch_npu][name])
        positional = [p for p, may_be, _ in known if may_be]
        assert count <= len(positional), name
        assert keywords <= {p for p, _, _ in known[count:]}, name
        given = {*positional[:count], *keywords}
        assert not [p for p, _, has_default in known if not has_default and p not in given], name


def test_the_default_layout_of_rope_is_why_it_is_always_named(made: set[Call]) -> None:
    texts = {version: signatures["npu_apply_rotary_pos_emb"] for version, signatures in SCHEMAS.items()}
    assert "layout='BSH'" in texts["2.8.0.post4"]
    assert "layout='BSND'" in texts["2.10.0.post4"]
    assert all("layout" in keywords for name, _, keywords in made if name == "npu_apply_rotary_pos_emb")


def test_versions_are_ordered_and_paired() -> None:
    versions = ["2.8.0", "2.8.0.post2", "2.8.0.post4", "2.10.0.post4", "2.13.0"]
    assert sorted(versions, key=order) == versions
    assert lacks_call("npu_qkv_rms_norm_rope_cache", "2.8.0.post2") == "2.8.0.post4"
    assert lacks_call("npu_qkv_rms_norm_rope_cache", "2.10.0.post4") is None
    assert lacks_call("npu_rms_norm", "2.8.0") is None
    assert wrong_pairing("2.10.0+cpu", "2.10.0.post4") is None
    assert "pip install torch==2.8.0" in str(wrong_pairing("2.13.0", "2.8.0.post4"))
    assert pair_of("2.9.0") is None
