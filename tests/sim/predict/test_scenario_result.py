"""The answer in two parts, for a screen that shows the step before its what-ifs are through."""

from __future__ import annotations

import pytest

from scenarios.loader import load_scenario
from sim.predict.scenario_result import first_result, kernel_args, scenario_result, what_ifs

SMALL = "tiny_llama_cpu"


def test_the_first_answer_and_its_what_ifs_are_the_whole_document() -> None:
    first = first_result(load_scenario(SMALL))
    whole = scenario_result(SMALL).result
    assert {**first.result, **what_ifs(first)} == whole
    assert set(whole) - set(first.result) == {"gains", "waterfall", "advice"}


def test_what_ifs_tell_how_far_they_are_and_stop_where_they_are_told() -> None:
    first = first_result(load_scenario(SMALL))
    shares: list[float] = []
    what_ifs(first, shares.append)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1] < 1) == (0.0, True)
    # One what-if for each switch alone is the first half; the search of the best set is the other.
    assert [share for share in shares if share < 0.5] == pytest.approx([n / 40 for n in range(20)])
    assert len(what_ifs(first)["gains"]) == 20

    def stop(share: float) -> None:
        if share > 0.5:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        what_ifs(first, stop)


def test_the_roofs_are_those_of_the_profile() -> None:
    first = first_result(load_scenario("qwen3_8b_decode"))
    hardware = first.prediction.case.hardware
    # 20 cube cores of 16 x 16 x 16 at 1.8 GHz, two flops each
    assert first.result["roofs"]["cube_tflops"] == pytest.approx(
        2 * 16**3 * 20 * hardware.chip.clock_mhz / 1e6, rel=1e-9
    )
    assert first.result["roofs"]["cube_int8_tflops"] == 2 * first.result["roofs"]["cube_tflops"]
    assert first.result["roofs"]["hbm_sustained_gbps"] == 1560
    assert first.result["roofs"]["hbm_peak_gbps"] > 1560


def test_each_kernel_says_how_near_its_roofline_it_is() -> None:
    shares = [args["roofline_share"] for args in kernel_args(first_result(load_scenario(SMALL)).prediction).values()]
    assert all(0 <= share <= 1 for share in shares)
    assert max(shares) > 0.05
