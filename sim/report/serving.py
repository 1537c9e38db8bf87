"""Served requests as a person reads them: the words of `vllm bench serve`, then what limits it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from sim.report.formats import paragraph
from sim.report.tables import Column, fitted

#: Latencies of a `serving` block, and what they are called.
SPREADS = (
    ("ttft_ms", "TTFT (from arrival)"),
    ("tpot_ms", "TPOT"),
    ("itl_ms", "ITL"),
    ("e2el_ms", "E2EL"),
    ("queue_ms", "queue"),
)
#: A smaller share of time is not worth a line.
NOTABLE = 0.01
#: Instances of one role whose use is listed.
MAX_INSTANCES = 8


def serving_part(result: dict[str, Any], width: int) -> list[RenderableType]:
    """The part of a run's report about its traffic; nothing where it has none."""
    serving = result.get("serving")
    return [_head(serving), _latencies(serving, width), _why(serving)] if serving else []


def serving_explained(result: dict[str, Any], width: int) -> list[RenderableType]:
    """Of an explanation: what limits the traffic, and what each optimisation is worth at equal SLO."""
    serving = result.get("serving")
    if not serving:
        return []
    return [Text("Serving", style="bold"), _why(serving), *_at_slo(serving.get("at_slo"), width)]


def _at_slo(compared: dict[str, Any] | None, width: int) -> list[RenderableType]:
    if not compared:
        return []
    shown = [row for row in compared["rows"] if row["verdict"] != "not applicable"]
    columns = [
        Column("setting", [row["setting"] for row in shown]),
        Column("now", [row["state"] for row in shown]),
        Column("gain a card", [f"{row['gain']:.2f}x" for row in shown], right=True),
        Column("verdict", [row["verdict"] for row in shown]),
        Column("requests/s", [f"{row['rate']:.2f}" for row in shown], right=True, rank=1),
        Column("cards", [f"{row['cards']}" for row in shown], right=True, rank=1),
        Column("limit there", [row["limit"] for row in shown], rank=2),
    ]
    note = (
        "gain: highest rate per card with it over that without it; requests/s: of the variant, which has it where the "
        "scenario has not, and lacks it where it has"
    )
    more = next((row for row in shown if row["setting"].startswith("engine.tensor_parallel_size")), None)
    if more and compared["rate"]:
        note += f". Twice the cards for each replica buy {more['rate'] / compared['rate'] - 1:+.0%} of the rate"
    title = f"At equal SLO: {compared['rate']:.2f} requests/s on {compared['cards']} cards as it stands"
    if compared["cards"] == 1:
        title = title.replace("1 cards", "1 card")
    return [fitted(title, columns, width, [note])]


def _head(serving: dict[str, Any]) -> RenderableType:
    slo = f", {serving['request_goodput']:.2f} within the SLO" if serving["highest_rate"] else ""
    rejected = f", {serving['rejected']:,} rejected" if serving["rejected"] else ""
    counted = round(serving["request_throughput"] * serving["duration_s"])
    past = f", {counted:,} of them past the warm-up," if counted < serving["completed"] else ""
    lines: tuple[str, ...] = (
        f"{serving['completed']:,} requests completed{past} in {serving['duration_s']:,.1f} s{rejected}, "
        f"{serving['preemptions']:,} preemptions, {serving['steps']:,} steps, "
        f"{serving['mean_running']:.1f} requests in a mean step",
        f"{serving['request_throughput']:.2f} requests/s{slo}; {serving['output_throughput']:,.0f} output tokens/s, "
        f"{serving['total_token_throughput']:,.0f} tokens/s in all",
        f"KV cache {serving['kv']['usage_peak']:.0%} full at most, {serving['kv']['hit_rate']:.0%} of prompt tokens "
        "found in it",
    )
    lines += tuple(_instances(serving))
    return Group(Text("Serving", style="bold"), *(paragraph(line) for line in lines), Text())


def _instances(serving: dict[str, Any]) -> Iterator[str]:
    """How several engines shared the work, by role."""
    for role, imbalance in serving.get("imbalance", {}).items():
        of_role = [use for use in serving["instances"] if use["role"] == role]
        busy = ", ".join(f"{use['busy_share']:.0%}" for use in of_role[:MAX_INSTANCES])
        more = ", ..." if len(of_role) > MAX_INSTANCES else ""
        uneven = f"; the busiest {imbalance:.2f} times the mean" if len(of_role) > 1 else ""
        wait = ""
        if role == "prefill":
            wait = f"; KV arrives {serving['transfer_wait_ms']:,.1f} ms after a prefill"
        yield f"{role} x {len(of_role)}: in steps {busy}{more} of the time{uneven}{wait}"


def _latencies(serving: dict[str, Any], width: int) -> RenderableType:
    rows = [serving[key] for key, _ in SPREADS]
    columns = [
        Column("ms", [label for _, label in SPREADS]),
        Column("mean", [f"{row['mean']:,.1f}" for row in rows], right=True),
        Column("interval", [f"{row['low']:,.1f}-{row['high']:,.1f}" for row in rows], rank=1),
        *(Column(key, [f"{row[key]:,.1f}" for row in rows], right=True) for key in ("p50", "p90", "p99")),
    ]
    engine = serving["engine"]
    note = (
        f"engine {engine['profile']} (worst source: {engine['source']}): "
        f"{engine['per_step_us'] / 1000:,.1f} ms per step, "
        f"{engine['per_request_us']:,.0f} us per running request, {engine['hidden_us'] / 1000:,.1f} ms of a mean step "
        "hidden behind the device"
    )
    return fitted("Latencies of requests", columns, width, [note])


def _why(serving: dict[str, Any]) -> RenderableType:
    lines: list[RenderableType] = [
        Text.assemble("Limited by: ", (serving["limit"], "bold red")),
        paragraph(serving["evidence"]),
    ]
    highest = serving["highest_rate"]
    if highest:
        missed = f" ({highest['missed'].removesuffix('_ms').upper()} is missed)" if highest["missed"] else ""
        above = f"; above it the limit is {highest['limit']}{missed}" if highest["limit"] else ""
        lines.append(paragraph(f"highest rate under the SLO: {highest['rate']:.2f} requests/s{above}"))
    lines += [paragraph(line) for line in _captured(serving.get("captures"))]
    return Group(*lines, Text())


def _captured(captures: dict[str, Any] | None) -> Iterator[str]:
    """What capturing other sizes would save; nothing where it is below a percent."""
    if not captures:
        return
    if captures["eager_share"]:
        yield f"{captures['eager_share']:.0%} of decode steps are larger than every captured size and run op by op"
    lost = captures["padding_share"] - captures["proposed_padding_share"]
    if lost >= NOTABLE:
        sizes = ", ".join(map(str, captures["sizes"]))
        yield (
            f"padding to captured sizes costs {captures['padding_share']:.1%} of decode steps, with "
            f"engine.cudagraph_capture_sizes=[{sizes}] {captures['proposed_padding_share']:.1%} "
            f"({captures['budget']} sizes may be captured)"
        )
