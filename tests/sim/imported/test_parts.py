"""A step is the sum of its parts, and its bottleneck the largest of them, idle time of any cause among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.profile.read import read_captures
from sim.imported.names import short_name
from sim.imported.replayed import replayed
from sim.imported.result import import_result
from sim.predict.shares import bottleneck_of, mixed_evidence, shares_of
from tests.scenarios.profile import cuda, making


def result(tmp_path: Path, *events: Any, step: str = "") -> dict[str, Any]:
    return import_result(read_captures(cuda.write(tmp_path, *events)), None, step)


def test_a_step_that_idles_while_kernels_lie_queued_is_not_bound_by_them(tmp_path: Path) -> None:
    answer = result(tmp_path, *(cuda.kernel(n + 1, n, 100 + 1000 * n, 20, "add_kernel") for n in range(8)))
    found = answer["bottleneck"]
    assert found["name"] == "idle-bound"
    assert found["shares"] == pytest.approx({"queued": 6860 / 7020, "computing: vector": 160 / 7020})
    assert "the next kernel was launched and waited" in found["evidence"]


def test_copies_that_the_device_waits_for_are_a_part_of_their_own(tmp_path: Path) -> None:
    answer = result(
        tmp_path,
        cuda.kernel(1, 0, 100, 100),
        cuda.kernel(2, 10, 200, 700, "Memcpy HtoD", cat="gpu_memcpy"),
        cuda.kernel(3, 20, 1000, 100),
    )
    assert answer["bottleneck"]["shares"] == {"copies": 0.7, "computing: cube": 0.2, "queued": 0.1}


def test_waiting_for_other_ranks_is_communication_and_not_the_host(tmp_path: Path) -> None:
    found = import_result(read_captures(making.torch_npu(tmp_path, steps=(7,))), None)["bottleneck"]
    # 450 us: computing 250, a collective not overlapped for 100, of which 50 it waits, idle 50 + 50.
    assert found["shares"] == pytest.approx(
        {
            "computing: vector": 150 / 250 * 250 / 450,
            "computing: HBM": 100 / 250 * 250 / 450,
            "queued": 70 / 450,
            "waiting for ranks": 50 / 450,
            "communication: transfer": 50 / 450,
            "host late": 30 / 450,
        }
    )
    assert sum(found["shares"].values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ({"computing: HBM": 60, "host late": 40}, "HBM-bound"),
        ({"computing: HBM": 41, "communication: transfer": 39, "queued": 20}, "mixed"),
        ({"computing: HBM": 29, "communication: transfer": 24, "queued": 23, "host late": 24}, "mixed"),
        ({"communication: transfer": 25, "waiting for ranks": 30, "host late": 45}, "communication-bound"),
        ({"queued": 30, "copies": 30, "computing: cube": 40}, "idle-bound"),
        # Half of the step computes or idles, and one cause of that stands out: an eager step just behind its host, and
        # kernels that lie queued.
        ({"computing: HBM": 49, "computing: vector": 11, "host late": 40}, "HBM-bound"),
        ({"queued": 48, "host late": 6, "computing: cube": 40, "computing: vector": 6}, "idle-bound"),
        # One request in two stages: half of the step idles, nearly all of it for the other stage.
        ({"pipeline bubble": 49, "computing: HBM": 38, "computing: vector": 11, "host late": 2}, "bubble-bound"),
        # Qwen3-32B and DeepSeek-V3 on 16 dies, captured: most of the step is not the largest part.
        ({"computing: HBM": 42, "computing: vector": 26, "waiting for ranks": 15, "queued": 17}, "mixed"),
        ({"computing: HBM": 38, "computing: vector": 29, "waiting for ranks": 26, "queued": 7}, "mixed"),
        ({"computing: HBM": 45, "communication: transfer": 35, "queued": 20}, "mixed"),
    ],
)
def test_the_bottleneck_is_the_largest_part_or_mixed(parts: dict[Any, float], name: str) -> None:
    assert bottleneck_of(parts, 100)[0] == name
    assert sum(shares_of(parts, 100).values()) == pytest.approx(1)


def test_what_two_parts_of_a_mixed_step_say_alike_stands_once() -> None:
    said = mixed_evidence(
        ["a; idle for 7%", "b; c; idle for 7%"], {"computing: HBM": 40, "computing: vector": 38, "queued": 22}, 100
    )
    assert (
        said == "no part stands out (HBM-bound 40%, vector-bound 38%, idle-bound 22% of the step): a; idle for 7%; b; c"
    )


def test_all_that_is_said_of_a_step_starts_from_the_step_that_is_printed(tmp_path: Path) -> None:
    captures = read_captures(cuda.write(tmp_path, cuda.ahead(5)))
    answer = import_result(captures, None)
    what_if, _ = replayed(captures, "", (), None)
    step = answer["step"]
    assert (step["total_us"], step["computing_us"], step["free_us"]) == (1000, 460, 540)
    assert answer["kernel_count"] == 5
    assert sum(kernel["total_us"] for kernel in answer["kernels"]) == 460
    assert answer["host_gaps"]["total_us"] == step["free_us"]
    assert what_if["replay"]["measured_us"] == what_if["replay"]["replayed_us"] == step["total_us"]
    assert max(item["at_most_us"] for item in answer["advice"]) <= step["free_us"]
    assert all(item["at_most_ratio"] < 3 for item in answer["advice"])


def test_a_step_without_kernels_is_refused_by_name_and_never_the_default(tmp_path: Path) -> None:
    from scenarios.errors import ScenarioError

    events = [cuda.mark("ProfilerStep#1", 990, 300), cuda.mark("ProfilerStep#2", 1300, 20)]
    kernels = [cuda.kernel(n, 1000 + 50 * n, 1020 + 50 * n, 30) for n in (1, 2, 3)]
    answer = result(tmp_path, events, *kernels)
    assert (answer["step_id"], answer["kernel_count"]) == ("1", 3)
    assert "no kernels in step 2: step 1 is shown" in answer["notes"]
    with pytest.raises(ScenarioError, match="step 2 holds no kernels; these do: 1"):
        result(tmp_path, events, *kernels, step="2")


def test_long_names_are_shortened_and_keep_what_they_are() -> None:
    assert short_name("aclnnAdd_AddAiCore_Add") == "aclnnAdd_AddAiCore_Add"
    long = f"void at::native::vectorized_elementwise_kernel<4, at::native::{'F' * 400}>(int)"
    assert short_name(long) == "vectorized_elementwise_kernel"
    assert len(short_name("Cijk_" + "X1_" * 300)) == 48
