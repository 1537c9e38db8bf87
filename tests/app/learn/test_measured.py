"""What a lesson says was measured is in the reference rows, to the digit, and what it says of fits is what they say."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from app_pages.learn.lessons import LESSONS
from app_pages.learn.second_card import experiment as second_card
from sim.accuracy import reference

FOLDER = Path(reference.__file__).parent
_SWEEP = "qwen3_8b_910b2"
_ATTENTION = {"op_type": "PromptFlashAttention", "fit": "yes", "source": "hicann/pto-isa"}
_NORM = {"op_type": "RmsNorm", "note": "cold", "fit": "yes", "source": "paddle_ocr_vl_npu"}

#: For each lesson: file, the row (its columns hold these texts), the column, and the number as the lesson writes it.
Figure = tuple[str, dict[str, str], str, str]
FIGURES: dict[str, list[Figure]] = {
    "bottlenecks": [
        ("steps", {"id": f"{_SWEEP}_eager_b1", "fit": "yes"}, "step_ms", "62.9"),
        ("steps", {"id": f"{_SWEEP}_ge_graph_b1", "fit": "no"}, "step_ms", "14.5"),
    ],
    "op_kernel": [
        ("ladders", {"id": "npu_ffn_lost", "fit": "no"}, "base_ms", "7.754"),
        ("ladders", {"id": "npu_ffn_lost", "fit": "no"}, "step_ms", "9.276"),
    ],
    "fusion": [
        ("ladders", {"id": "qwen3_8b_rms_norm", "fit": "no"}, "base_ms", "15.11"),
        ("ladders", {"id": "qwen3_8b_rms_norm", "fit": "no"}, "step_ms", "14.41"),
        ("ladders", {"id": "qwen3_8b_combined", "fit": "no"}, "step_ms", "12.64"),
    ],
    "attention": [
        ("kernels", {"op_type": "FusedInferAttentionScore", "model": "Qwen3-8B", "fit": "yes"}, "mean_us", "19.3"),
        *(
            ("kernels_910b2_cube", {**_ATTENTION, "input_shapes": f"1,1,{tokens},128"}, "mean_us", written)
            for tokens, written in ((1024, "58.5"), (8192, "353.1"), (32768, "3,646.2"))
        ),
    ],
    "graph": [
        *(
            ("steps", {"id": f"{_SWEEP}_{mode}_b{batch}", "fit": fit}, "step_ms", written)
            for mode, fit, times in (
                ("eager", "yes", ("62.9", "67.6", "65.7")),
                ("ge_graph", "no", ("14.5", "19.6", "41.1")),
            )
            for batch, written in zip((1, 16, 256), times, strict=True)
        ),
        ("ladders", {"id": "qwen3_8b_eager_to_graph_kv128", "fit": "no"}, "base_ms", "66.3"),
        ("ladders", {"id": "qwen3_8b_eager_to_graph_kv128", "fit": "no"}, "step_ms", "15.2"),
    ],
    "shapes": [
        ("steps", {"id": f"{_SWEEP}_eager_b1"}, "step_ms", "62.9"),
        ("steps", {"id": f"{_SWEEP}_ge_graph_b1"}, "step_ms", "14.5"),
    ],
    "kv": [
        ("steps", {"id": f"qwen3_0.6b_kv{tokens}", "fit": "no"}, "step_ms", written)
        for tokens, written in ((1024, "1.88"), (4096, "2.22"), (16384, "3.44"))
    ],
    "tensor_parallel": [
        ("collectives", {"op": "allReduce", "ranks": "16", "bytes": "163840", "conditions": "80"}, "mean_us", "20")
    ],
    "tiles": [
        ("kernels_torchair", {**_NORM, "input_shapes": f"{rows},1,1024", "block_num": str(rows)}, "mean_us", written)
        for rows, written in ((1, "5.5"), (2, "6.0"), (32, "10.8"))
    ],
    "overlap": [
        ("overlaps", {"id": "gemm_all_reduce_910b"}, column, written)
        for column, written in (
            ("product_us", "368.1"),
            ("collective_us", "437.3"),
            ("sequential_us", "808.9"),
            ("overlapped_us", "560.6"),
        )
    ],
    "parallelism": [
        ("steps", {"id": f"qwen3_32b_decode_a3_tp16_{run}", "fit": fit}, "step_ms", written)
        for run, fit, written in (("c4", "yes", "15.4"), ("c16", "yes", "19.4"), ("b16", "no", "23.1"))
    ],
    "experiment": [
        ("ladders", {"id": "qwen3_8b_rms_norm", "fit": "no"}, "base_ms", "15.11"),
        ("ladders", {"id": "qwen3_8b_rms_norm", "fit": "no"}, "step_ms", "14.41"),
        ("ladders", {"id": "qwen3_8b_combined", "fit": "no"}, "step_ms", "12.64"),
        ("ladders", {"id": "qwen3_8b_nz_lost", "fit": "no"}, "step_ms", "16.67"),
    ],
}  # fmt: skip
#: Numbers of a load test that no row ships: guidellm on a 910B3 (docs/serving.md), and the engine profile fitted to it.
SERVED = {"second_card": ["44.5", "51.2", "69.0", "0.49"]}
#: Versions, models and sizes: numbers of a text that are no measurement.
NAMES = re.compile(r"(?i:qwen)[\d.]+-|[\d.]+B\b|(?:vLLM-Ascend|CANN) [\d.]+|msModeling[^)）;；]*")


@pytest.mark.parametrize(("lesson", "figure"), [(name, f) for name, figures in FIGURES.items() for f in figures])
def test_each_measured_figure_is_a_row(lesson: str, figure: Figure) -> None:
    file, row, column, written = figure
    with (FOLDER / f"{file}.csv").open(encoding="utf-8") as rows:
        found = [r for r in csv.DictReader(rows) if all(_holds(r[key], text, key) for key, text in row.items())]
    assert len(found) == 1, [r["source"] for r in found]
    decimals = len(written.partition(".")[2])
    value = float(written.replace(",", ""))
    assert abs(float(found[0][column]) - value) <= 0.5 * 10**-decimals + 1e-9
    for text in LESSONS[lesson][1]["measured"]:
        assert re.search(rf"(?<![\d.,]){re.escape(written)}(?![\d])", text), text


def _holds(value: str, text: str, key: str) -> bool:
    return text in value if key in ("source", "conditions", "input_shapes") else value == text


@pytest.mark.parametrize("lesson", LESSONS)
def test_no_lesson_has_a_measured_figure_of_no_row(lesson: str) -> None:
    known = {written for *_, written in FIGURES.get(lesson, [])} | set(SERVED.get(lesson, []))
    for text in LESSONS[lesson][1]["measured"]:
        assert set(re.findall(r"\d[\d,]*\.\d+", NAMES.sub("", text))) <= known


def test_the_step_that_stands_next_to_a_load_test_is_predicted_so() -> None:
    """26 to 30 ms: from one request at once to as many as 4 requests/s keep running."""
    steps = [second_card.point("Qwen3-14B", "atlas_a2_910b3", 1, n, "starved").device_ms for n in (1, 16)]
    assert [round(step) for step in steps] == [26, 30]
    for text in LESSONS["second_card"][1]["measured"]:
        assert re.search(r"26 (to|到) 30 ms", text)
