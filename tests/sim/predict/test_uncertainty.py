"""How sure a prediction is: intervals worked out by hand, what cancels in a ratio, what a step depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import exp, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.batches import decode_batch
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.schema import Scenario
from sim.hardware.profile import HardwareProfile
from sim.kernel.ranges import Spreads
from sim.predict.best_set import NO_EFFECT
from sim.predict.gains import gains_of
from sim.predict.steps import Case, length_ns, plans_of, sensitivity_of
from sim.predict.uncertainty import (
    T90,
    Sensitivity,
    implied_width,
    ratio_interval,
    sensitivity,
    sigma_of,
    step_interval,
)
from sim.step.plan import HostWork, Issue, Launch, Plan, Synchronize
from tests.scenarios.making import TINY, scenario
from tests.sim.hardware_maker import hardware
from tests.sim.plans import SYNCHRONIZE, launch, together

#: Standard deviations that are easy to distinguish in a sum of squares.
SIGMAS = {
    "residual__matmul_sigma": 0.1, "residual__attention_sigma": 0.4, "residual__vector_sigma": 0.2,
    "residual__device_sigma": 0.05, "residual__host_sigma": 0.3, "residual__host_class_sigma": 0.5,
}  # fmt: skip
HW = hardware(**SIGMAS)
#: A quarter of the variance is common to all kernels; no program differs from its family.
SPREADS = Spreads(0.1, 0.05, 0.5, 0.25, dict.fromkeys(("matmul", "attention", "vector"), 0.1), {"softmax": 0.5})
QWEN3_8B = load_model("Qwen3-8B")


@pytest.fixture(autouse=True, scope="module")
def known_spreads() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("sim.kernel.ranges.spreads", "sim.predict.uncertainty.spreads"):
            patch.setattr(name, lambda: SPREADS)
        yield


def kernel(kind: str, ns: int, gm_bytes: int = 0, host_ns: int = 0) -> Launch:
    """A launch of `kind` whose signature is distinguished by its bytes."""
    result = launch(kind, ns, host_ns=host_ns)
    return replace(result, kind=kind, kernel=replace(result.kernel, gm_bytes=gm_bytes))


def on_device(*kernels: Launch, hw: HardwareProfile = HW) -> Sensitivity:
    """The exposure of a step that is made of these kernels, one after the other, and of nothing else."""
    plan = together(*kernels)
    step = sum(one.kernel.duration_ns for one in kernels)
    assert length_ns((plan,)) == step
    return sensitivity(step, round(1.05 * step), step, plan, hw)


def case(result: Scenario, model: Model = TINY, hw: HardwareProfile = HW) -> Case:
    return Case(result, model, hw)


# ---- the interval of a step ----


def test_a_step_of_two_kernels_by_hand() -> None:
    # 60 us of matmul, 40 us of a norm: weights 0.6 and 0.4 of a step that depends on its device alone.
    item = on_device(kernel("matmul", 60_000), kernel("rms_norm", 40_000))
    assert (item.step_ns, item.device, item.host) == (100_000, pytest.approx(1.0), 0.0)
    weights = sorted(weight for weight, _ in item.parts.values() if weight)
    assert weights == pytest.approx([0.4, 0.6, 1.0])  # each kernel alone, and both together
    # 0.75 x ((0.6 x 0.1)^2 + (0.4 x 0.2)^2) + 0.25 x (0.6 x 0.1 + 0.4 x 0.2)^2 + 0.05^2 = 0.0149;
    # 2.1318 times its root is 0.2602: exp(-0.2602) = 0.7709.
    low, high = step_interval(item, HW)
    assert low == pytest.approx(77_088, abs=2)
    assert high == pytest.approx(129_722, abs=2)


def test_equal_kernels_are_wrong_together_and_different_ones_on_their_own() -> None:
    hw = hardware(**{**SIGMAS, "residual__device_sigma": 0.0})
    equal = on_device(kernel("matmul", 50_000), kernel("matmul", 50_000), hw=hw)
    different = on_device(kernel("matmul", 50_000), kernel("matmul", 50_000, gm_bytes=1), hw=hw)
    # One error of 0.1, against two of 0.05 of which a quarter of the variance is common: 0.75 / 2 + 0.25.
    assert log(step_interval(equal, hw)[1] / 100_000) == pytest.approx(T90 * 0.1)
    assert log(step_interval(different, hw)[1] / 100_000) == pytest.approx(T90 * 0.1 * sqrt(0.625))


def test_a_kernel_outside_of_what_was_fitted_is_less_sure() -> None:
    hw = hardware(**{**SIGMAS, "residual__device_sigma": 0.0})
    one = kernel("matmul", 100_000)
    far = replace(one, kernel=replace(one.kernel, extra_sigma=0.24))
    # hypot(0.1, 0.24) = 0.26
    assert log(step_interval(on_device(far, hw=hw), hw)[1] / 100_000) == pytest.approx(T90 * 0.26)


def test_a_step_needs_a_share_of_the_width_that_its_kernels_imply(monkeypatch: pytest.MonkeyPatch) -> None:
    spreads = replace(SPREADS, steps={HW.profile.name: 0.5})
    item, other = on_device(kernel("matmul", 50_000)), on_device(kernel("matmul", 25_000, gm_bytes=1))
    ratio = ratio_interval(item, other, HW)
    monkeypatch.setattr("sim.kernel.ranges.spreads", lambda: spreads)
    # hypot(0.1, 0.05) = 0.1118 of one matmul and its device.
    assert implied_width(item, HW) == pytest.approx(T90 * 0.1118, rel=1e-4)
    low, high = step_interval(item, HW)
    assert (log(low / 50_000), log(high / 50_000)) == pytest.approx((-T90 * 0.0559, T90 * 0.0559), rel=1e-3)
    assert ratio_interval(item, other, HW) == ratio  # gains are no steps
    elsewhere = replace(HW, profile=HW.profile.model_copy(update={"name": "a chip without measured steps"}))
    assert log(step_interval(item, elsewhere)[1] / 50_000) == pytest.approx(implied_width(item, HW))


def test_host_calls_are_wrong_by_class() -> None:
    # Three adds of 10 us and a matmul of 10 us on the host, whose kernels take no time to speak of.
    calls = [Issue(kernel("add", 1, host_ns=10_000))] * 3 + [Issue(kernel("matmul", 1, host_ns=10_000))]
    plan = Plan((*calls, SYNCHRONIZE), launch_thread=False, queue_depth=1)
    item = sensitivity(40_000, 40_000, 42_000, plan, HW)
    assert (item.device, item.host) == (0.0, pytest.approx(1.0))
    assert item.parts["host", "aten"] == pytest.approx((0.75, 0.5))
    assert item.parts["host", "matmul"] == pytest.approx((0.25, 0.5))
    # (0.75 x 0.5)^2 + (0.25 x 0.5)^2 + 0.3^2 = 0.24625.
    low, high = step_interval(item, HW)
    assert high == pytest.approx(40_000 * exp(T90 * sqrt(0.24625)))
    assert low == pytest.approx(40_000 * exp(-T90 * sqrt(0.24625)))


def test_what_is_no_call_of_an_op_counts_as_the_graphs() -> None:
    plan = Plan((HostWork("copy inputs", 30_000), Synchronize("synchronize", 10_000)), False, 1)
    item = sensitivity(40_000, 40_000, 42_000, plan, HW)
    assert item.parts == {("host", "graph"): pytest.approx((1.0, 0.5))}


def test_which_residual_is_a_kinds() -> None:
    assert {sigma_of(kind, HW) for kind in ("matmul", "batch_matmul", "quant_matmul")} == {0.1}
    assert sigma_of("attention", HW) == 0.4
    assert {sigma_of(kind, HW) for kind in ("rms_norm", "add", "kv_cache_write", "prepare_cpu")} == {0.2}
    assert sigma_of("softmax", HW) == 0.1  # half of its family's, as its own residuals are


SHARES = st.floats(0.0, 1.0)
EXPOSURES = st.builds(
    lambda ns, device, host, weights: Sensitivity(ns, device, host, {i: (w, 0.1) for i, w in enumerate(weights)}),
    st.integers(1, 10**9),
    SHARES,
    SHARES,
    st.lists(SHARES, max_size=5),
)


@given(EXPOSURES)
def test_intervals_are_symmetric_in_the_logarithm(it: Sensitivity) -> None:
    low, high = step_interval(it, HW)
    assert low <= it.step_ns <= high
    assert low * high == pytest.approx(it.step_ns**2)


@given(EXPOSURES, st.sampled_from(["device_sigma", "host_sigma"]), st.floats(1.0, 5.0))
def test_a_wider_spread_is_a_wider_interval(it: Sensitivity, name: str, factor: float) -> None:
    wider = hardware(**{**SIGMAS, f"residual__{name}": factor * SIGMAS[f"residual__{name}"]})
    assert step_interval(it, wider)[0] <= step_interval(it, HW)[0]
    assert step_interval(it, wider)[1] >= step_interval(it, HW)[1]


@pytest.mark.parametrize("name", ["matmul", "attention", "vector", "device", "host", "host_class"])
def test_each_residual_widens_the_interval_of_a_real_step(name: str) -> None:
    # A step that depends on both: kernels of a larger model, called one by one.
    result = scenario(workload__batch=64, workload__input_tokens=4000)
    wider = hardware(**{**SIGMAS, f"residual__{name}_sigma": 1.0})
    plain, wide = (
        step_interval(sensitivity_of(case(result, QWEN3_8B, hw), decode_batch(result)), hw) for hw in (HW, wider)
    )
    assert wide[0] < plain[0] < plain[1] < wide[1]


# ---- the interval of a ratio ----


def test_what_two_steps_share_cancels_in_their_ratio() -> None:
    a = on_device(kernel("matmul", 60_000), kernel("rms_norm", 40_000, gm_bytes=1))
    b = on_device(kernel("matmul", 60_000), kernel("rms_norm", 20_000, gm_bytes=2))
    # Weights 0.6 and 0.75 of the one matmul, 0.4 and 0.25 of two norms; the device cancels. Each alone:
    # 0.75 x (0.015^2 + 0.08^2 + 0.05^2) = 0.00684375; what all have in common, of 0.14 and 0.125, has weight 1 in both
    # and cancels.
    value, low, high = ratio_interval(a, b, HW)
    assert value == 1.25
    assert log(high / value) == pytest.approx(T90 * sqrt(0.00684375))
    assert low * high == pytest.approx(value**2)
    # Alone each is less sure than their ratio would be if it were put together from the two.
    assert high < step_interval(a, HW)[1] / step_interval(b, HW)[0]


@given(EXPOSURES)
def test_a_step_is_exactly_as_long_as_itself(it: Sensitivity) -> None:
    assert ratio_interval(it, it, HW) == (1.0, 1.0, 1.0)


def test_a_product_of_nz_weights_has_an_error_of_its_own() -> None:
    plain = kernel("matmul", 100_000)
    nz = replace(plain, kernel=replace(plain.kernel, duration_ns=110_000, variant="nz"))
    # Three quarters of two errors of 0.1: 0.75 x (0.1^2 + 0.1^2) = 0.015; the same program twice would cancel.
    _, low, high = ratio_interval(on_device(plain), on_device(nz), HW)
    assert log(high / low) == pytest.approx(2 * T90 * sqrt(0.015))


@given(EXPOSURES, EXPOSURES)
def test_a_ratio_turned_round_is_its_inverse(a: Sensitivity, b: Sensitivity) -> None:
    value, low, high = ratio_interval(a, b, HW)
    assert ratio_interval(b, a, HW) == pytest.approx((1 / value, 1 / high, 1 / low))


def test_a_slower_host_is_no_excuse_for_a_kernel() -> None:
    # Both steps wait for one host alike: its error cancels, however large.
    calls = [Issue(kernel("add", 1, host_ns=10_000))] * 4
    plan = Plan((*calls, SYNCHRONIZE), launch_thread=False, queue_depth=1)
    a, b = (sensitivity(ns, ns, round(1.05 * ns), plan, HW) for ns in (40_000, 20_000))
    assert ratio_interval(a, b, HW) == pytest.approx((2.0, 2.0, 2.0))


# ---- what a step depends on ----


def test_a_host_bound_step_hangs_on_the_host() -> None:
    result = scenario(workload__batch=1)
    item = sensitivity_of(case(result), decode_batch(result))
    assert item.host == pytest.approx(1.0, abs=0.05)
    assert item.device == pytest.approx(0.0, abs=0.05)


def test_a_graph_step_hangs_on_the_device() -> None:
    result = scenario(model="Qwen3-8B", optimizations__graph="ge_graph")
    item = sensitivity_of(case(result, QWEN3_8B), decode_batch(result))
    assert item.device == pytest.approx(1.0, abs=0.1)
    assert item.host == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("graph", ["eager", "aclgraph", "ge_graph"])
def test_the_elasticities_foretell_another_board(graph: str) -> None:
    result = scenario(workload__batch=16, optimizations__graph=graph)
    item, batch = case(result, QWEN3_8B), decode_batch(result)
    outcome = sensitivity_of(item, batch)
    for device, host in ((1.1, 1.0), (1.0, 1.1), (0.9, 0.95)):
        schedule = length_ns(plans_of(item, batch, host, device))
        foretold = outcome.step_ns * device**outcome.device * host**outcome.host
        assert schedule == pytest.approx(foretold, rel=0.02)


# ---- verdicts ----


@pytest.mark.parametrize("sigma", [0.01, 0.2, 5.0])
def test_a_gain_whose_interval_holds_one_is_not_distinguishable(sigma: float) -> None:
    result = scenario(workload__batch=4, optimizations__graph="ge_graph")
    gains = gains_of(case(result, load_model("Qwen3-0.6B"), hardware(**{**SIGMAS, "residual__vector_sigma": sigma})))
    for gain in gains.gains:
        held = gain.low <= 1 <= gain.high
        still = max(abs(end - 1) for end in (gain.low, gain.alone_ratio, gain.high)) < NO_EFFECT
        if gain.verdict != "not applicable":
            assert (gain.verdict == "not distinguishable") == (held and not still), gain
    # RoPE as one kernel: its parts are known within a percent, or only within a factor of many.
    rope = next(gain for gain in gains.gains if gain.switch == "fusion.rope")
    assert rope.verdict == {0.01: "gain", 0.2: "gain", 5.0: "not distinguishable"}[sigma]


# ---- rank skew ----


def test_waiting_for_late_ranks_stretches_and_shrinks_its_share() -> None:
    hw = hardware(**{**SIGMAS, "residual__device_sigma": 0.0, "residual__rank_skew_sigma": 1.0})
    item = Sensitivity(100_000, 0.0, 0.0, {}, late=0.2)
    # 20 us of waiting, times or over exp(1.6449) = 5.1805: 103.6 us or 3.86 us next to 80 us.
    assert step_interval(item, hw) == (pytest.approx(83_861, abs=2), pytest.approx(183_610, abs=5))


def test_waiting_that_two_variants_share_cancels_in_their_ratio() -> None:
    hw = hardware(**{**SIGMAS, "residual__rank_skew_sigma": 1.0})
    a, b = (Sensitivity(ns, 0.0, 0.0, {}, late=0.2) for ns in (100_000, 50_000))
    assert ratio_interval(a, b, hw) == (2.0, 2.0, 2.0)
    # One waits 20 of 100 us, the other never: the ratio is as uncertain as the one step.
    alone = ratio_interval(a, replace(b, late=0.0), hw)
    assert [100_000 * x / 2 for x in alone[1:]] == pytest.approx(step_interval(a, hw))
