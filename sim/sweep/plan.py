"""Of all ways to run a model on some cards, which: feasible, bounded, ranked, decided, and how sure.

Choices that do not fit are refused with a reason. Of the others, those whose bound already breaks the SLO, or yields
less than what another choice was played to yield, are pruned. The recurrence ranks what is left, batch by batch; the
best few are refined by switches and decided by the event simulation of their steps and, the first few, by the serving
simulation of a client that keeps that many requests in flight.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from scenarios.errors import ScenarioError
from scenarios.models.model import Model
from scenarios.schema import Scenario
from sim.predict.steps import Case
from sim.predict.uncertainty import ratio_interval
from sim.sweep.candidates import BATCHES, Choice, Fixed, Models, batches, choices, refined, refinements
from sim.sweep.disaggregate import Split, best_splits
from sim.sweep.evaluate import Evaluator, Point, Slo
from sim.sweep.finalists import Finalist, Say, by_events, by_serving
from sim.sweep.robust import regrets, slowdown
from sim.sweep.serve import Served, served_apart
from sim.sweep.swings import Swing, swings

#: Settings that say how many cards a replica takes, or how many replicas there are.
DEGREES = {"engine.tensor_parallel_size", "engine.pipeline_parallel_size", "engine.data_parallel_size"}
#: Cards of the largest deployment that is asked for.
MAX_CARDS = 1024
#: Choices that the event simulation decides between, and those of them that are served.
FINALISTS, SERVED = 6, 2
#: Splits into prefill and decode instances that are served.
SPLITS = 2
#: Smaller batches that are served where the SLO is missed.
STEPS_DOWN = 3
#: A larger batch is not served where the recurrence's TPOT is this far above the limit.
HOPELESS = 1.5
#: Best choices that are refined by switches.
REFINED = 2
#: A choice whose score is this close to the best is a near tie, whatever the interval says.
NEAR = 0.02


@dataclass(slots=True)
class Plan:
    """What a plan comes to. skipped: choices with a batch by why they were not played; refusals: one line a layout,
    with the nearest that fits; pareto: no other has more tokens/s a card and a user."""

    case: Case
    cards: int
    slo: Slo
    finalists: list[Finalist] = field(default_factory=list)
    pareto: list[Point] = field(default_factory=list)
    near_ties: list[tuple[Finalist, str]] = field(default_factory=list)
    swings: list[Swing] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    considered: int = 0
    played: int = 0
    split: tuple[Split, Served] | None = None
    fixed: tuple[str, ...] = ()
    batches: tuple[int, ...] = BATCHES

    @property
    def best(self) -> Finalist | None:
        return self.finalists[0] if self.finalists else None


def plan(case: Case, whole: Any, cards: int, slo: Slo, fixed: Fixed, say: Say = lambda text: None) -> Plan:
    """Plan the deployment of `case`'s scenario on `cards` cards. whole: its model, not split."""
    if not fixed.names("engine.finegrained_tp_config"):  # searched, and refused by other layouts than its own
        engine = case.scenario.engine.model_copy(update={"finegrained_tp_config": None})
        case = case.with_scenario(case.scenario.model_copy(update={"engine": engine}))
    evaluator = Evaluator(Models(whole, case.scenario, case.hardware))
    tried = batches(case.scenario, fixed)
    result = Plan(case, cards, slo, fixed=tuple(sorted(fixed.keys)), batches=tried)
    every = list(choices(case.scenario, whole, cards, fixed))
    if not every:
        raise ScenarioError([_indivisible(case.scenario, whole, cards, fixed)])
    feasible = _feasible(every, evaluator, result)
    say(f"{result.considered:,} configurations, {sum(len(b) for b in feasible.values()):,} fit")
    points = _ranked(feasible, evaluator, slo, result, say) or _nearest_to_slo(feasible, evaluator)
    points = _refined(points, evaluator, result, say)
    result.pareto = _pareto(points)
    result.split = _apart(best_splits(points, cards, slo, SPLITS), result, say)
    result.finalists = _decided(points, evaluator, result, say)
    result.played = evaluator.steps
    if result.finalists:
        _prefer_robust(result)
        result.near_ties = _near_ties(result)
        result.swings = swings(result.finalists, case, slo)
    say("")
    return result


def _indivisible(scenario: Scenario, model: Model, cards: int, fixed: Fixed) -> str:
    """Why no layout takes all of the cards: what is set of the parallel degrees does not divide them."""
    around = (cards + away for far in range(1, cards + 1) for away in (-far, far) if cards + away > 0)
    nearest = next((count for count in around if any(choices(scenario, model, count, fixed))), None)
    named = ", ".join(
        f"{key}={getattr(scenario.engine, key.removeprefix('engine.'))}" for key in sorted(DEGREES & fixed.keys)
    )
    return f"--cards {cards}: no layout with {named} takes them all" + (f"; nearest: {nearest}" if nearest else "")


