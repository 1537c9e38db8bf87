"""An engine profile fitted to benchmarks of one deployment, with priors for what one benchmark cannot tell.

A benchmark gives TPOT, TTFT and throughput at one load; the number of running requests follows by Little's law. Fitted
are logarithms of five factors on the prior profile's numbers: host time of a step (with it that of each request), host
time of a request alone, the device's step, and the admission of a request. Their priors:

    host of a step    1.2    (a starved host pays ten times what a healthy one does)
    of a request      0.7    over that of a step; one benchmark leaves it where it is
    device            0.06   what full-graph steps of known settings miss by
    admission         0.8
    issuing           0.4    over the square root of that of a step (assumed: a host that is slow in one is slow in the
                             other, but not as much; of three deployments the square root misses by 1.1 to 1.6 times)

A benchmark whose requests are given is fitted to as the simulator serves them: the closed form, which the fit asks for
often, is off by the ratio that the two have at a first fit, and a second fit takes that out.

What is not measured stays at its prior: where the device hides the host, a benchmark says only that the host is no
slower, and the interval of the result says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from math import exp, log

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from scenarios.errors import ScenarioError
from scenarios.records import dataclass
from scenarios.serving.requests import Load
from sim.engines.costs import EngineCosts
from sim.engines.ends import ISSUE_SHARE
from sim.engines.profile import EngineFile, EngineProfile, RequestCosts, StepCosts
from sim.fitting.robust import scipy
from sim.hardware.profile import Number
from sim.serving.expected import Bench

Floats = NDArray[np.float64]
Residuals = Callable[[Floats], Floats]

#: Prior standard deviations of the five logarithms, in the order of `Factors`.
PRIORS = (1.2, 0.7, 0.06, 0.8, 0.4)
#: Relative errors of a benchmark's mean TPOT, TTFT and throughput between repeats.
TPOT_SIGMA, TTFT_SIGMA, THROUGHPUT_SIGMA = 0.02, 0.1, 0.03
#: Host factors, logarithms, that fits start from: a step that hides its host has no slope there.
STARTS = (-2.0, 0.0, 1.0, 2.0, 3.0)
#: A factor is inside its 90 % interval while twice the loss rises by no more than this (chi-square, one degree).
RISE = 2.706
LIMIT = 5.0
#: Largest miss of TTFT that pulls at a fit, logarithm.
MAX_TTFT_MISS = 0.5


@dataclass(frozen=True, slots=True)
class Measured:
    """One benchmark of a deployment; None where it does not say. throughput: output tokens/s. load: its requests."""

    bench: Bench
    tpot_ms: float | None
    ttft_ms: float | None
    output_throughput: float | None
    load: Load | None = None


@dataclass(frozen=True, slots=True)
class Factors:
    """What the prior profile's numbers are multiplied by. request: over and above `step`. issuing: over and above its
    power ISSUE_SHARE."""

    step: float = 1.0
    request: float = 1.0
    device: float = 1.0
    admission: float = 1.0
    issuing: float = 1.0

    @property
    def dispatch(self) -> float:
        """Of what issuing a step takes the host."""
        return float(self.issuing * self.step**ISSUE_SHARE)

    def on(self, costs: EngineCosts) -> EngineCosts:
        """`costs` with these factors."""
        return replace(
            costs,
            per_step_ns=round(costs.per_step_ns * self.step),
            per_request_ns=round(costs.per_request_ns * self.step * self.request),
            device_scale=costs.device_scale * self.device,
            admission_ns=round(costs.admission_ns * self.admission),
            dispatch_scale=costs.dispatch_scale * self.dispatch,
        )


@dataclass(frozen=True, slots=True)
class FittedEngine:
    """The profile, the factors, and the loss (half the sum of squares) at them."""

    profile: EngineProfile
    factors: Factors
    intervals: Mapping[str, tuple[float, float]]
    loss: float


def fit_engine(measured: Sequence[Measured], prior: EngineProfile, name: str, origin: str) -> FittedEngine:
    """The profile `name` that explains `measured` best, starting from `prior`; `origin` is written to each number.

    Raises ScenarioError where scipy is missing.
    """
    free = np.array(PRIORS)
    rows = list(measured)

    def residuals(point: Floats) -> Floats:
        return np.array([*_misses(rows, prior, _factors(point)), *(point / free)])

    best = min((_descended(residuals, start) for start in STARTS), key=lambda point: _loss(residuals, point))
    if any(row.load for row in rows):
        rows = [_as_served(row, _factors(best).on(prior.costs(row.bench.ranks))) for row in measured]
        best = _descended(residuals, float(best[0]))
    factors, intervals = _factors(best), _intervals(residuals, best)
    profile = _profile(prior, factors, intervals, name, origin)
    return FittedEngine(profile, factors, intervals, _loss(residuals, best))


def _as_served(row: Measured, engine: EngineCosts) -> Measured:
    """`row` in the closed form's terms: times what the closed form says over what serving its requests says."""
    if row.load is None:
        return row
    closed, served = row.bench.expect(engine), row.bench.simulate(engine, row.load)

    def moved(given: float | None, name: str) -> float | None:
        at_closed, at_served = getattr(closed, name), getattr(served, name)
        return given * at_closed / at_served if given and min(at_closed, at_served) > 0 else given

    return replace(
        row,
        tpot_ms=moved(row.tpot_ms, "tpot_ms"),
        ttft_ms=moved(row.ttft_ms, "ttft_ms"),
        output_throughput=moved(row.output_throughput, "output_throughput"),
    )


