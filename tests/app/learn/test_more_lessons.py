"""The claims on tiles, on ops and kernels, on new shapes, and on the second card that does not help."""

from __future__ import annotations

import itertools

import pytest

from app_pages.learn.op_kernel import experiment as op_kernel
from app_pages.learn.second_card import experiment as second_card
from app_pages.learn.shapes import experiment as shapes
from app_pages.learn.tiles.experiment import run


def test_double_buffers_leave_the_longest_part_alone_to_be_seen() -> None:
    """By hand: 4 tiles of 400 to load, 200 to compute, 100 to store. With two buffers the loads follow one another, and
    the last tile is computed and stored behind them: 4 x 400 + 200 + 100. With one, a tile is loaded when the one
    before has been computed: 4 x 600 + 100."""
    two, one = (run(4, 400, 200, 100, buffers) for buffers in (2, 1))
    assert (two.total_ns, one.total_ns) == (1900, 2500)
    assert two.serial_ns == 2800
    assert two.bound_ns == 1600
    assert two.hidden_share == pytest.approx(0.75)
    assert max(span.end_ns for span in two.spans) == two.total_ns
    assert run(1, 400, 200, 100, 3).total_ns == 700


def test_the_formula_of_the_tiles_is_the_pipeline() -> None:
    """l + c + s + (n - 1) p, as the page writes it with the reader's numbers."""
    for tiles, buffers, *parts in itertools.product((1, 2, 8), (1, 2, 3), *[(50, 200, 800)] * 3):
        item = run(tiles, *parts, buffers)
        assert item.total_ns == sum(parts) + (tiles - 1) * item.pace_ns, (tiles, buffers, parts)


def test_the_same_formula_is_five_three_or_one_kernel() -> None:
    separate, packed, one = op_kernel.forms("Qwen2.5-0.5B", "atlas_a3_die", 208)
    assert [len(form.kernels) for form in (separate, packed, one)] == [5, 3, 1]
    assert one.kernels == ("FFN",)
    assert packed.device_us < separate.device_us
    assert one.device_us > packed.device_us  # deeper loses, as was measured


def test_a_wrong_call_of_the_fused_norm_is_far_off() -> None:
    errors = {mistake.name: mistake.error for mistake in op_kernel.mistakes()}
    assert errors["right"] == 0
    assert errors["exchanged"] > 0.3
    assert errors["third"] > 0.3


def test_new_shapes_put_off_the_step_at_which_a_graph_has_paid() -> None:
    cost = shapes.cost("Qwen3-8B", "atlas_a2_910b2", "ge_graph", 1)
    assert cost.replay_ms < cost.eager_ms
    none, two = cost.paid_back(0), cost.paid_back(2)
    assert none is not None
    assert two is not None
    assert two > 2 * none
    steps = two
    assert cost.total_ms(steps, 2) <= steps * cost.eager_ms < cost.total_ms(steps - 1, 2) + cost.eager_ms
    assert shapes.padded_to("Qwen3-8B", "atlas_a2_910b2", 3) >= 3


def test_the_formula_of_the_second_card_has_the_host_behind_the_device_or_in_front_of_it() -> None:
    item = second_card.point("Qwen3-14B", "atlas_a2_910b3", 1, 16, "starved")
    assert item.step_ms == pytest.approx(max(item.device_ms, item.hidden_ms) + item.visible_ms)
    assert item.visible_ms == pytest.approx(0), "an engine that schedules asynchronously hides all of it"
    assert item.hidden_ms == pytest.approx(item.host_ms)


def test_a_second_card_helps_a_device_and_not_a_host() -> None:
    def steps_ms(engine: str) -> list[float]:
        return [second_card.point("Qwen3-14B", "atlas_a2_910b3", n, 16, engine).step_ms for n in (1, 2)]

    starved, healthy = steps_ms("starved"), steps_ms("healthy")
    assert starved[1] > 0.95 * starved[0]
    assert healthy[1] < 0.8 * healthy[0]
