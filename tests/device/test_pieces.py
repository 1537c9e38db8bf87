"""A product and its collective in pieces by rows: each piece reads its own rows, and the sum is that of the whole."""

from __future__ import annotations

import pytest

from device.backends.cpu import Cpu
from device.measure.numerics import Run, generate
from device.run.session import Session
from device.run.windows import problems, windows
from device.weights.weights import RandomCheckpoint
from scenarios.build import build
from scenarios.lowering.parallel import shard_of
from scenarios.models.model import Model
from scenarios.ops.program import Batch, Group, Program
from scenarios.schema import Scenario
from tests.device.making import ALL_FUSED, LLAMA, QWEN3, QWEN3_MOE, REFERENCE, Alike, plain, prompts
from tests.scenarios.making import switched

TOGETHER = {"fusion__moe_routing": True, "fusion__grouped_matmul": True}
pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("torch")]


class InTurn(Cpu):
    """A CPU that takes what other streams would do in the order of the Program."""

    def lacks(self, program: Program, model: Model) -> list[str]:
        return [line for line in super().lacks(program, model) if "wants stream" not in line]


def over_two_ranks(scenario: Scenario) -> Scenario:
    return scenario.model_copy(update={"engine": scenario.engine.model_copy(update={"tensor_parallel_size": 2})})


def run(model: Model, **switches: object) -> Run:
    scenario = over_two_ranks(plain(model, **ALL_FUSED, **switches))
    scenario = switched(scenario, weights="fp16") if model.dtype == "fp16" and "weights" not in switches else scenario
    session = Session(scenario, model, InTurn(), RandomCheckpoint(model, 0), Alike(), REFERENCE)
    return generate(session, prompts(), 2)


CASES = {
    "bf16": (QWEN3, {}),
    "fp16": (LLAMA, {}),
    "w8a8": (QWEN3, {"weights": "w8a8"}),
}


@pytest.mark.parametrize("case", CASES)
def test_pieces_give_what_the_whole_gives(case: str) -> None:
    model, switches = CASES[case]
    whole = run(model, **switches)
    pieces = run(model, **switches, overlap__comm_chunks=3)
    # A product of fewer rows may sum in another order.
    assert (pieces.logits - whole.logits).norm() < 0.005 * whole.logits.norm()


def test_the_pieces_are_what_ran() -> None:
    scenario = over_two_ranks(plain(QWEN3, **ALL_FUSED, overlap__comm_chunks=3))
    session = Session(scenario, QWEN3, InTurn(), RandomCheckpoint(QWEN3, 0), Alike(), REFERENCE)
    session.prefill(prompts())
    (bound,) = session._bound.values()
    layer = next(block for block in bound.program.blocks if block.is_layer)
    outcome = windows(layer)
    sizes = [op.out.shape[0] for op in layer.ops if op.name.startswith("o_proj.") and op.kind == "matmul"]
    first = [outcome[f"o_proj.{piece}"].reads["attended"] for piece in range(3)]
    assert [rows for rows, _ in first] == [0, sizes[0], sizes[0] + sizes[1]]
    assert {whole for _, whole in first} == {sum(sizes)} == {113}


REFUSED: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
    "one by one in parts": ({"overlap__micro_batches": 2}, {}, "micro_batches: experts one by one (fusion.grouped_m"),
    "spread in parts": (
        {"overlap__micro_batches": 2, **TOGETHER},
        {"enable_expert_parallel": True},
        "micro_batches: experts spread",
    ),
    "spread and scattered in pieces": (
        {"overlap__comm_chunks": 2, **TOGETHER},
        {"enable_expert_parallel": True, "sequence_parallel": True},
        "comm_chunks: scattered tokens of spread experts",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_device_runs_in_pieces_or_parts_is_refused_by_name(case: str) -> None:
    switches, engine, line = REFUSED[case]
    scenario = over_two_ranks(plain(QWEN3_MOE, **ALL_FUSED, **switches))
    scenario = scenario.model_copy(update={"engine": scenario.engine.model_copy(update=engine)})
    part = shard_of(scenario.engine, QWEN3_MOE, 2)
    (result,) = problems(build(scenario, part, Batch("prefill", (Group(3, 400, 0),))), part)
    assert result.startswith(f"optimizations.overlap.{line}")
    assert result.endswith("; set it to 1")
