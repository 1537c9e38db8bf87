"""Which switch of the best set gains what, and which pairs are not a sum: first, last, and Shapley.

Let v(S) be the step with the switches S of the best set on and the others off (what S lacks a need of, or what cannot
run with it, is off too). A switch i takes off

    first    v({}) - v({i})            on top of nothing
    last     v(B - i) - v(B)           from the best set B, all that needs it with it
    Shapley  mean over all orders of v(before i) - v(with i)

and the Shapley values sum to v({}) - v(B) (Shapley 1953). Exact is a sum over all subsets; switches that change nothing
first nor last are left out of it: what they do together is theirs, the mean of one order and its reverse. The
interaction of two switches is the mean over all S without them of

    [v(S) - v(S + i)] - [v(S + j) - v(S + i + j)]       (Grabisch and Roubens 1999, the weights of the Shapley index)

above 0 where the gain of one shrinks with the other (they overlap), below where it grows (they reinforce).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import combinations
from math import factorial, sqrt
from random import Random
from typing import Any, Literal

from scenarios.passes import Pass
from scenarios.passes.base import set_switch
from scenarios.passes.switches import all_off, passes_for, with_settings_of
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim.predict.best_set import NO_EFFECT
from sim.predict.gains import Gains, Progress, gains_of
from sim.predict.steps import Case
from sim.predict.variants import Variants

#: Switches up to which all subsets are played, and orders that are drawn beyond it.
EXACT, ORDERS_DRAWN = 10, 64
#: Share of the whole way that an interaction must have to be named; no more than so many are.
NAMED, MAX_NAMED = 0.01, 8


@dataclass(frozen=True, slots=True)
class Share:
    """One switch of the best set; what it takes off the step in us, above 0 where it helps. error_us: standard error of
    a Shapley value that orders were drawn for, 0 where it is exact."""

    switch: str
    value: str
    first_us: float
    last_us: float
    shapley_us: float
    error_us: float


@dataclass(frozen=True, slots=True)
class Interaction:
    """Two switches whose gains are no sum. overlap_us: by how much the gain of one shrinks, on the mean, where the
    other is on; below 0 it grows."""

    pair: tuple[str, str]
    overlap_us: float
    kind: Literal["overlap", "reinforce"]


@dataclass(frozen=True, slots=True)
class Attribution:
    """From nothing on to the best set. method: "exact" over all subsets, or "sampled". played: steps that were played.
    settings: `--set` pairs that lead from the scenario to the best set."""

    baseline_us: float
    best_us: float
    shares: tuple[Share, ...]
    interactions: tuple[Interaction, ...]
    method: Literal["exact", "sampled"]
    played: int
    settings: tuple[str, ...]


def attribution_of(case: Case, gains: Gains | None = None, progress: Progress = lambda share: None) -> Attribution:
    """Attribute the way to the best set of `case` to its switches.

    gains: as `gains_of` gives them for the case. progress: told the share that is done; what it raises stops it.
    """
    gains = gains or gains_of(case)
    game = _Game(case, gains)
    everything = frozenset(range(len(game.players)))
    firsts = [game.saved(frozenset({i})) for i in sorted(everything)]
    lasts = [game.saved(everything) - game.saved(everything - {i}) for i in sorted(everything)]
    smallest = NO_EFFECT * game.start_ns
    moving = [i for i in sorted(everything) if abs(firsts[i]) >= smallest or abs(lasts[i]) >= smallest]
    still = everything - set(moving)
    progress(0.1)

    def saved(players: frozenset[int]) -> int:
        return game.saved(players | still)

    if len(moving) <= EXACT:
        method: Literal["exact", "sampled"] = "exact"
        values, pairs = _exact(moving, saved, progress)
        errors = dict.fromkeys(moving, 0.0)
    else:
        method = "sampled"
        values, errors, pairs = _sampled(moving, saved, progress)
    # The game of `moving` starts from `still`: what those do together is theirs, so that all shares sum to the way.
    values |= _halves_of_two_orders(sorted(still), game.saved)
    shares = tuple(
        Share(
            item.switch,
            item.shown(item.value(game.best)),
            firsts[i] / 1000,
            lasts[i] / 1000,
            values.get(i, 0.0) / 1000,
            errors.get(i, 0.0) / 1000,
        )
        for i, item in enumerate(game.players)
    )
    whole = abs(saved(everything)) or 1
    named = sorted((pair for pair in pairs.items() if abs(pair[1]) >= NAMED * whole), key=lambda pair: -abs(pair[1]))
    interactions = tuple(
        Interaction((game.players[i].switch, game.players[j].switch), ns / 1000, "overlap" if ns > 0 else "reinforce")
        for (i, j), ns in named[:MAX_NAMED]
    )
    best_us = (game.start_ns - saved(everything)) / 1000
    return Attribution(
        baseline_us=game.start_ns / 1000,
        best_us=best_us,
        shares=shares,
        interactions=interactions,
        method=method,
        played=len(game.known),
        settings=gains.best_settings,
    )


def attribution_result(attribution: Attribution) -> dict[str, Any]:
    """The attribution as plain data, times in us: the part `attribution` of `whatif explain --json`."""
    return asdict(attribution)


class _Game:
    """What sets of switches of the best set take off the step, each played once."""

    def __init__(self, case: Case, gains: Gains) -> None:
        self._steps = Variants(case)
        start: Any = all_off(case.scenario, case.model)
        self._start: Scenario = start
        values = _best_values(case, gains)
        self.players: list[Pass] = [item for item in passes_for(case.model) if item.switch in values]
        self._values = [values[item.switch] for item in self.players]
        self.start_ns = self._steps.step_ns(self._start)
        self.known: dict[frozenset[int], int] = {}
        self._by_scenario: dict[Scenario, int] = {}
        self.best = self._scenario(frozenset(range(len(self.players))))

    def saved(self, players: frozenset[int]) -> int:
        """What they take off the step with nothing on, ns."""
        if players not in self.known:
            self.known[players] = self.start_ns - self._steps.step_ns(self._scenario(players))
        return self.known[players]

    def _scenario(self, players: frozenset[int]) -> Scenario:
        """Those of `players` on that can be: what lacks a need, or what something objects to, is off."""
        on = set(players)
        while True:
            scenario: Any = self._start
            for i in sorted(on):
                scenario = set_switch(scenario, self.players[i].switch, self._values[i])
            for i in sorted(on):
                scenario = with_settings_of(self.players[i], scenario)
            lacking = {i for i in on if self.players[i].missing(scenario)}
            if lacking:
                on -= lacking
                continue
            problem = self._steps.problem(scenario)
            if problem is None or not on:
                return scenario  # type: ignore[no-any-return]
            objecting = {i for i in on if self.players[i].switch == problem[0]}
            # A switch that is needed and absent is named where it would stand: the graph without moe_dispatch.
            on -= objecting or {max(on)}


def _best_values(case: Case, gains: Gains) -> dict[str, object]:
    """The value of each switch of the best set."""
    best = case.scenario
    pairs = {
        key.removeprefix("optimizations."): value for key, _, value in (s.partition("=") for s in gains.best_settings)
    }
    values: dict[str, object] = {}
    for item in passes_for(case.model):
        if item.switch not in gains.order:
            continue
        shown = pairs.get(item.switch)
        own = item.value(best)
        values[item.switch] = own if shown is None or item.shown(own) == shown else item.on
    return values


Saved = Callable[[frozenset[int]], int]


def _exact(
    players: Sequence[int], saved: Saved, progress: Progress
) -> tuple[dict[int, float], dict[tuple[int, int], float]]:
    """Shapley values and interactions, ns, over all subsets of `players`."""
    subsets = [frozenset(chosen) for size in range(len(players) + 1) for chosen in combinations(players, size)]
    for done, subset in enumerate(subsets):
        if done % 16 == 0:
            progress(0.1 + 0.9 * done / len(subsets))
        saved(subset)
    n = len(players)
    values = dict.fromkeys(players, 0.0)
    pairs = dict.fromkeys(combinations(players, 2), 0.0)
    for subset in subsets:
        size = len(subset)
        for i in players:
            if i not in subset:
                weight = factorial(size) * factorial(n - size - 1) / factorial(n)
                values[i] += weight * (saved(subset | {i}) - saved(subset))
        for i, j in pairs:
            if i not in subset and j not in subset:
                weight = factorial(size) * factorial(n - size - 2) / factorial(n - 1)
                pairs[i, j] += weight * _shrinks(saved, subset, i, j)
    return values, pairs


def _halves_of_two_orders(players: Sequence[int], saved: Saved) -> dict[int, float]:
    """What each of `players` adds on top of nothing, on the mean of one order and its reverse, ns."""
    values = dict.fromkeys(players, 0.0)
    for order in (players, players[::-1]):
        before: frozenset[int] = frozenset()
        for i in order:
            values[i] += (saved(before | {i}) - saved(before)) / 2
            before |= {i}
    return values


def _shrinks(saved: Saved, subset: frozenset[int], i: int, j: int) -> int:
    """By how much what i saves on top of `subset` is less where j is there too."""
    return (saved(subset | {i}) - saved(subset)) - (saved(subset | {i, j}) - saved(subset | {j}))


def _sampled(
    players: Sequence[int], saved: Saved, progress: Progress
) -> tuple[dict[int, float], dict[int, float], dict[tuple[int, int], float]]:
    """Shapley values with their standard errors from drawn orders, each with its reverse; interactions from both ends:
    of two that are alone, and of the last two."""
    random = Random(0)
    marginals: dict[int, list[float]] = {i: [] for i in players}
    for drawn in range(ORDERS_DRAWN // 2):
        progress(0.1 + 0.8 * drawn / (ORDERS_DRAWN // 2))
        order = random.sample(players, len(players))
        both: dict[int, int] = dict.fromkeys(players, 0)
        for one in (order, order[::-1]):
            before: frozenset[int] = frozenset()
            for i in one:
                both[i] += saved(before | {i}) - saved(before)
                before |= {i}
        for i in players:
            marginals[i].append(both[i] / 2)
    values = {i: sum(taken) / len(taken) for i, taken in marginals.items()}
    errors = {
        i: sqrt(sum((x - values[i]) ** 2 for x in taken) / (len(taken) - 1) / len(taken))
        for i, taken in marginals.items()
    }
    everything = frozenset(players)
    pairs = {
        (i, j): (_shrinks(saved, frozenset(), i, j) + _shrinks(saved, everything - {i, j}, i, j)) / 2
        for i, j in combinations(players, 2)
    }
    return values, errors, pairs