def _loss(residuals: Residuals, point: Floats) -> float:
    """Half the sum of squares."""
    return float(np.square(residuals(point)).sum()) / 2


def _descended(residuals: Residuals, start: float) -> Floats:
    """The nearest minimum of the loss from a host factor on. The origin is shifted, because differences are taken in
    proportion to the point."""
    shift = 10.0
    point = np.array([start, 0.0, 0.0, 0.0, 0.0]) + shift
    result = scipy().least_squares(
        lambda shifted: residuals(shifted - shift),
        point,
        bounds=(shift - LIMIT, shift + LIMIT),
        diff_step=1e-4,
        loss="linear",
    )
    return np.asarray(result.x) - shift


def _factors(point: Floats) -> Factors:
    return Factors(*(exp(float(value)) for value in point))


def _misses(measured: Sequence[Measured], prior: EngineProfile, factors: Factors) -> list[float]:
    """Logarithms of predicted over measured, in standard deviations."""
    misses: list[float] = []
    for row in measured:
        expected = row.bench.expect(factors.on(prior.costs(row.bench.ranks)))
        pairs = (
            (expected.tpot_ms, row.tpot_ms, TPOT_SIGMA),
            (_toward(expected.ttft_ms, row.ttft_ms), row.ttft_ms, TTFT_SIGMA),
            (expected.output_throughput, None if row.tpot_ms else row.output_throughput, THROUGHPUT_SIGMA),
        )
        misses += [log(max(value, 1e-9) / given) / sigma for value, given, sigma in pairs if given]
    return misses


def _toward(value: float, given: float | None) -> float:
    """TTFT, but never further from what is given than MAX_TTFT_MISS: prompts that came in a bunch say nothing."""
    if not given:
        return value
    return given * exp(max(-MAX_TTFT_MISS, min(MAX_TTFT_MISS, log(value / given))))


def _intervals(residuals: Residuals, best: Floats) -> dict[str, tuple[float, float]]:
    """By factor, the ends at which twice the loss has risen by RISE, the others at their best."""
    ends: dict[str, tuple[float, float]] = {}
    cost = _loss(residuals, best)
    for place, (factor, prior) in enumerate(zip(fields(Factors), PRIORS, strict=True)):
        reached = []
        for sign in (-1.0, 1.0):
            near, far = 0.0, 1.645 * prior + 0.01
            for _ in range(18):
                middle = (near + far) / 2
                point = best.copy()
                point[place] = np.clip(point[place] + sign * middle, -LIMIT, LIMIT)
                risen = 2 * (_loss(residuals, point) - cost)
                near, far = (middle, far) if risen < RISE else (near, middle)
            reached.append(exp(float(best[place]) + sign * near))
        ends[factor.name] = reached[0], reached[1]
    return ends


def _profile(
    prior: EngineProfile, factors: Factors, intervals: Mapping[str, tuple[float, float]], name: str, origin: str
) -> EngineProfile:
    """The prior's numbers multiplied, each with its interval and where it comes from."""
    file = prior.profile
    step, request = intervals["step"], intervals["request"]
    each = (factors.step * request[0], factors.step * request[1])
    sections = {
        "step": {f.name: _scaled(getattr(file.step, f.name), factors.step, step, origin) for f in fields(StepCosts)},
        "request": {
            f.name: _scaled(getattr(file.request, f.name), factors.step * factors.request, each, origin)
            for f in fields(RequestCosts)
        },
        "prefill": {"receive_us": _scaled(file.prefill.receive_us, factors.admission, intervals["admission"], origin)},
        "device": {
            "scale": _scaled(file.device.scale, factors.device, intervals["device"], origin),
            "dispatch_scale": _scaled(
                file.device.dispatch_scale,
                factors.dispatch,
                _times(factors.step**ISSUE_SHARE, intervals["issuing"]),
                origin,
            ),
        },
        "overlap": {
            "hidden_share": file.overlap.hidden_share.model_copy(
                update={"low": file.overlap.hidden_share.value, "high": file.overlap.hidden_share.value}
            )
        },
    }
    parts = {section: getattr(file, section).model_copy(update=numbers) for section, numbers in sections.items()}
    described = f"{prior.name}, fitted: {origin}"[:2000]
    fitted = file.model_copy(update={"name": name, "description": described, "extends": None, **parts})
    try:
        return EngineProfile(name, EngineFile.model_validate(fitted.model_dump()))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"][:2])) or "the profile"
        raise ScenarioError(
            [f"no engine fits these load tests: {field} would be {first['input']:.4g}; check their times and scenario"]
        ) from None


def _times(factor: float, ends: tuple[float, float]) -> tuple[float, float]:
    return factor * ends[0], factor * ends[1]


def _scaled(number: Number, factor: float, ends: tuple[float, float], origin: str) -> Number:
    values = [float(f"{float(number.value) * f:.4g}") for f in (factor, *ends)]
    return Number(value=values[0], source="fitted", origin=origin, low=min(values), high=max(values))
