"""Expert parallelism over gloo ranks: the tokens of one rank, and no row lost on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from device.ranks.spawn import on_ranks
from device.run.session import Options
from scenarios.models.model import Model
from scenarios.schema import Scenario
from tests.device.making import DEEPSEEK, GLM, QWEN3_MOE, REFERENCE, WIDE_REFERENCE, Run, plain, prompts
from tests.device.ranks import Case, SpreadCase, SpreadCases

GROUPED = {"fusion__grouped_matmul": True, "fusion__moe_routing": True, "fusion__gate_up": True, "fusion__swiglu": True}
SENT = {"all2all_backend": "alltoall"}
GATHERED = {"all2all_backend": "allgather_reducescatter"}


def case(
    model: Model,
    engine: dict[str, object],
    switches: dict[str, object],
    sizes: tuple[int, int] = (2, 1),
    options: Options = WIDE_REFERENCE,
) -> tuple[SpreadCase, list[Run]]:
    """A run on `sizes` = (tensor-parallel ranks, replicas), and the same of one rank for each replica's prompts."""
    tensor, replicas = sizes
    apart = {"fusion__moe_dispatch": False} if engine is SENT else {}
    scenario = plain(model, **{**apart, **switches})
    # Replicas that gather each other's tokens have as many; those that send may have others.
    every = prompts(lengths=tuple(n - r * (engine is SENT) for r in range(replicas) for n in (40, 40, 33)))
    given = [every[3 * r : 3 * r + 3] for r in range(replicas)]
    alone_made = plain(model, **{k: v for k, v in switches.items() if k != "fusion__moe_dispatch"})
    alone = []
    for mine in given:
        first = Case(alone_made, model, options, mine, []).run(None)
        alone.append(Case(alone_made, model, options, mine, [first.tokens[0]] * 2).run(None))
    update = {"tensor_parallel_size": tensor, "data_parallel_size": replicas, "enable_expert_parallel": True, **engine}
    spread: Scenario = scenario.model_copy(update={"engine": scenario.engine.model_copy(update=update)})
    forced = [[run.tokens[0]] * 2 for run in alone]
    return SpreadCase(spread, model, options, given, forced, tensor, replicas), alone


@dataclass(frozen=True)
class Found:
    """Of each rank: its run and what was sent; and the runs of one rank."""

    case: SpreadCase
    runs: list[Run]
    seen: list[list[dict[str, list[int]]]]
    alone: list[Run]


def spread(cases: dict[str, tuple[SpreadCase, list[Run]]], ranks: int) -> dict[str, Found]:
    answers = on_ranks(SpreadCases({name: one for name, (one, _) in cases.items()}), ranks, "gloo", timeout_s=110)
    results = {}
    for name, (one, alone) in cases.items():
        told = [answer[name] for answer in answers]
        runs = [Run(tokens, torch.tensor(logits)) for tokens, logits, _ in told]  # type: ignore[misc]
        results[name] = Found(one, runs, [seen for _, _, seen in told], alone)  # type: ignore[misc]
    return results


@pytest.fixture(scope="module")
def two() -> dict[str, Found]:
    return spread(
        {
            "sent": case(QWEN3_MOE, SENT, GROUPED),
            "sent, plain": case(GLM, SENT, {}),
            "sent, with groups, MLA and a shared expert": case(DEEPSEEK, SENT, GROUPED),
            "sent by one kernel": case(QWEN3_MOE, SENT, {**GROUPED, "fusion__moe_dispatch": True}),
            "gathered": case(GLM, GATHERED, GROUPED),
            "gathered, plain": case(DEEPSEEK, GATHERED, {}),
            "sent between replicas": case(GLM, SENT, GROUPED, (1, 2)),
            "gathered from replicas": case(QWEN3_MOE, GATHERED, GROUPED, (1, 2)),
            "sent in INT8": case(QWEN3_MOE, SENT, {**GROUPED, "weights": "w8a8"}),
            "sent in 16 bits": case(QWEN3_MOE, SENT, GROUPED, options=REFERENCE),
        },
        2,
    )


@pytest.fixture(scope="module")
def four() -> dict[str, Found]:
    return spread(
        {
            "sent, four in one layer": case(replace(QWEN3_MOE, kv_heads=4), SENT, GROUPED, (4, 1)),
            "sent, two replicas of two": case(DEEPSEEK, SENT, GROUPED, (2, 2)),
            "gathered, two replicas of two": case(GLM, GATHERED, {}, (2, 2)),
            "sent, four replicas": case(QWEN3_MOE, SENT, {}, (1, 4)),
        },
        4,
    )


def relative(run: Run, true: Run) -> float:
    return ((run.logits - true.logits).norm() / true.logits.norm()).item()


def check(result: Found, most: float = 1e-6) -> None:
    """Every rank has its replica's tokens, and every row of a step that was sent has come to its expert."""
    for rank, run in enumerate(result.runs):
        alone = result.alone[rank // result.case.tensor]
        assert relative(run, alone) < most
        assert run.tokens == alone.tokens
    experts = result.case.model.experts
    assert experts is not None
    for steps in zip(*result.seen, strict=True):
        tokens = sum(step["tokens"][0] for step in steps[:: result.case.tensor])
        if "experts.sent" not in steps[0]:
            continue
        assert sum(sum(step["experts.sent"]) for step in steps) == tokens * experts.top_k
        by_expert = [sum(column) for column in zip(*(step["experts.sent"] for step in steps), strict=True)]
        held = experts.count // len(steps)
        for rank, step in enumerate(steps):
            come = torch.tensor(step["experts.incoming"]).view(len(steps), held).sum(0).tolist()
            assert come == by_expert[rank * held : (rank + 1) * held]


NAMES = [
    "sent", "sent, plain", "sent, with groups, MLA and a shared expert", "sent by one kernel", "gathered",
    "gathered, plain", "sent between replicas", "gathered from replicas",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_compute_what_one_does(two: dict[str, Found], name: str) -> None:
    check(two[name])


def test_rounding_is_that_of_the_types(two: dict[str, Found]) -> None:
    check(two["sent in INT8"], 0.05)  # each rank scales its own slice of what o_proj reads
    for run in two["sent in 16 bits"].runs:
        assert 0 < relative(run, two["sent in 16 bits"].alone[0]) < 0.015


NAMES_OF_FOUR = [
    "sent, four in one layer",
    "sent, two replicas of two",
    "gathered, two replicas of two",
    "sent, four replicas",
]


@pytest.mark.study  # four ranks with expert parallelism run in test_pipeline.py by default
@pytest.mark.parametrize("name", NAMES_OF_FOUR)
def test_four_ranks_compute_what_one_does(four: dict[str, Found], name: str) -> None:
    check(four[name])


def test_ranks_hold_their_own_experts_and_really_send(two: dict[str, Found]) -> None:
    seen = two["sent"].seen
    assert any(sum(step["experts.sent"][4:]) for step in seen[0])  # rank 0 has rows for the experts of rank 1
    assert any(sum(step["experts.sent"][:4]) for step in seen[1])
