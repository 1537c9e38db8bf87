"""Two load tests: which loads are the same, what changed of a request, and what that speaks for."""

from __future__ import annotations

from dataclasses import replace
from math import exp, hypot, log
from typing import Any

import pytest

from sim.compare.load_share import SLOPE_HIGH, SLOPE_LOW, Load
from sim.compare.loads import compare_loads, distinguishable, paired, sentence


def load(in_flight: float, per_step_ms: float = 26.0, per_request_ms: float = 0.3, **more: Any) -> Load:
    values = {
        "label": f"{in_flight:g} in flight",
        "arrival": "closed",
        "rate": None,
        "in_flight": in_flight,
        "input_tokens": 520.0,
        "output_tokens": 256.0,
        "ttft_ms": 150.0,
        "tpot_ms": per_step_ms + per_request_ms * in_flight,
        "output_throughput": None,
    }
    return Load(**{**values, **more})


LIGHT, HEAVY = load(1), load(32)


def test_parts_of_a_request_sum_to_its_change() -> None:
    parts = (("queue", 20.0), ("device", 25.0), ("prefill", 3.0), ("engine", 7.0))
    less = (("queue", 5.0), ("device", 24.0), ("prefill", 1.0), ("engine", 1.0))
    a = load(32, parts_ms=parts)
    for b in (
        load(32, per_step_ms=20, ttft_ms=120.0),
        load(32, per_step_ms=20, ttft_ms=120.0, output_tokens=250.0, parts_ms=less),
    ):
        (row,) = compare_loads([a], [b])["loads"]
        change = b.ttft_ms - a.ttft_ms + (b.output_tokens - 1) * b.tpot_ms - 255 * a.tpot_ms
        assert sum(cause["change_ms"] for cause in row["causes"]) == pytest.approx(change)
        assert row["metrics"]["e2el_ms"]["b"] - row["metrics"]["e2el_ms"]["a"] == pytest.approx(change)


def test_parts_that_are_known_of_both_are_named() -> None:
    parts = (("queue", 20.0), ("device", 25.0), ("prefill", 3.0), ("engine", 7.0))
    slower = replace(HEAVY, tpot_ms=HEAVY.tpot_ms + 4, parts_ms=(*parts[:3], ("engine", 11.0)))
    (row,) = compare_loads([replace(HEAVY, parts_ms=parts)], [slower])["loads"]
    assert [cause["cause"] for cause in row["causes"]] == ["decode: engine"]
    assert row["causes"][0]["change_ms"] == pytest.approx(255 * 4)


def test_the_same_load_test_does_not_differ() -> None:
    result = compare_loads([LIGHT, HEAVY], [LIGHT, HEAVY])
    assert [row["causes"] for row in result["loads"]] == [[], []]
    assert result["likely"] == []
    assert result["notes"] == []


def test_several_loads_tell_steps_from_requests() -> None:
    a = [load(n) for n in (1, 8, 32)]
    slower_step = compare_loads(a, [load(n, per_step_ms=37) for n in (1, 8, 32)])
    assert slower_step["line"]["per_step_ms"] == pytest.approx({"a": 26, "b": 37, "ratio": 37 / 26})
    assert slower_step["line"]["per_request_ms"]["ratio"] == pytest.approx(1)
    assert [row["name"].partition(",")[0] for row in slower_step["likely"]] == ["graph missed"]
    slower_request = compare_loads(a, [load(n, per_request_ms=0.6) for n in (1, 8, 32)])
    (likely,) = slower_request["likely"]
    assert likely["name"].startswith("work for each request")
    assert (likely["side"], likely["evidence"]) == ("B", "0.6 ms a step for each request in flight, against 0.3")


def test_a_first_token_that_waits_under_load_only_is_queueing() -> None:
    a = [load(1), load(32, ttft_ms=300.0)]
    queued = compare_loads(a, [load(1), load(32, ttft_ms=900.0)])
    assert [row["name"].partition(":")[0] for row in queued["likely"]] == ["queueing"]
    prefill = compare_loads(a, [load(1, ttft_ms=200.0), load(32, ttft_ms=350.0)])
    assert [row["name"].partition(":")[0] for row in prefill["likely"]] == ["prefill"]


