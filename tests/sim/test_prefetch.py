"""Weight prefetch in time: what L2 keeps, HBM shared with what runs alongside, and no byte read for nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.batches import reported_batch
from scenarios.models.hf_config import load_model
from scenarios.ops.work import FlatShape, MatmulShape, Work
from scenarios.settings import Engine
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.kernel.price import price
from sim.kernel.traffic import prefetched_in_l2, traffic
from sim.predict.predict import predict
from sim.predict.steps import Case, step_ns
from sim.step.schedule import launches
from tests.scenarios.making import scenario, switched

HW = load_hardware("atlas_a2_910b2")
#: What survives in L2 from kernel to kernel: 0.3 x 192 MiB.
ROOM = 0.3 * 201_326_592


def small_l2(room_bytes: float) -> HardwareProfile:
    return replace(HW, chip=replace(HW.chip, l2_bytes=room_bytes / HW.memory.l2_resident_share))


def product(together: int, prefetched: int = 1000) -> Work:
    shape = MatmulShape(1, 1, 1024, 4096, "bf16", "bf16", "nd")
    return Work(
        "cube", shape, 2 * 1024 * 4096, 0, 8_388_608, 2048, 8192, "matmul",
        prefetched_bytes=prefetched, prefetched_together_bytes=together,
    )  # fmt: skip


@pytest.mark.parametrize(("together", "kept"), [(1000, 1000), (1200, 800 * 1000 / 1200), (2000, 0), (9000, 0)])
def test_each_byte_too_many_drives_another_out(together: int, kept: float) -> None:
    # Of 1,200 bytes in a room of 1,000, 200 do not fit and drive out 200: 800 are left, two thirds of each weight.
    assert prefetched_in_l2(product(together), small_l2(1000)) == pytest.approx(kept)


def test_what_is_in_l2_is_not_read_from_hbm() -> None:
    fits, lost = (traffic(product(together, 8_388_608), HW) for together in (8_388_608, 9 * 201_326_592))
    assert (fits.hbm_read, fits.l2_read) == (0, 8_388_608 + 2048)
    assert (lost.hbm_read, lost.l2_read) == (8_388_608, 2048)


def test_a_product_that_finds_its_weights_is_faster_and_never_free() -> None:
    cold = price(product(0, 0), HW)
    warm = price(product(8_388_608, 8_388_608), HW)
    # 8.4 MB at what the cores read from L2 together, besides the start that both pay.
    assert warm.duration_ns < cold.duration_ns
    assert warm.duration_ns > 8_388_608 / HW.memory.l2_read_gbps
    assert (cold.hbm_bytes, warm.hbm_bytes) == (8_388_608, 0)


def test_a_fetch_takes_what_hbm_sustains_and_no_core() -> None:
    result = price(Work("copy", FlatShape(1), cold_read_bytes=16_200_000, program="prefetch"), HW)
    us = HW.kernel.start_us + 16_200_000 / HW.memory.hbm_gbps / 1000
    assert result.duration_ns == round(1000 * us)
    assert (result.cores, result.cube_share, result.vector_share, result.accelerator) == (0, 0.0, 0.0, "SDMA")
    assert result.hbm_share == pytest.approx(16_200_000 / HW.memory.hbm_gbps / result.duration_ns)


def case(model: str, hw: HardwareProfile = HW, **settings: object) -> Case:
    result = scenario(
        workload__input_tokens=512,
        workload__output_tokens=64,
        optimizations__graph="ge_graph",
        optimizations__kv__layout="contiguous",
    )
    return Case(switched(result, **settings), load_model(model), hw)


def hbm_bytes(item: Case) -> int:
    return sum(one.kernel.hbm_bytes for one in launches(predict(item).plan))


def test_hbm_bytes_are_conserved_where_the_weights_fit() -> None:
    off, on = case("Qwen3-0.6B"), case("Qwen3-0.6B", overlap__prefetch=True)
    assert hbm_bytes(on) == pytest.approx(hbm_bytes(off), abs=1000)  # rounding of each kernel


def test_what_l2_does_not_keep_is_read_twice() -> None:
    off, on = case("Qwen3-8B"), case("Qwen3-8B", overlap__prefetch=True)
    layer = 4096 * (6144 + 4096 + 3 * 12288)  # qkv, o, gate, up, down: 386 MB a layer in a room of 60
    assert hbm_bytes(on) - hbm_bytes(off) == pytest.approx(36 * 2 * layer, abs=1000)


def within_a_layer(item: Case) -> Case:
    return replace(item, scenario=item.scenario.model_copy(update={"engine": Engine(stack="torch")}))


def test_a_layer_ahead_its_fetches_run_in_the_layer_before() -> None:
    timeline = predict(case("Qwen3-0.6B", overlap__prefetch=True)).timeline
    spans = {(s.name, s.layer): s for s in timeline.device_spans}
    names = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
    for layer in range(27):
        for name in names:
            assert spans[f"prefetch.{name}", layer].end_ns <= spans[name, layer + 1].start_ns
        first = spans["prefetch.qkv_proj", layer + 1]
        assert spans["next_norm", layer].end_ns <= first.start_ns < spans["attention", layer + 1].start_ns


def test_fetches_begin_after_the_product_before_them_and_products_begin_after_their_fetch() -> None:
    timeline = predict(within_a_layer(case("Qwen3-0.6B", overlap__prefetch=True))).timeline
    spans = {(s.name, s.layer): s for s in timeline.device_spans}
    for layer in range(28):
        qkv, first = spans["qkv_proj", layer], spans["prefetch.o_proj", layer]
        assert qkv.end_ns <= first.start_ns
        for name in ("o_proj", "gate_up_proj", "down_proj"):
            assert spans[f"prefetch.{name}", layer].end_ns <= spans[name, layer].start_ns
        # Next to attention, not after it.
        assert first.start_ns < spans["attention", layer].start_ns


def test_it_pays_where_a_layer_fits_l2_and_costs_where_it_does_not() -> None:
    def gain(model: str, hw: HardwareProfile = HW) -> float:
        off, on = case(model, hw), case(model, hw, overlap__prefetch=True)
        batch = reported_batch(off.scenario)
        return step_ns(off, batch) / step_ns(on, batch)

    assert gain("Qwen3-0.6B") > 1.03
    assert gain("Qwen3-8B") < 0.9
    # The same small model on a device with an L2 of a tenth, and the large one with a huge L2.
    assert gain("Qwen3-0.6B", small_l2(ROOM / 10)) <= 1.0
    assert gain("Qwen3-8B", small_l2(2 * 335e6)) > 0.98
