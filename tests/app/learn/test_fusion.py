"""The claims of the lessons on fusion: fewer launches and bytes, the same formula, and what stays on chip."""

import pytest

from app_pages.learn.attention import experiment as attention
from app_pages.learn.fusion import experiment as fusion
from scenarios.errors import ScenarioError

MODEL, CHIP = "Qwen3-8B", "atlas_a2_910b2"


def test_each_form_has_fewer_kernels_bytes_and_time() -> None:
    primitives, two, one = fusion.forms(MODEL, CHIP, 8)
    assert [len(f.kernels) for f in (primitives, two, one)] == [9, 2, 1]
    assert primitives.moved_bytes > two.moved_bytes > one.moved_bytes
    assert primitives.device_us > two.device_us > one.device_us
    assert primitives.host_us > two.host_us > one.host_us


def test_one_kernel_reads_each_input_once_and_writes_each_output_once() -> None:
    rows, cols, bf16, fp32 = 8, 4096, 2, 4
    (kernel,) = fusion.forms(MODEL, CHIP, rows)[-1].kernels
    assert kernel.op_type == "AddRmsNorm"
    assert kernel.read_bytes == 2 * rows * cols * bf16 + cols * bf16
    assert kernel.write_bytes == 2 * rows * cols * bf16 + rows * fp32  # y, the sum, and 1 / rms of each row


def test_what_the_host_issues_decides_in_eager_mode_while_rows_are_few() -> None:
    few, many = fusion.forms(MODEL, CHIP, 8)[0], fusion.forms(MODEL, CHIP, 8192)[0]
    assert few.host_us > few.device_us
    assert few.eager is few.on_host
    assert many.device_us > many.host_us
    assert many.eager is many.on_device
    assert fusion.ratio(few.eager, few.on_device, CHIP).value == pytest.approx(few.host_us / few.device_us, rel=1e-3)


def test_rounding_fewer_times_is_more_exact() -> None:
    numerics = fusion.numerics(64, 4096, "bf16")
    assert numerics.errors["add_rms_norm"] < numerics.errors["add, rms_norm"] < numerics.errors["primitives"] < 2**-6
    assert 0 < numerics.apart < 2**-6
    wide = fusion.numerics(64, 4096, "fp32")
    assert max(wide.errors.values()) < 1e-6
    assert fusion.numerics(64, 4096, "bf16") == numerics


def test_lanes_show_every_tile_loaded_before_it_is_computed_and_stored() -> None:
    (lane,) = fusion.lanes("add_rms_norm", MODEL, CHIP, 512)
    assert {s.lane for s in lane.spans} == {"MTE2", "VECTOR", "MTE3"}
    assert len(lane.spans) == 3 * lane.tiles
    by_tile = {(s.lane, s.tile): s for s in lane.spans}
    for tile in range(lane.tiles):
        assert by_tile["MTE2", tile].end_ns <= by_tile["VECTOR", tile].start_ns
        assert by_tile["VECTOR", tile].end_ns <= by_tile["MTE3", tile].start_ns
    assert [lane.kernel for lane in fusion.lanes("add, rms_norm", MODEL, CHIP, 8)] == [
        "add_attention",
        "post_attention_norm",
    ]


def test_an_unknown_chip_is_one_line() -> None:
    with pytest.raises(ScenarioError, match="atlas_a2_910b2"):
        fusion.forms(MODEL, "atlas_a2_910b9", 8)


def test_unfused_attention_writes_the_scores_that_the_fused_kernel_never_has() -> None:
    unfused, fused = attention.forms(MODEL, CHIP, 4096)
    assert (fused.kernels, fused.peak_bytes) == (1, 0)
    assert unfused.peak_bytes == 32 * 4096 * 4096 * 4  # the scores of 32 heads in float32
    assert unfused.moved_bytes > 100 * fused.moved_bytes
    assert unfused.device_us > fused.device_us


def test_a_tile_fits_where_the_whole_does_not() -> None:
    room = attention.room(CHIP, 4096, rows=64, tile=128)
    assert not room.whole_fits
    assert room.scores_bytes == 4096 * 4096 * 4
    assert room.tile_bytes == 64 * 128 * 4 + 2 * 128 * 128 * 2 < room.ub_bytes
    assert attention.room(CHIP, 128, rows=64, tile=128).whole_fits


@pytest.mark.parametrize("tile", [64, 200, 1024, 5000])
def test_online_softmax_is_softmax(tile: int) -> None:
    online = attention.online(1024, tile, "fp32")
    assert online.error < 1e-5
    assert [t.first_key for t in online.tiles] == list(range(0, 1024, tile))
    assert sum(t.keys for t in online.tiles) == 1024
    assert online.tiles[-1].error < 1e-5


def test_the_running_maximum_only_grows_and_the_early_output_is_not_yet_right() -> None:
    online = attention.online(2048, 128, "bf16")
    maxima = [t.maximum for t in online.tiles]
    assert maxima == sorted(maxima)
    assert all(0 < t.rescale <= 1 for t in online.tiles[1:])
    assert online.rescaled > 0
    assert online.tiles[0].error > 10 * online.error
    assert online.error < online.whole_error


@pytest.mark.parametrize("tokens", [1, 64, 4096])
def test_the_fused_norm_saves_one_read_of_the_sum_which_it_still_writes(tokens: int) -> None:
    """The formula of the page: T x d values of 16 bits; gamma and the reciprocal roots are moved by both forms."""
    _, two, one = fusion.forms("Qwen3-8B", "atlas_a2_910b2", tokens)
    assert two.moved_bytes - one.moved_bytes == tokens * 4096 * 2