def test_one_load_alone_does_not_tell_steps_from_requests() -> None:
    result = compare_loads([HEAVY], [load(32, per_step_ms=37)])
    assert result["line"] is None
    assert [row["name"].partition(",")[0] for row in result["likely"]] == ["graph missed"]


def test_loads_pair_by_arrival_number_and_lengths() -> None:
    others = [load(32.5), load(1, input_tokens=2000.0), load(4, arrival="rate", rate=2.0), load(64)]
    pairs, notes = paired([LIGHT, HEAVY, load(9, arrival="rate", rate=2.02)], others)
    assert [(a.in_flight, b.in_flight) for a, b in pairs] == [(9, 4), (32, 32.5)]
    assert notes == [
        "only A has the load 1 in flight", "only B has the load 1 in flight", "only B has the load 64 in flight",
    ]  # fmt: skip


def test_two_single_loads_are_compared_whatever_they_are() -> None:
    result = compare_loads([LIGHT], [load(32, input_tokens=2000.0)])
    assert len(result["loads"]) == 1
    assert result["notes"] == ["the loads differ: input tokens 520 and 2,000, requests in flight 1 and 32"]


def test_no_load_in_common_is_said() -> None:
    result = compare_loads([LIGHT, HEAVY], [load(4), load(64)])
    assert result["loads"] == []
    assert result["likely"] == []  # the lines of both are the same
    assert sentence(("x", "y"), result) == "x and y have no load in common."


def test_the_sentence_speaks_of_the_heaviest_load() -> None:
    result = compare_loads([LIGHT, HEAVY], [load(1, per_step_ms=37), load(32, per_step_ms=37)])
    assert sentence(("x", "y"), result) == (
        "At 32 in flight a request of y takes 12,033 ms against 9,228 ms of x, most of it decode (+2,805.0 ms)."
    )


def test_a_ratio_of_two_measured_loads_holds_what_repeats_differ_by() -> None:
    """Two single runs may differ by 5 %: 3 % is no difference, 20 % is one."""
    for factor, seen in ((1.03, False), (1 / 1.03, False), (1.2, True), (1 / 1.2, True)):
        other = replace(HEAVY, ttft_ms=HEAVY.ttft_ms * factor, tpot_ms=HEAVY.tpot_ms * factor)
        result = compare_loads([HEAVY], [other])
        pair = result["loads"][0]["metrics"]["e2el_ms"]
        assert pair["low"] == pytest.approx(factor / 1.05)
        assert pair["high"] == pytest.approx(factor * 1.05)
        assert distinguishable(pair) is seen
        assert ("not distinguishable" in sentence(("a", "b"), result)) is not seen


def test_a_predicted_load_brings_its_own_interval() -> None:
    """Down by 1.5 and up by 3 on a logarithmic scale, next to a measured one's 5 % / sqrt(2): the longer leg leads."""
    predicted = replace(HEAVY, ends=(("e2el_ms", 1 / 1.5, 3.0),))
    pair = compare_loads([HEAVY], [predicted])["loads"][0]["metrics"]["e2el_ms"]
    assert pair["low"] == pytest.approx(exp(-hypot(log(1.5), log(1.05) / 2**0.5)))
    assert pair["high"] == pytest.approx(exp(hypot(log(3), log(1.05) / 2**0.5)))
    reverse = compare_loads([predicted], [HEAVY])["loads"][0]["metrics"]["e2el_ms"]
    assert (reverse["low"], reverse["high"]) == (pytest.approx(1 / pair["high"]), pytest.approx(1 / pair["low"]))


