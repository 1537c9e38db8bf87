"""What follows from a measured gain and from what it does to the numbers."""

from __future__ import annotations

from math import exp, log
from typing import Literal

from scenarios.exchange.bench import Errors
from scenarios.records import dataclass
from sim.experiment.statistics import Interval

Call = Literal["adopt", "do not adopt", "not distinguishable"]
Numerics = Literal["as before", "within limits", "not acceptable", "not checked"]

#: An error this many times that of the side without counts as rounding of another order, not as an approximation.
ROUNDING = 2.0
#: Largest mean divergence of the next token's distribution from the plain program's, nats: if all of it went against
#: the true token, perplexity would be 1 % higher. An assumed limit, as the next one is.
MAX_KL_NATS = 0.01
#: A likelihood that is worse by more than this is as bad as can be.
MAX_NATS = 100.0
#: Largest change of perplexity on trained weights.
MAX_PERPLEXITY = 0.005


@dataclass(frozen=True, slots=True)
class Checked:
    """What a switch does to the numbers. perplexity: with / without, None where the weights are not trained."""

    state: Numerics
    reason: str
    perplexity: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    call: Call
    reason: str


def check_numbers(without: Errors | None, with_it: Errors | None, unchecked: str, is_trained: bool) -> Checked:
    """Hold the errors of the side with the switch against those of the side without, both against the plain program."""
    if without is None or with_it is None:
        return Checked("not checked", f"the plain program cannot be asked: {unchecked}")
    if not with_it.is_finite:
        return Checked("not acceptable", "its logits are no numbers")
    if not without.is_finite:
        return Checked("not checked", "the logits without it are no numbers")
    perplexity = exp(min(with_it.nll_nats - without.nll_nats, MAX_NATS)) if is_trained else None
    judged = f"relative error {with_it.relative:.1e} for {without.relative:.1e} without"
    if with_it.relative <= ROUNDING * without.relative:
        return Checked("as before", judged, perplexity)
    if with_it.kl_nats > MAX_KL_NATS:
        what = f"{with_it.kl_nats:.2g} nats of divergence, more than {MAX_KL_NATS:g}"
        return Checked("not acceptable", f"{judged}; {what}", perplexity)
    if perplexity is not None and perplexity > 1 + MAX_PERPLEXITY:
        what = f"perplexity {perplexity - 1:+.2%}, more than {MAX_PERPLEXITY:+.1%}"
        return Checked("not acceptable", f"{judged}; {what}", perplexity)
    return Checked("within limits", f"{judged}; {with_it.kl_nats:.1e} nats of divergence", perplexity)


def decide(gain: Interval, floor: float, numbers: Checked, trade_off: str = "") -> Verdict:
    """floor: |ln ratio| that two equal sides differ by; no smaller gain can be distinguished from none.

    trade_off: what else the switch changes, for the reason. Numbers that are not acceptable decide whatever the speed.
    """
    said = f"{gain.value:.3f}x ({gain.low:.3f}-{gain.high:.3f})"
    tail = f"; {trade_off}" if trade_off else ""
    if numbers.state == "not acceptable":
        return Verdict("do not adopt", f"{numbers.reason}{tail}")
    if numbers.state == "not checked":
        return Verdict("do not adopt", f"{said}, but its output is not checked: {numbers.reason}{tail}")
    if abs(log(gain.value)) <= floor:
        return Verdict("not distinguishable", f"{said}: equal sides differ by up to {exp(floor) - 1:.1%}{tail}")
    if gain.low > 1:
        return Verdict("adopt", f"{said}{tail}")
    if gain.high < 1:
        return Verdict("do not adopt", f"{said}: it costs time{tail}")
    return Verdict("not distinguishable", f"{said}: 1 lies inside{tail}")


def floor_of(control: Interval) -> float:
    """|ln| of the farther end of the control's interval: what two equal sides may differ by."""
    return max(abs(log(control.low)), abs(log(control.high)))
