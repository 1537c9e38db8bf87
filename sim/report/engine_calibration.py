"""An engine profile fitted to load tests, on a terminal: what its host takes, and each test before and after."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from sim.fitting.bench_file import CalibratedEngine, Compared
from sim.report.tables import Column, fitted

#: Ends of an interval this far apart (as a ratio) mean that the tests do not say.
WIDE = 3.0


def print_engine_calibration(console: Console, calibration: CalibratedEngine, out: str) -> None:
    """Costs with intervals, then the load tests."""
    fit = calibration.fitted
    costs = fit.profile.costs(calibration.ranks)
    console.print(Text.assemble(("Calibrated engine ", "bold"), fit.profile.name, f", from {calibration.prior.name}"))
    low, high = fit.intervals["step"]
    value = fit.factors.step
    ends = f"{costs.per_step_ns * low / value / 1e6:.1f}-{costs.per_step_ns * high / value / 1e6:.1f}"
    hidden = f"{costs.hidden_share:.0%} of the host's time can hide behind the device"
    console.print(Text(f"  host of a step {costs.per_step_ns / 1e6:.1f} ms ({ends}); {hidden}", style="dim"))
    console.print(
        Text(
            f"  of each request {costs.per_request_ns / 1e3:.0f} us; admission {costs.admission_ns / 1e6:.0f} ms; "
            f"device steps {costs.device_scale:.2f} of the hardware profile's",
            style="dim",
        )
    )
    if high > WIDE * low:
        console.print(Text("  the device hides the host in these tests, so they bound it from above only", style="dim"))
    console.print()
    console.print(_table(calibration.compared, console.width))
    console.print(Text(f"take it: --set engine.profile={out} (in a scenario with workload.traffic)"))


def _table(compared: tuple[Compared, ...], width: int) -> object:
    def both(before: float, after: float, given: float | None) -> str:
        return "-" if given is None else f"{before / given - 1:+.0%} -> {after / given - 1:+.0%}"

    columns = [
        Column("load test", [c.test.label + ("" if c.fitted else " (saturated, not fitted)") for c in compared]),
        Column("TPOT ms", [f"{c.test.tpot_ms:.1f}" if c.test.tpot_ms else "-" for c in compared], right=True),
        Column("error", [both(c.before.tpot_ms, c.after.tpot_ms, c.test.tpot_ms) for c in compared], right=True),
        Column("TTFT ms", [f"{c.test.ttft_ms:.0f}" if c.test.ttft_ms else "-" for c in compared], right=True),
        Column("error ", [both(c.before.ttft_ms, c.after.ttft_ms, c.test.ttft_ms) for c in compared], right=True),
        Column("running", [f"{c.after.running:.1f}" for c in compared], right=True, rank=1),
    ]
    return fitted("Load tests: error with the profile it started from, and with the calibrated one", columns, width, [])