def test_another_load_is_the_cause_where_it_explains_the_change() -> None:
    """A step of 26 ms and 0.3 more for each request: 28.4 ms at 8, 35.6 at 32. By hand 28.4 / (1 + 8 s) x (1 + 32 s)
    with s of 0.35 and of 1.65 % is 30.7 and 38.3 ms; nothing else is named."""
    for a, b, side in ((load(8), load(32), "B"), (load(32), load(8), "A")):
        result = compare_loads([a], [b])
        (row,) = result["likely"]
        assert (row["part"], row["side"], row["share"]) == ("load", side, pytest.approx(1))
        assert row["name"] == f"another load: requests in flight {a.in_flight:g} and {b.in_flight:g}"
        (cause, *rest) = result["loads"][0]["causes"]
        assert cause["cause"] == "another load"
        assert rest == []
        assert cause["change_ms"] == pytest.approx(255 * (b.tpot_ms - a.tpot_ms))
    (row,) = compare_loads([load(8)], [load(32)])["likely"]
    assert row["low_ms"] == pytest.approx(28.4 * (1 + 32 * SLOPE_LOW) / (1 + 8 * SLOPE_LOW))
    assert row["high_ms"] == pytest.approx(28.4 * (1 + 32 * SLOPE_HIGH) / (1 + 8 * SLOPE_HIGH))


def test_what_is_beyond_the_load_is_named_next_to_it() -> None:
    """A graph missed (60 ms a step for 26) next to a load that is four times as large: the load explains 38.3 ms."""
    result = compare_loads([load(8)], [load(32, per_step_ms=60)])
    assert [row["part"] for row in result["likely"]] == ["tpot", "load"]
    assert result["likely"][0]["name"].startswith("graph missed")
    high = 28.4 * (1 + 32 * SLOPE_HIGH) / (1 + 8 * SLOPE_HIGH)
    assert result["likely"][1]["share"] == pytest.approx((high - 28.4) / (69.6 - 28.4))
    causes = {row["cause"]: row["change_ms"] for row in result["loads"][0]["causes"]}
    assert causes == pytest.approx({"another load": 255 * (high - 28.4), "decode": 255 * (69.6 - high)})


def test_at_rates_the_requests_in_flight_follow_from_the_load_and_not_from_the_slowness() -> None:
    """1 against 3 requests/s of the same engine, by Little's law, is the load; at 3 requests/s and twice the step more
    are in flight, which the load alone does not bring."""

    def at(rate: float, step_ms: float) -> Load:
        in_flight = rate * (0.15 + 0.255 * step_ms) / (1 - rate * 0.255 * 0.3)
        return load(in_flight, per_step_ms=step_ms, arrival="rate", rate=rate, label=f"{rate:g} requests/s")

    (row,) = compare_loads([at(1, 26)], [at(3, 26)])["likely"]
    assert (row["part"], row["share"]) == ("load", pytest.approx(1))
    slow = compare_loads([at(1, 26)], [at(3, 52)])["likely"]
    assert [row["part"] for row in slow] == ["tpot", "load"]
    assert slow[1]["share"] < 0.5


def test_a_first_token_far_beyond_what_a_heavier_load_explains_is_queueing() -> None:
    result = compare_loads([load(8)], [load(32, ttft_ms=8000.0)])
    assert {row["part"] for row in result["likely"]} == {"load", "wait"}


def test_longer_prompts_explain_a_longer_first_token() -> None:
    result = compare_loads([load(8)], [load(8, input_tokens=2080.0, ttft_ms=590.0)])
    assert [row["part"] for row in result["likely"]] == ["load"]
    assert "input tokens 520 and 2,080" in result["likely"][0]["name"]


def test_sweeps_without_a_common_load_are_compared_by_their_lines() -> None:
    result = compare_loads([load(n) for n in (1, 8, 32)], [load(n, per_step_ms=37) for n in (2, 12, 48)])
    assert result["loads"] == []
    assert [row["part"] for row in result["likely"]] == ["step"]
    assert result["line"]["per_step_ms"] == pytest.approx({"a": 26, "b": 37, "ratio": 37 / 26})
