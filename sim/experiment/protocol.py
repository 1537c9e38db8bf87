"""The protocol: baseline, warm-up, profile, one factor at a time with its numbers, other shapes, interactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import combinations
from math import log
from statistics import median

from scenarios.errors import ScenarioError
from scenarios.exchange.bench import Bench, Pair, Part
from scenarios.loader import Loaded
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim.experiment.factors import (
    HEADLINE,
    Factor,
    Ratio,
    alternatives,
    factors_of,
    predicted_metrics,
    predicted_ratio,
    unfit,
)
from sim.experiment.mixing import all_in, all_out
from sim.experiment.record import baseline_record, bottleneck_of
from sim.experiment.rows import Combination, Compared, Experiment, Row, ShapeRow, metrics_of
from sim.experiment.shapes import other_shapes
from sim.experiment.statistics import Interval, median_interval, over, product, ratios, reference_helps, warmth
from sim.experiment.verdict import MAX_KL_NATS, check_numbers, decide, floor_of
from sim.predict.predict import cold_start, predict
from sim.predict.scenario_result import predicted_of
from sim.predict.steps import Case

#: Shares of the budget by the end of which the factors, the shapes and the combinations must have started.
FACTORS_BY, SHAPES_BY, ALL_BY = 0.7, 0.85, 1.0
#: What a comparison whose kernels are compiled first takes, in comparisons that are not (assumed; a CPU takes 3 to 10).
COMPILED_COST = 4.0
#: Factors that are taken to other shapes, and of which pairs are tried: the largest gains.
MAX_SHAPED, MAX_PAIRED = 3, 3

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """wanted: factors by name, all where empty. budget_s: seconds for all of it; what does not fit is left out, and
    said."""

    wanted: tuple[str, ...] = ()
    budget_s: float = 300.0


@dataclass(slots=True)
class ExperimentSession:
    """What the steps of one experiment share. took_s: the comparisons so far, from which the next is estimated."""

    case: Case
    bench: Bench
    options: Options
    say: Say
    headline: Part
    is_trained: bool
    by_reference: bool = False
    floor: float = 0.0
    took_s: list[float] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def has_time(self, share: float) -> bool:
        """Whether a comparison as long as the usual one would end within this share of the budget. One that compiles
        may take longer than that; the shares leave room for it."""
        expected_s = median(self.took_s) if self.took_s else 0.0
        return self.bench.elapsed_s() + expected_s <= share * self.options.budget_s

    def fair_s(self, share: float, left: int) -> float:
        """Seconds of a comparison of which `left` are to be made by this share of the budget."""
        return max(0.0, (share * self.options.budget_s - self.bench.elapsed_s()) / max(1, left))

    @property
    def left_out_s(self) -> float:
        """About how long what was left out would take."""
        return len(self.left_out) * (sum(self.took_s) / len(self.took_s) if self.took_s else 0.0)

    def pair(self, a: Scenario, b: Scenario, seconds: float | None = None) -> Pair:
        """Measure two sides, in about so many seconds. Raises ScenarioError."""
        began = self.bench.elapsed_s()
        try:
            return self.bench.pair(a, b, seconds)
        finally:
            self.took_s.append(self.bench.elapsed_s() - began)

    def gains(self, pair: Pair) -> dict[Part, Interval]:
        return {part: median_interval(ratios(turns, self.by_reference)) for part, turns in pair.repeats.items()}

    def compared(self, without: Scenario, with_it: Scenario, seconds: float | None = None) -> Compared:
        """Measure what `with_it` gains over `without`, in about so many seconds. Raises ScenarioError."""
        pair = self.pair(without, with_it, seconds)
        unchecked = pair.a.unchecked or pair.b.unchecked
        numbers = check_numbers(pair.a.errors, pair.b.errors, unchecked, self.is_trained)
        return Compared(
            pair, self.gains(pair), numbers, metrics_of(without, pair, True), metrics_of(with_it, pair, False)
        )


def experiment(
    loaded: Loaded, case: Case, bench: Bench, options: Options | None = None, say: Say = lambda _: None
) -> Experiment:
    """Carry the seven steps out. say: hears one line at the start of each comparison, and an empty one at the end.

    Raises ScenarioError where the baseline itself cannot run, or where a wanted factor is none.
    """
    options = options or Options()
    scenario = case.scenario
    factors = factors_of(case, options.wanted)
    if refused := bench.refused(scenario):
        raise ScenarioError([f"the baseline does not run here: {refused}"])
    try:
        return _carried_out(loaded, factors, case, bench, options, say)
    finally:
        say("")


def _carried_out(
    loaded: Loaded, factors: Sequence[Factor], case: Case, bench: Bench, options: Options, say: Say
) -> Experiment:
    scenario = case.scenario
    weights = bench.weights(loaded)
    lab = ExperimentSession(case, bench, options, say, HEADLINE[scenario.workload.phase], weights != "seeded random")
    baseline = baseline_record(loaded, case, weights, bench.machine())
    say("warming up the baseline")
    warm_up = bench.warm_up(scenario)
    warm = warmth(warm_up.repeats)
    if not warm.is_warm:
        lab.warnings.append(f"the baseline was not warm: its last repeats took {warm.drift:.2f} times the middle ones")
    say("profiling the baseline")
    prediction = predict(case)
    profile = bench.profile(loaded, predicted_of(prediction)).document
    say("measuring the baseline against itself")
    control, base = _control(lab)
    rows = _rows(lab, factors)
    adopted = [row for row in rows if row.verdict and row.verdict.call == "adopt"]
    adopted.sort(key=lambda row: (-_gain(row, lab.headline), row.factor.name))
    shapes = _shapes(lab, adopted)
    mixed = _combinations(lab, adopted)
    rows = _late(lab, rows)
    cold = cold_start(case)
    return Experiment(
        baseline=baseline,
        scenario=scenario,
        headline=lab.headline,
        warm_up=warm_up,
        warmth=warm,
        bottleneck=bottleneck_of(prediction, profile),
        profile=profile,
        predicted_metrics=predicted_metrics(case, scenario),
        measured_metrics=base,
        cold_start={"predicted_ms": cold.compile_ms + cold.capture_ms, "measured_ms": base.get("cold_ms", 0.0)},
        control=control,
        by_reference=lab.by_reference,
        floor=lab.floor,
        rows=tuple(rows),
        shapes=tuple(shapes),
        combinations=tuple(mixed),
        left_out=tuple(lab.left_out),
        warnings=tuple(lab.warnings),
        budget_s=options.budget_s,
        elapsed_s=bench.elapsed_s(),
        left_out_s=lab.left_out_s,
    )


def _control(lab: ExperimentSession) -> tuple[dict[Part, Interval], dict[str, float]]:
    """(what two equal sides differ by, the baseline's metrics); how ratios are formed and told from 1 follows from
    it."""
    pair = lab.pair(lab.case.scenario, lab.case.scenario)
    lab.by_reference = reference_helps(pair.repeats[lab.headline])
    gains = lab.gains(pair)
    lab.floor = floor_of(gains[lab.headline])
    errors = pair.a.errors
    if errors is not None and errors.kl_nats > MAX_KL_NATS:
        lab.warnings.append(
            f"the baseline itself is {errors.kl_nats:.2g} nats from the plain program, more than {MAX_KL_NATS:g}: what "
            "is as before is no better"
        )
    return gains, metrics_of(lab.case.scenario, pair, True)


def _rows(lab: ExperimentSession, factors: Sequence[Factor]) -> list[Row]:
    """Every factor, in the order given; they are measured in the order of their predicted effect for its cost, so that
    what there is no time for is what would matter smallest, and each has its share of the time that is left."""
    rows: dict[str, Row] = {}
    todo: list[tuple[float, Factor]] = []
    for factor in factors:
        choices = [factor, *(alternatives(lab.case, factor) if not lab.options.wanted else [])]
        for chosen in choices:  # until one is there
            if why_not := chosen.why_not or _refused(lab, chosen):
                rows[chosen.name] = Row(chosen, "refused", reason=why_not)
                continue
            rows[chosen.name] = Row(chosen, "left out")
            effect = predicted_ratio(lab.case, chosen.without, chosen.with_it, lab.headline).value
            todo.append((abs(log(effect)) / _cost(lab, chosen), chosen))
            break
    todo.sort(key=lambda pair: (-pair[0], pair[1].name))
    for number, (_, factor) in enumerate(todo, 1):
        if lab.has_time(FACTORS_BY):
            lab.say(f"factor {number} of {len(todo)}: {factor.name}")
            rows[factor.name] = _row(lab, factor, lab.fair_s(FACTORS_BY, len(todo) - number + 1))
        else:
            lab.left_out.append(f"factor {factor.name}")
            rows[factor.name] = Row(factor, "left out", _predicted(lab, factor), reason="no time was left for it")
    return list(rows.values())


def _late(lab: ExperimentSession, rows: Sequence[Row]) -> list[Row]:
    """Take up the factors that were left out where the rest has left time for them after all, in the order in which
    they were."""
    result = list(rows)
    places = {f"factor {row.factor.name}": place for place, row in enumerate(rows) if row.status == "left out"}
    waiting = [name for name in lab.left_out if name in places]
    for number, name in enumerate(waiting):
        if not lab.has_time(ALL_BY):
            break
        factor = result[places[name]].factor
        lab.say(f"after all: {factor.name}")
        lab.left_out.remove(name)
        result[places[name]] = _row(lab, factor, lab.fair_s(ALL_BY, len(waiting) - number))
    return result


def _cost(lab: ExperimentSession, factor: Factor) -> float:
    """What its comparison takes, in those that compile nothing."""
    compiles = [lab.bench.compiles(s) for s in (factor.with_it, factor.without)]
    return COMPILED_COST if any(compiles) and not lab.bench.compiles(lab.case.scenario) else 1.0


def _refused(lab: ExperimentSession, factor: Factor) -> str:
    return lab.bench.refused(factor.with_it) or lab.bench.refused(factor.without)


def _predicted(lab: ExperimentSession, factor: Factor) -> dict[Part, Ratio]:
    parts: tuple[Part, ...] = ("tpot", "ttft", "step") if lab.headline == "step" else ("tpot", "ttft")
    return {part: predicted_ratio(lab.case, factor.without, factor.with_it, part) for part in parts}


def _row(lab: ExperimentSession, factor: Factor, seconds: float | None = None) -> Row:
    predicted = _predicted(lab, factor)
    metrics = {
        "without": predicted_metrics(lab.case, factor.without),
        "with": predicted_metrics(lab.case, factor.with_it),
    }
    try:
        compared = lab.compared(factor.without, factor.with_it, seconds)
    except ScenarioError as error:
        return Row(factor, "failed", predicted, metrics, reason=error.messages[0])
    verdict = decide(compared.gains[lab.headline], lab.floor, compared.numbers, _trade_off(lab, factor, compared))
    return Row(factor, "measured", predicted, metrics, compared=compared, verdict=verdict)


def _trade_off(lab: ExperimentSession, factor: Factor, compared: Compared) -> str:
    """What a switch changes next to what the verdict is of, where that can be distinguished from nothing."""
    said = []
    for part, gain in compared.gains.items():
        if part != lab.headline and abs(log(gain.value)) > lab.floor and (gain.low > 1 or gain.high < 1):
            said.append(f"{part.upper()} {gain.value:.2f}x")
    if factor.for_capacity:
        ratio = compared.with_it["kv_cache_bytes"] / compared.without["kv_cache_bytes"]
        said.append(f"it is for room, not for speed: KV cache of {ratio:.2f} times the bytes here")
    return ", ".join(said)


def _gain(row: Row, part: Part) -> float:
    return row.compared.gains[part].value if row.compared else 1.0


def _shapes(lab: ExperimentSession, adopted: Sequence[Row]) -> list[ShapeRow]:
    """The adopted factors with the largest gains, each at another batch and another length."""
    rows = []
    for row in adopted[:MAX_SHAPED]:
        for label, change in other_shapes(lab.case):
            rows.append(_shape(lab, row.factor, label, change))
    lab.left_out += [f"{row.factor.name} at other shapes" for row in adopted[MAX_SHAPED:]]
    return rows


def _shape(lab: ExperimentSession, factor: Factor, label: str, change: Callable[[Scenario], Scenario]) -> ShapeRow:
    without, with_it = change(factor.without), change(factor.with_it)
    if reason := next((r for s in (without, with_it) if (r := unfit(lab.case, s) or lab.bench.refused(s))), ""):
        return ShapeRow(factor.name, label, "refused", reason=reason)
    predicted = predicted_ratio(lab.case, without, with_it, lab.headline)
    if not lab.has_time(SHAPES_BY):
        lab.left_out.append(f"{factor.name} at {label}")
        return ShapeRow(factor.name, label, "left out", predicted, reason="no time was left for it")
    lab.say(f"{factor.name} at {label}")
    try:
        gain = lab.compared(without, with_it, lab.fair_s(SHAPES_BY, 2)).gains[lab.headline]
    except ScenarioError as error:
        return ShapeRow(factor.name, label, "failed", predicted, reason=error.messages[0])
    return ShapeRow(factor.name, label, "measured", predicted, gain)


def _combinations(lab: ExperimentSession, adopted: Sequence[Row]) -> list[Combination]:
    """All adopted factors together, then pairs of the largest: of those that the scenario lacks, and of those it has.

    A pair of one that is off and one that is on would need a fourth side, and its product holds by construction.
    """
    tried: list[Combination] = []
    groups = [_one_a_switch([r for r in adopted if r.factor.state == state]) for state in ("off", "on")]
    sets = [group for group in groups if len(group) > 1]
    sets += [list(two) for group in groups if len(group) > 2 for two in combinations(group[:MAX_PAIRED], 2)]
    for rows in sets:
        tried.append(_combination(lab, rows))
    return tried


def _one_a_switch(rows: Sequence[Row]) -> list[Row]:
    """The best value of each switch; `rows` come with the largest gain first."""
    return list({row.factor.switch: row for row in reversed(rows)}.values())[::-1]


def _combination(lab: ExperimentSession, rows: Sequence[Row]) -> Combination:
    state, names = rows[0].factor.state, tuple(row.factor.name for row in rows)
    scenario, factors = lab.case.scenario, [row.factor for row in rows]
    without = scenario if state == "off" else all_out(lab.case, factors)
    with_it = all_in(lab.case, factors) if state == "off" else scenario
    if reason := next((r for s in (without, with_it) if (r := unfit(lab.case, s) or lab.bench.refused(s))), ""):
        return Combination(names, state, "refused", reason=reason)
    predicted = predicted_ratio(lab.case, without, with_it, lab.headline)
    alone = 1.0
    for row in rows:
        alone *= row.predicted[lab.headline].value
    if not lab.has_time(ALL_BY):
        lab.left_out.append(f"{' with '.join(names)}")
        return Combination(names, state, "left out", predicted, alone, reason="no time was left for it")
    lab.say(f"together: {', '.join(names)}")
    try:
        compared = lab.compared(without, with_it)
    except ScenarioError as error:
        return Combination(names, state, "failed", predicted, alone, reason=error.messages[0])
    together = compared.gains[lab.headline]
    singles = product([row.compared.gains[lab.headline] for row in rows if row.compared])
    return Combination(
        names=names,
        state=state,
        status="measured",
        predicted=predicted,
        predicted_product=alone,
        together=together,
        product=singles,
        excess=over(together, singles),
        numbers=compared.numbers,
    )
