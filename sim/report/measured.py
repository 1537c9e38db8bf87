"""The measured step next to the predicted one, for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from sim.report.formats import counted, ms, plain
from sim.report.run import print_run
from sim.report.served import served_part
from sim.report.tables import Column, fitted

#: Ops that are shown one by one.
MAX_OPS = 24
#: A CPU whose steps take so many times what the profile says, or so many times less, is another one.
OTHER_MACHINE = 1.6
#: What the times of ops are of, by `op_times` of the result (docs/measure.md).
OP_TIMES = {"kernel": "kernels alone", "call": "calls: mark to mark, the host's part included"}


def print_measured(console: Console, result: dict[str, Any]) -> None:
    """The prediction; then what the device did, how far the two are apart, the requests that it served, or every op of
    the step with both times."""
    print_run(console, result)
    measured = plain(result["measured"])
    errors, steady = measured["errors"], measured["reference_kernel"]
    console.print(Text.assemble((f"Measured on {measured['backend']}", "bold"), f"  {measured['device']}"))
    threads, repeats = counted(measured["threads"], "thread"), counted(measured["repeats"], "repeat")
    if line := other_machine(measured, result["scenario"]["hardware"]):
        console.print(Text(f"  {line}", style="yellow"))
    if measured["backend"] == "npu" and result["graph"] == "ge_graph":
        launches = counted(result["launches"], "launch", "es")
        line = f"  issued as {measured['units']} units, predicted as {launches}: aclgraph is issued as it is predicted"
        console.print(Text(line, style="yellow"))
    for line in (
        f"  torch {measured['torch']}, {threads}; {repeats} after {measured['warm_up']} to warm up",
        f"  step {_spread(measured['unmarked_step'])}; with a mark around each op {_spread(measured['marked_step'])}",
        f"  step without other programs, at {_speed(measured)}: {_spread(measured['steady_step'])}",
        f"  a fixed kernel in between {_spread(steady)}: how steady the machine was",
        f"  its thread had a CPU for {measured['on_cpu_share']:.0%} of the step; the rest went to other programs",
        f"  predicted against measured: step {errors['step']:+.0%}, ops together {errors['ops']:+.0%}, one op "
        f"{errors['op_median']:.0%} at the median and {errors['op_p90']:.0%} at the 90th percentile",
        f"  the same at {_speed(measured)}: step {errors['steady_step']:+.0%}, ops together "
        f"{errors['steady_ops']:+.0%}, one op {errors['steady_op_median']:.0%} at the median",
    ):
        console.print(Text(line, style="dim"))
    console.print(Text(f"  weights: {measured['weights']}", style="dim"))
    if stages := measured.get("stages"):
        rounds = ", ".join(_spread(stage) for stage in stages)
        console.print(Text(f"  the round on each stage: {rounds}", style="dim"))
    if measured["ranks"]["measured"] < measured["ranks"]["in_scenario"]:
        line = "  {measured} of {in_scenario} ranks measured: replicas that share nothing are one for all"
        console.print(Text(line.format(**measured["ranks"]), style="dim"))
    if experts := measured.get("experts"):
        smallest, most = min(experts["chosen"]), max(experts["chosen"])
        chosen = str(smallest) if smallest == most else f"{smallest} to {most}"
        line = f"  experts one by one: {experts['drawn']} drawn for the prediction, {chosen} chosen in a layer"
        console.print(Text(line, style="dim"))
    console.print()
    requests = served_part(measured, result.get("serving", {}), console.width)
    for part in requests:
        console.print(part)
    times = OP_TIMES[measured.get("op_times", "call")]
    console.print(_kinds(measured["kernels"], console.width, times))
    if not requests:  # of a load, the step is only what explains it
        console.print(_ops(measured["ops"], console.width, times))
    console.print(_conclusion(measured))


def other_machine(measured: dict[str, Any], hardware: str) -> str:
    """One line where the profile is plainly of another machine than the one that measured, with the command to run; ""
    where it may be of this one."""
    times = 1 / (1 + measured["errors"]["steady_step"])
    if measured["backend"] != "cpu" or 1 / OTHER_MACHINE < times < OTHER_MACHINE:
        return ""
    return (
        f"profile {hardware} is of another machine: here the step takes {times:.1f} times as long as it says. "
        "`whatif calibrate --backend cpu --out my_cpu.yaml`, then --set hardware=my_cpu.yaml"
    )


def _speed(measured: dict[str, Any]) -> str:
    """At which speed of the machine steady times are given."""
    scale = measured["scaled_by"]
    return "this run's median speed" if scale == 1 else f"the speed of the calibration ({scale:.2f}x this run's time)"


def _spread(sample: dict[str, float]) -> str:
    return f"{ms(sample['median_us'])} ms ({ms(sample['low_us'])}-{ms(sample['high_us'])})"


def _ratio(predicted_us: float, measured_us: float) -> str:
    return f"{predicted_us / measured_us - 1:+.0%}" if measured_us else ""


def _conclusion(measured: dict[str, Any]) -> Any:
    """What was predicted and what was measured, once more where a reader's eye ends."""
    step = measured["steady_step"] if measured["backend"] == "cpu" else measured["unmarked_step"]
    error = measured["errors"]["steady_step" if measured["backend"] == "cpu" else "step"]
    how = "without other programs" if measured["backend"] == "cpu" else "by the wall clock"
    return Text.assemble(
        ("\nMeasured ", "bold"),
        f"step {_spread(step)} {how}; predicted {error:+.0%}; ops together {measured['errors']['ops']:+.0%}",
    )


def _kinds(rows: list[dict[str, Any]], width: int, times: str) -> Any:
    columns = [
        Column("kind", [row["kind"] for row in rows]),
        Column("form", [row["form"] for row in rows], rank=1),
        Column("count", [f"{row['count']:,}" for row in rows], right=True),
        Column("predicted us", [f"{row['predicted_us']:,.1f}" for row in rows], right=True),
        Column("measured us", [f"{row['total_us']:,.1f}" for row in rows], right=True),
        Column("error", [_ratio(row["predicted_us"], row["total_us"]) for row in rows], right=True),
    ]
    return fitted(f"Kinds by measured time, of {times}", columns, width)


def _ops(every: list[dict[str, Any]], width: int, times: str) -> Any:
    """The ops of the Program that differ most from their prediction, one a line; --json has all."""
    most = sorted(every, key=lambda row: -abs(row["predicted_us"] - row["measured_us"]))[:MAX_OPS]
    rows = sorted(most, key=lambda row: row["index"])
    columns = [
        Column("op", [str(row["index"]) for row in rows], right=True, rank=2),
        Column("layer", [str(row["layer"]) if row["block"] == "layers" else "" for row in rows], right=True),
        Column("name", [row["name"] for row in rows]),
        Column("form", [row["form"] for row in rows], rank=1),
        Column("predicted us", [f"{row['predicted_us']:,.1f}" for row in rows], right=True),
        Column("measured us", [f"{row['measured_us']:,.1f}" for row in rows], right=True),
        Column("10-90 %", [f"{row['low_us']:,.1f}-{row['high_us']:,.1f}" for row in rows], right=True, rank=3),
        Column("error", [_ratio(row["predicted_us"], row["measured_us"]) for row in rows], right=True),
    ]
    left = len(every) - len(rows)
    title = "Ops in the order of the Program" if not left else f"The {len(rows)} of {len(every)} ops that differ most"
    notes = [f"and {counted(left, 'more op')}: --json has all"] if left else []
    return fitted(f"{title}, times of {times}", columns, width, notes)