def _feasible(every: list[Choice], evaluator: Evaluator, result: Plan) -> dict[Choice, list[int]]:
    """The batches that fit, by choice; memory grows with the batch, so the first that does not ends the list."""
    fits: dict[Choice, list[int]] = {}
    refused: list[tuple[Choice, int, str]] = []
    tried = result.batches
    for choice in every:
        result.considered += len(tried)
        for number, batch in enumerate(tried):
            kind, why = evaluator.refusal(choice, batch)
            if kind:
                result.skipped[kind] += len(tried) - number
                if number == 0:
                    refused.append((choice, batch, why))
                break
            fits.setdefault(choice, []).append(batch)
    told: set[tuple[int, int, bool, str]] = set()
    elsewhere = "" if fits else _on_more_cards(evaluator, result)
    for choice, _, why in refused:
        key = choice.tensor_parallel, choice.pipeline_parallel, choice.expert_parallel, choice.weights
        if key not in told:
            told.add(key)
            result.refusals.append(f"{choice.name}: {why}{_nearest(choice, fits) or elsewhere}")
    return fits


def _on_more_cards(evaluator: Evaluator, result: Plan) -> str:
    """The first layout that fits on twice as many cards, four times, and so on; nothing where none does."""
    cards, fixed = 2 * result.cards, Fixed(frozenset(result.fixed))
    while cards <= MAX_CARDS:
        for choice in choices(result.case.scenario, evaluator.whole, cards, fixed):
            if not evaluator.refusal(choice, result.batches[0])[0]:
                return f"; nearest that fits: {choice.name} on {cards} cards"
        cards *= 2
    return ""


def _nearest(choice: Choice, fits: dict[Choice, list[int]]) -> str:
    """The choice that fits and is most like it."""

    def distance(other: Choice) -> tuple[int, int]:
        same = ("weights", "expert_parallel", "pipeline_parallel", "kv_dtype", "graph")
        changed = sum(getattr(other, name) != getattr(choice, name) for name in same)
        return changed, abs(other.tensor_parallel - choice.tensor_parallel)

    nearest = min(fits, key=distance, default=None)
    return f"; nearest that fits: {nearest.name} with up to {fits[nearest][-1]} requests" if nearest else ""


def _ranked(feasible: dict[Choice, list[int]], evaluator: Evaluator, slo: Slo, result: Plan, say: Say) -> list[Point]:
    """Points by the recurrence, the choices with the highest bound first; pruned ones are counted."""
    bounds: dict[Choice, tuple[float, float]] = {c: evaluator.bound(c, fitting[-1]) for c, fitting in feasible.items()}
    points: list[Point] = []
    best = 0.0
    for choice in sorted(feasible, key=lambda c: -bounds[c][1]):
        fitting = feasible[choice]
        if slo.tpot_ms is not None and evaluator.bound(choice, fitting[0])[0] > slo.tpot_ms:
            result.skipped["bound breaks the TPOT limit"] += len(fitting)
            continue
        if bounds[choice][1] < best:
            result.skipped["bound below what another yields"] += len(fitting)
            continue
        for number, batch in enumerate(fitting):
            point = evaluator.point(choice, batch)
            points.append(point)
            if not slo.met(point.ttft_ms, point.tpot_ms):
                result.skipped["larger batch than one that breaks the SLO"] += len(fitting) - number - 1
                break
            best = max(best, point.tokens_per_card)
        say(f"{len(points):,} points played")
    return points


def _nearest_to_slo(feasible: dict[Choice, list[int]], evaluator: Evaluator) -> list[Point]:
    """Where the bound of every choice breaks the SLO: the nearest one, with its fewest requests."""
    bounds = {choice: evaluator.bound(choice, fitting[0])[0] for choice, fitting in feasible.items()}
    nearest = min(bounds, key=lambda choice: bounds[choice], default=None)
    return [evaluator.point(nearest, feasible[nearest][0])] if nearest else []


def _score(point: Point, slo: Slo) -> tuple[bool, float]:
    """What makes a point better: tokens/s a card where it meets the SLO, else how near it is."""
    near = slo.nearness(point.ttft_ms, point.tpot_ms)
    return (True, point.tokens_per_card) if near >= 1 else (False, near)


def _best_of_choices(points: list[Point], slo: Slo) -> list[Point]:
    """The best point of each choice, the best first."""
    best: dict[Choice, Point] = {}
    for point in sorted(points, key=lambda p: _score(p, slo)):
        best[point.choice] = point
    return sorted(best.values(), key=lambda p: _score(p, slo), reverse=True)


def _refined(points: list[Point], evaluator: Evaluator, result: Plan, say: Say) -> list[Point]:
    """The points and, of the best choices, those with switches that make them better, one after the other."""
    more, slo = list(points), result.slo
    for point in _best_of_choices(points, slo)[:REFINED]:
        for extra in refinements(point.choice, evaluator.whole):
            switch = extra[0] if extra[0].startswith("engine.") else f"optimizations.{extra[0]}"
            if Fixed(frozenset(result.fixed)).names(switch):
                continue
            choice = refined(point.choice, extra)
            if evaluator.refusal(choice, point.batch)[0]:
                continue
            tried = evaluator.point(choice, point.batch)
            if _score(tried, slo) > _score(point, slo):
                more.append(tried)
                point = tried
        larger = [batch for batch in result.batches if batch > point.batch]
        for batch in larger[:2]:
            if evaluator.refusal(point.choice, batch)[0]:
                break
            more.append(evaluator.point(point.choice, batch))
        say(f"refined {point.choice.name}")
    return more


