"""The claims on graphs, bottlenecks, overlap, splits, and the experiment."""

import numpy as np
import pytest

from app_pages.learn.bottlenecks import experiment as bottlenecks
from app_pages.learn.experiment import experiment
from app_pages.learn.graph import experiment as graph
from app_pages.learn.overlap import experiment as overlap
from app_pages.learn.parallelism import experiment as parallelism
from app_pages.learn.tensor_parallel import experiment as tensor_parallel

MODEL, CHIP = "Qwen3-8B", "atlas_a2_910b2"


def test_a_graph_gains_less_the_longer_the_kernels() -> None:
    def ratio(batch: int) -> float:
        eager, replayed = (graph.point(graph.decode(MODEL, CHIP, g, batch, 1024)) for g in ("eager", "ge_graph"))
        assert eager.kernels_ms == pytest.approx(replayed.kernels_ms, rel=0.05)  # it computes the same
        assert replayed.launches < eager.launches / 10
        assert replayed.idle_share < eager.idle_share
        return eager.step_ms / replayed.step_ms

    assert ratio(1) > 1.5 > ratio(64) > 1.0


def test_waiting_after_every_op_spoils_the_eager_step() -> None:
    plain = graph.point(graph.decode(MODEL, CHIP, "eager", 1, 1024))
    waiting = graph.point(graph.decode(MODEL, CHIP, "eager", 1, 1024, synchronize="op"))
    assert waiting.step_ms > 1.2 * plain.step_ms


@pytest.mark.parametrize("mode", ["eager", "ge_graph"])
def test_a_window_holds_the_layers_asked_for_and_what_issued_them(mode: str) -> None:
    window = graph.window(graph.decode(MODEL, CHIP, mode, 1, 1024), (2, 4))
    kernels = window.device_spans
    assert {s.layer for s in kernels} == {2, 3}
    assert window.start_ns <= min(s.start_ns for s in window.spans)
    assert window.end_ns == max(s.end_ns for s in kernels)
    host = [s for s in window.spans if s.process == "Python"]
    assert all(window.start_ns <= s.start_ns < s.end_ns <= window.end_ns for s in host)
    assert (len(host) > 10) == (mode == "eager")


def test_one_model_meets_five_bottlenecks() -> None:
    result = {s.name: s.bottleneck for s in bottlenecks.situations(MODEL, CHIP)}
    assert result == {
        "eager, one request": "host-bound",
        "graph, one request": "HBM-bound",
        "graph, 64 requests": "HBM-bound",
        "prefill of 4,096 tokens": "cube-bound",
        "prefill on 8 cards": "communication-bound",
        "4,096 requests": "capacity-bound",
    }


def test_overlap_lies_between_the_sum_and_the_greater() -> None:
    whole = overlap.chunked(MODEL, CHIP, 2, 8192, 1)
    cut = overlap.chunked(MODEL, CHIP, 2, 8192, 4)
    assert whole.ideal_ms is None
    assert cut.serial_ms is not None
    assert cut.ideal_ms is not None
    assert cut.found_ms is not None
    assert cut.ideal_ms < cut.found_ms < cut.serial_ms
    assert cut.step_ms < whole.step_ms
    assert cut.not_overlapped_ms < whole.not_overlapped_ms


def test_few_tokens_and_two_streams_gain_nothing() -> None:
    assert overlap.chunked(MODEL, CHIP, 2, 64, 16).step_ms > overlap.chunked(MODEL, CHIP, 2, 64, 1).step_ms
    one, two = (overlap.two_streams(MODEL, CHIP, 1, streams) for streams in (1, 2))
    gain = overlap.gain(one, two)
    assert gain.low < gain.value < 1 / 0.97


def test_columns_concatenate_and_rows_sum() -> None:
    for split in ("columns", "rows"):
        shown = tensor_parallel.shown(split, 2)
        assert np.array_equal(shown.y, shown.whole)
        assert len(shown.y_parts) == 2
    columns, rows = tensor_parallel.shown("columns", 2), tensor_parallel.shown("rows", 2)
    assert columns.y_parts[0].shape[1] * 2 == columns.whole.shape[1]
    assert rows.y_parts[0].shape == rows.whole.shape
    assert not np.array_equal(np.concatenate(rows.y_parts, -1)[:, : rows.whole.shape[1]], rows.whole)


def test_only_the_sum_rounds_otherwise() -> None:
    columns = tensor_parallel.rounding("columns", 4, "bf16", 8, 1024, 256)
    rows = tensor_parallel.rounding("rows", 4, "bf16", 8, 1024, 256)
    assert (columns.apart, columns.equal_share) == (0.0, 1.0)
    assert rows.apart > 0
    assert 0.2 < rows.equal_share < 1
    assert rows.split_error < 0.02


def test_every_way_to_use_cards_splits_what_it_says() -> None:
    result = {w.name: w for w in parallelism.ways(MODEL, "atlas_a3_die", 4, 16, 1024, 64)}
    assert result["TP"].weights_bytes == pytest.approx(result["DP"].weights_bytes / 4, rel=0.01)
    assert result["PP"].weights_bytes < result["DP"].weights_bytes / 3
    assert result["DP"].communication_ms == 0 < result["TP"].communication_ms
    assert result["PP"].bubble_share > 0 == result["TP"].bubble_share
    assert result["TP+SP"].ttft_ms < result["TP"].ttft_ms
    assert "no experts" in result["EP"].refused
    assert not result["EP"].refused.startswith("--set")


def test_requests_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="do not divide"):
        parallelism.ways(MODEL, "atlas_a3_die", 4, 6, 1024, 64)


def test_single_gains_do_not_multiply() -> None:
    chosen = ("fusion.rms_norm", "fusion.attention", "graph")
    result = experiment.experiment(MODEL, CHIP, 1, 1024, chosen)
    assert [f.switch for f in result.factors] == list(chosen)
    assert result.bottleneck == "host-bound"
    assert result.bottleneck_after == "HBM-bound"
    product = np.prod([f.ratio for f in result.factors])
    assert result.product.value == pytest.approx(product)
    assert result.product.low < result.product.value < result.product.high
    assert result.together.value < 0.9 * result.product.value  # a graph already saves the launches that fusion saves
    assert all(s.after_ms < s.before_ms for s in result.shapes)
    assert result.cold.compile_ms > 0


def test_switches_are_those_that_can_be_tried() -> None:
    switches = experiment.switches(MODEL, CHIP)
    assert "graph" in switches
    assert "fusion.matmul_all_reduce" not in switches  # one card has nobody to reduce with
