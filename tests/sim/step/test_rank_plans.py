"""Plans of many ranks at once: each is the plan that the rank would have been given alone."""

from __future__ import annotations

import pytest

from scenarios.lowering.parallel import shard
from scenarios.models.hf_config import load_model
from scenarios.ops.program import Program
from scenarios.schema import Scenario
from sim.hardware.profile import HardwareProfile
from sim.step import engine, ranks
from sim.step.host import make_plan, make_plans
from sim.step.plan import LATE, HostWork
from sim.step.priced import Conditions
from sim.step.rank_plans import RankPlans, Times, rank_plans, timed, times_of
from sim.step.ranks import Variant
from tests.scenarios.making import program, scenario
from tests.sim.hardware_maker import hardware

MODEL = shard(load_model("Qwen3-8B"), 4)
#: Jitter of hosts and of kernels, and rank skew.
NOISY = hardware(
    "atlas_a3_die",
    host__jitter_sigma=0.1,
    host__rank_skew_us=300.0,
    kernel__jitter_sigma=0.1,
    kernel__jitter_cap_us=20.0,
)
RANKS = 4


def made(**settings: object) -> Scenario:
    return scenario(engine__tensor_parallel_size=RANKS, workload__batch=4, **settings)


def both(
    of: Scenario, conditions: Conditions, hw: HardwareProfile = NOISY
) -> tuple[RankPlans, list[engine.Plan], Program]:
    laid = program(of, MODEL)
    together = make_plans(laid, hw, conditions)
    assert isinstance(together, RankPlans)
    return together, [make_plan(laid, hw, conditions_of(conditions, rank)) for rank in range(RANKS)], laid


def conditions_of(base: Conditions, rank: int) -> Conditions:
    fields = {name: getattr(base, name) for name in base.__dataclass_fields__}
    return Conditions(**fields | {"rank": rank})


SETTINGS = [
    (made(), Conditions(ranks=RANKS)),
    (made(), Conditions(task_queue_enable=0, synchronize="op", ranks=RANKS, seed=3)),
    (made(), Conditions(task_queue_enable=2, synchronize="layer", ranks=RANKS)),
    (made(optimizations__graph="aclgraph"), Conditions(ranks=RANKS, seed=7)),
    (made(optimizations__graph="npugraph_ex"), Conditions(ranks=RANKS, host_scale=1.05)),
    (made(optimizations__graph="ge_graph"), Conditions(ranks=RANKS, device_scale=1.05)),
    (made(optimizations__graph="aclgraph", optimizations__overlap__prefetch=True), Conditions(ranks=RANKS)),
    (made(workload__phase="prefill", workload__input_tokens=500), Conditions(ranks=RANKS, host_scale=0.9)),
]


@pytest.mark.parametrize(("of", "conditions"), SETTINGS)
def test_each_rank_has_the_plan_that_it_would_have_alone(of: Scenario, conditions: Conditions) -> None:
    together, alone, _ = both(of, conditions)
    assert len(together) == RANKS
    assert list(together) == alone
    assert together[-1] == alone[-1]
    assert together[1:3] == alone[1:3]
    # And they differ: a rank's jitter is its own.
    assert len({repr(times_of(plan)) for plan in alone}) == RANKS
    assert [times for _, times in timed(together)] == [times_of(plan) for plan in alone]


@pytest.mark.parametrize("hw", [hardware("atlas_a3_die", kernel__jitter_sigma=0.0), NOISY])
def test_only_what_has_luck_differs(hw: HardwareProfile) -> None:
    together, alone, _ = both(made(optimizations__graph="aclgraph"), Conditions(ranks=RANKS), hw)
    assert list(together) == alone
    assert (len(set(map(repr, alone))) == 1) == (hw is not NOISY)


def test_both_players_take_either_form() -> None:
    together, alone, _ = both(made(optimizations__graph="aclgraph"), Conditions(ranks=RANKS))
    assert engine.times_of_ranks(together) == engine.times_of_ranks(alone)
    assert ranks.total_ns(together) == ranks.total_ns(alone) == engine.times_of_ranks(alone)[0].end_ns


def test_one_walk_plays_each_variant_as_a_walk_of_its_own() -> None:
    together, alone, laid = both(made(optimizations__graph="aclgraph"), Conditions(ranks=RANKS))
    variants = (Variant(), Variant(host=1.05), Variant(device=1.05), Variant(late=False))
    totals_ns = ranks.totals_ns(together, variants)
    assert totals_ns == [ranks.totals_ns(alone, (variant,))[0] for variant in variants]
    assert len(set(totals_ns)) == len(variants)
    in_time = hardware("atlas_a3_die", host__jitter_sigma=0.1, kernel__jitter_sigma=0.1, kernel__jitter_cap_us=20.0)
    assert totals_ns[3] == ranks.total_ns(make_plans(laid, in_time, Conditions(ranks=RANKS)))


def test_ranks_begin_late_only_where_the_profile_says_so() -> None:
    late = {hw.host.rank_skew_us: both(made(), Conditions(ranks=RANKS), hw)[0] for hw in (hardware(), NOISY)}
    assert isinstance(late[300.0][0].steps[0], HostWork)
    assert late[300.0][0].steps[0].name == LATE
    assert not any(isinstance(step, HostWork) and step.name == LATE for step in late[0.0][0].steps)


def test_a_rank_alone_is_a_plan_alone() -> None:
    laid = program(scenario(workload__batch=4), load_model("Qwen3-8B"))
    assert make_plans(laid, NOISY, Conditions()) == (make_plan(laid, NOISY, Conditions()),)


def test_plans_that_are_no_one_program_are_refused() -> None:
    together, _, _ = both(made(), Conditions(ranks=RANKS))
    shorter = make_plan(program(scenario(workload__batch=4), MODEL), NOISY, Conditions())
    with pytest.raises(ValueError, match="zip"):
        rank_plans([together[0], shorter])
    with pytest.raises(ValueError, match="0 or more"):
        RankPlans(together.first, together.host_ns - 10_000_000, together.launch_ns, together.kernel_ns)


def test_times_by_hand() -> None:
    plan = make_plan(program(scenario(workload__batch=4), MODEL), hardware(), Conditions())
    times = times_of(plan)
    assert isinstance(times, Times)
    assert (len(times.host), len(times.launch)) == (len(plan.steps), len(times.kernels))