def _pareto(points: list[Point]) -> list[Point]:
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (-p.per_user, -p.tokens_per_card, p.choice.name)):
        if not front or point.tokens_per_card > front[-1].tokens_per_card:
            front.append(point)
    return front


def _decided(points: list[Point], evaluator: Evaluator, result: Plan, say: Say) -> list[Finalist]:
    """The best choices by the event simulation, then the first of them by the serving simulation, and the first of
    these with more requests as long as that pays: the recurrence takes prompts one after the other, which an engine
    packs."""
    finalists: list[Finalist] = []
    slo = result.slo
    for point in _best_of_choices(points, slo)[:FINALISTS]:
        say(f"event simulation: {point.choice.name}")
        finalists.append(by_events(point, slo))
    finalists.sort(key=lambda f: (not f.meets, -f.score(slo)))
    first: list[Finalist] = []
    while finalists and (len(first) < SERVED or _promises_more(finalists[0], first[0], slo)):
        first.append(_fewer(by_serving(finalists.pop(0), slo, say), evaluator, result, say))
        first.sort(key=lambda f: (not f.meets, -f.score(slo)))
    tried = {finalist.point for finalist in (*first, *finalists)}
    for batch in (batch for batch in result.batches if first and batch > first[0].point.batch):
        choice = first[0].point.choice
        if not first[0].meets or first[0].point not in tried or evaluator.refusal(choice, batch)[0]:
            break
        point = evaluator.point(choice, batch)
        if slo.tpot_ms is not None and point.tpot_ms > HOPELESS * slo.tpot_ms:
            break
        larger = by_serving(by_events(point, slo), slo, say)
        tried.add(larger.point)
        if not larger.meets or larger.tokens_per_card <= first[0].tokens_per_card:
            break
        first[0] = larger
    return [*first, *finalists]


def _promises_more(finalist: Finalist, served: Finalist, slo: Slo) -> bool:
    """Whether a choice that was not served is better, by the event simulation, than the best that was: serving takes
    more from some than from others."""
    return (finalist.meets, finalist.score(slo)) > (served.meets, served.score(slo))


def _fewer(finalist: Finalist, evaluator: Evaluator, result: Plan, say: Say) -> Finalist:
    """The choice with as many requests as meet the SLO when they are served; as it was where none of the next few
    do."""
    slo = result.slo
    smaller = [batch for batch in reversed(result.batches) if batch < finalist.point.batch]
    for batch in () if finalist.meets else smaller[:STEPS_DOWN]:
        fewer = by_serving(by_events(evaluator.point(finalist.point.choice, batch), slo), slo, say)
        if fewer.meets:
            return fewer
    return finalist


def _apart(splits: list[Split], result: Plan, say: Say) -> tuple[Split, Served] | None:
    """The split that is best when it is served: one that meets the SLO, then the one with the most tokens/s a card."""
    runs = []
    for split in splits:
        say(f"serving simulation: {split.prefill_instances} prefill, {split.decode_instances} decode instances")
        runs.append((split, served_apart(split, result.cards)))
    return max(runs, key=lambda r: (result.slo.met(r[1].ttft_ms, r[1].tpot_ms), r[1].tokens_per_card), default=None)


def _near_ties(result: Plan) -> list[tuple[Finalist, str]]:
    """Finalists that the interval of the ratio of steps, or NEAR, does not tell from the best."""
    best, ties = result.finalists[0], []
    for other in result.finalists[1:]:
        share = 1 - other.score(result.slo) / best.score(result.slo)
        low, high = _ratio_of(best, other, result.case)
        if abs(share) <= NEAR:
            ties.append((other, f"{share:.1%} less"))
        elif (1 - share) * high >= 1:
            ends = f"{(1 - share) * low:.2f}x to {(1 - share) * high:.2f}x"
            ties.append((other, f"{share:.1%} less, {ends} by the profile's interval"))
    return ties


def _prefer_robust(result: Plan) -> None:
    """Of the best finalist and its near ties that meet the SLO alike, put the one first that loses the smallest share
    on a healthy and on a loaded host."""
    best = result.finalists[0]
    near = [other for other, _ in _near_ties(result)]
    ties = [best, *(f for f in near if f.meets == best.meets and f.decided_by == best.decided_by)]
    lost = regrets([1 / f.score(result.slo) for f in ties], [slowdown(f.point.case) for f in ties])
    first = ties[min(range(len(ties)), key=lambda i: (lost[i], i))]
    result.finalists = [first, *(f for f in result.finalists if f is not first)]


def _ratio_of(best: Finalist, other: Finalist, case: Case) -> tuple[float, float]:
    """(low, high) of the ratio of both steps over its value."""
    value, low, high = ratio_interval(best.sensitivity, other.sensitivity, case.hardware)
    return low / value, high / value
