"""How fast the prediction is: the cold command, one further what-if in a process, a 70B model, memory, the two players,
many ranks.

    python benchmarks/speed.py [--repeats N] [--json FILE]

Nothing here fails a build: the machine decides the numbers. Each is shown next to its bound and as a multiple of a loop
of plain Python that runs in between, so that runs on different or busy machines can be compared. Only the standard
library measures, and the project is imported after the commands have been measured: a child's peak memory starts with
that of the process it was forked from.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SEED, LARGE, RANKS = "qwen3_8b_decode", "llama_3_1_70b_w4a16_decode", "qwen3_32b_tp16_decode"
EXPERTS = "deepseek_v3_ep16_decode"
FORBIDDEN = ("torch", "torch_npu", "pandas", "scipy")


@dataclass(frozen=True)
class Row:
    """One result. values: of each repeat, in `unit`. bound: what the median should stay below, or None."""

    name: str
    unit: str
    values: list[float]
    bound: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return ""
        return "PASS" if self.median < self.bound else "over"


def reference_ms() -> float:
    """A fixed loop of what a simulator does most: integers, a dict and a list. Milliseconds of CPU time."""
    start = process_time()
    clock = 0
    ends: list[int] = []
    last: dict[int, int] = {}
    for i in range(200_000):
        clock = max(clock, last.get(i & 63, 0)) + (i * 2654435761 & 1023)
        last[i & 63] = clock
        ends.append(clock)
    assert len(ends) == 200_000
    return 1000 * (process_time() - start)


def timed_ms(work: Callable[[], object]) -> float:
    """CPU time of one call, milliseconds. Garbage of earlier calls is not paid for here."""
    gc.collect()
    start = process_time()
    work()
    return 1000 * (process_time() - start)


def child(code: str, *arguments: str) -> tuple[float, float, str]:
    """(CPU seconds, peak memory in MB, standard output) of a fresh interpreter that runs `code`."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": BYTECODE.name}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed command finds its modules compiled
    with TemporaryDirectory() as folder:
        shown = Path(folder) / "shown"
        with shown.open("wb") as out:
            command = [sys.executable, "-c", code, *arguments]
            process = subprocess.Popen(command, stdout=out, cwd=ROOT, env=environment)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{arguments} ended with {process.returncode}")
        # Linux counts kibibytes, macOS bytes.
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return usage.ru_utime + usage.ru_stime, peak / 1e6, shown.read_text(encoding="utf-8")


#: Where the commands find bytecode; the first one fills it.
BYTECODE = TemporaryDirectory()
COMMAND = "import cli, sys; cli.main()"
LIST_MODULES = """
import cli, sys
try:
    cli.main()
except SystemExit as stop:
    assert not stop.code
print("modules:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def cold_rows(repeats: int) -> Iterator[Row]:
    """The command in a fresh process, as a user runs it."""
    with TemporaryDirectory() as folder:
        answer, trace = str(Path(folder) / "answer.json"), str(Path(folder) / "trace.json")
        child(COMMAND, "run", SEED, "--json", answer)  # fills the caches of the disk and of bytecode
        what_ifs = len(json.loads(Path(answer).read_text(encoding="utf-8"))["gains"])
        runs = [child(COMMAND, "run", SEED) for _ in range(repeats)]
        yield Row(f"cold `whatif run`, {what_ifs} what-ifs alone and in the waterfall", "s", [r[0] for r in runs], 1.5)
        yield Row("  its peak memory", "MB", [r[1] for r in runs], 150)
        runs = [child(COMMAND, "run", LARGE, "--json", answer, "--trace", trace) for _ in range(repeats)]
        yield Row("cold `whatif run` of 70B with --json and --trace", "s", [r[0] for r in runs])
        yield Row("  its peak memory", "MB", [r[1] for r in runs], 150)
        runs = [child(COMMAND, "run", RANKS) for _ in range(repeats)]
        yield Row("cold `whatif run` of 16 ranks", "s", [r[0] for r in runs], 2)
        yield Row("  its peak memory", "MB", [r[1] for r in runs], 150)
        _, _, shown = child(LIST_MODULES, "run", SEED, "--json", answer, "--trace", trace)
        loaded = shown.rpartition("modules:")[2].split()
        yield Row(f"{', '.join(FORBIDDEN)} loaded by it", "", [float(len({*FORBIDDEN} & {*loaded}))], 1)


def warm_rows(repeats: int) -> Iterator[Row]:
    """What-ifs inside a process that has answered one question. Each repeat asks for a batch not seen before."""
    from scenarios.batches import reported_batch
    from scenarios.loader import load_scenario
    from sim.predict.predict import predict
    from sim.predict.scenario_result import case_of
    from sim.predict.steps import Case, step_ns

    for name, bound in ((SEED, 20.0), (LARGE, 60.0)):
        case = case_of(load_scenario(name))
        predict(case)
        scenario = case.scenario
        batches = iter(range(scenario.workload.batch + 1, 10_000))

        def changed(case: Case = case, batches: Iterator[int] = batches) -> Case:
            workload = case.scenario.workload.model_copy(update={"batch": next(batches)})
            return case.with_scenario(case.scenario.model_copy(update={"workload": workload}))

        def step(case: Case) -> int:
            return step_ns(case, reported_batch(case.scenario))

        def parts(case: Case) -> object:
            return predict(case).step

        def whole(case: Case) -> object:
            prediction = predict(case)
            return prediction.step, prediction.timeline, prediction.cold_start

        cases = [changed() for _ in range(repeats)]
        label = f"{case.model.name}, {case.model.layers} layers"
        yield Row(f"one further what-if: a step ({label})", "ms", [timed_ms(partial(step, c)) for c in cases], bound)
        cases = [changed() for _ in range(repeats)]
        yield Row("  step with its parts, TTFT, TPOT, memory", "ms", [timed_ms(partial(parts, c)) for c in cases], 10)
        cases = [changed() for _ in range(repeats)]
        yield Row("  and its timeline and cold start", "ms", [timed_ms(partial(whole, c)) for c in cases], bound)


def many_rows(repeats: int) -> Iterator[Row]:
    """Many what-ifs: of a Qwen3-8B's switches at random batches and contexts, all those of a scenario of many ranks,
    and a plan."""
    from random import Random

    from scenarios.batches import reported_batch
    from scenarios.loader import load_scenario
    from scenarios.passes.base import set_switch
    from scenarios.passes.switches import off_value, on_value, passes_for
    from sim.predict.predict import forbidden
    from sim.predict.scenario_result import case_of
    from sim.predict.steps import Case, step_ns

    case, random = case_of(load_scenario(SEED)), Random(0)

    def drawn() -> Case:
        """A state that can run. Streams are left out: their kernels share the device, which takes longer to play."""
        while True:
            workload = {"batch": random.choice((1, 2, 4, 8, 16)), "context_tokens": random.choice((128, 512, 2048))}
            scenario = case.scenario.model_copy(update={"workload": case.scenario.workload.model_copy(update=workload)})
            for item in passes_for(case.model):
                if not item.switch.startswith("overlap"):
                    on = random.random() < 0.5
                    value = on_value(item, scenario) if on else off_value(item, scenario, case.model)
                    scenario = set_switch(scenario, item.switch, value)
            if not forbidden(case.with_scenario(scenario)):
                return case.with_scenario(scenario)

    def play(cases: list[Case]) -> None:
        for one in cases:
            step_ns(one, reported_batch(one.scenario))

    play([drawn() for _ in range(300)])  # kernels are priced once
    each = [timed_ms(partial(play, [drawn() for _ in range(100)])) / 100 for _ in range(repeats)]
    yield Row("a step-level what-if of random switches (Qwen3-8B, one core)", "ms", each, 2)
    for name in (EXPERTS, RANKS, "llama_3_1_70b_tp4_pp2_decode"):
        runs = [child(COMMAND, "run", name)[0] for _ in range(max(1, repeats // 2))]
        yield Row(f"cold `whatif run {name}`", "s", runs, 2)
    for name, slo in ((RANKS, "ttft_ms=2000,tpot_ms=50"), (EXPERTS, "ttft_ms=3000,tpot_ms=60")):
        run = child(COMMAND, "plan", name, "--cards", "16", "--slo", slo)[0]
        yield Row(f"cold `whatif plan {name} --cards 16`", "s", [run], 20)


#: A grid over Qwen3-32B; `axes` says what varies next to what 12 points of it have each.
GRID = """
description: a benchmark
scenario: qwen3_32b_tp16_decode
grid:
  engine.tensor_parallel_size: [4, 8, 16]
  optimizations.weights: [bf16, w8a8]
  optimizations.kv.dtype: [auto, int8]
{axes}
"""
EACH = 12


def swept_s(axes: str) -> float:
    """A sweep on 2 processes, SQLite and Parquet included: half of the CPU time of all processes."""
    with TemporaryDirectory() as folder:
        grid = Path(folder) / "grid.yaml"
        grid.write_text(GRID.format(axes=axes), encoding="utf-8")
        return child(COMMAND, "sweep", str(grid), "--jobs", "2", "--out", str(Path(folder) / "out.parquet"))[0] / 2


def sweep_rows(repeats: int) -> Iterator[Row]:
    """10,000 points on 2 processes, from what 600 points take more than 120: where batch and context vary, and where
    prompts do, so that no two points have a prefill in common."""

    def axes(batches: int, key: str, values: list[int]) -> str:
        return f"  workload.batch: {list(range(1, batches + 1))}\n  {key}: {values}"

    contexts = [1024 + 500 * n for n in range(10)]
    prompts = [700 + 431 * n for n in range(10)]
    few, many = 1, 5
    for name, key, lengths in (
        ("batch and context", "workload.context_tokens", contexts),
        ("batch and prompt", "workload.input_tokens", prompts),
    ):
        swept_s(axes(few, key, lengths))
        values = []
        for _ in range(max(1, repeats // 3)):
            start = swept_s(axes(few, key, lengths))
            each = (swept_s(axes(many, key, lengths)) - start) / (EACH * len(lengths) * (many - few))
            values.append(start + each * (10_000 - EACH * len(lengths) * few))
        yield Row(f"10,000 configurations of a 32B model over {name} on 2 cores (extrapolated)", "s", values, 15)


def player_rows(repeats: int) -> Iterator[Row]:
    """The SimPy engine and its recurrence on the same plan."""
    from scenarios.batches import reported_batch
    from scenarios.build import build
    from scenarios.loader import load_scenario
    from sim.predict.scenario_result import case_of
    from sim.step import engine, recurrence
    from sim.step.host import make_plan
    from sim.step.schedule import launches

    case = case_of(load_scenario("qwen3_8b_910b2_eager"))
    batch = reported_batch(case.scenario)
    plan = make_plan(build(case.scenario, case.model, batch), case.hardware, case.conditions)
    assert engine.times(plan).end_ns == recurrence.total_ns(plan)
    slow = [timed_ms(lambda: engine.times(plan)) for _ in range(repeats)]
    # A single one is too short for the clock.
    fast = [timed_ms(lambda: [recurrence.times(plan) for _ in range(20)]) / 20 for _ in range(repeats)]
    yield Row(f"SimPy engine, {len(list(launches(plan))):,} kernels issued one by one", "ms", slow)
    yield Row("recurrence, the same plan", "ms", fast)
    yield Row("  engine / recurrence", "x", [statistics.median(slow) / statistics.median(fast)])


def table(rows: list[Row], reference: float) -> str:
    """The rows as text. x reference: the median over the reference loop's, for times."""
    lines = [f"{'':<66} {'median':>9} {'best':>9} {'':<4} {'x loop':>8} {'bound':>8}"]
    for row in rows:
        loops = {"s": 1000.0, "ms": 1.0}.get(row.unit)
        ratio = f"{row.median * loops / reference:.2f}" if loops else ""
        bound = f"{row.bound:.4g}" if row.bound is not None else ""
        numbers = f"{row.median:>9.3f} {min(row.values):>9.3f} {row.unit:<4} {ratio:>8} {bound:>8} {row.verdict}"
        lines.append(f"{row.name:<66} {numbers}")
    return "\n".join(line.rstrip() for line in lines)


def rank_rows(repeats: int) -> Iterator[Row]:
    """A captured step of 16 ranks that meet in collectives: its plans, and both players."""
    from scenarios.batches import reported_batch
    from scenarios.loader import load_scenario
    from sim.predict.scenario_result import case_of
    from sim.predict.steps import plans_of
    from sim.step import engine, ranks

    case = case_of(load_scenario(RANKS))
    batch = reported_batch(case.scenario)
    plans = plans_of(case, batch)
    name = f"{len(plans)} ranks of {case.model.layers} layers"
    yield Row(f"plans of {name}", "ms", [timed_ms(partial(plans_of, case, batch)) for _ in range(repeats)])
    yield Row("  SimPy engine", "ms", [timed_ms(partial(engine.times_of_ranks, plans)) for _ in range(repeats)])
    yield Row("  recurrence", "ms", [timed_ms(partial(ranks.total_ns, plans)) for _ in range(repeats)])


#: DeepSeek-V3 on 64 dies: whole expert parallelism over all of them (no two ranks are alike), and every expert sliced
#: over them (ranks that are alike without jitter, folded to one).
SPREAD = ("engine.tensor_parallel_size=8", "engine.data_parallel_size=8")
SLICED = (
    "engine.tensor_parallel_size=64",
    "engine.data_parallel_size=1",
    "engine.enable_expert_parallel=false",
)
ISSUED = {
    "captured": ("optimizations.graph=aclgraph",),
    "captured on 2 streams": ("optimizations.graph=aclgraph", "optimizations.overlap.shared_expert_stream=true"),
    "eager": ("optimizations.graph=eager",),
}


def many_rank_rows(repeats: int) -> Iterator[Row]:
    """A step of DeepSeek-V3 on 64 ranks from its program to its timeline. Each repeat has a seed, so jitter and
    experts, of its own."""
    from scenarios.batches import reported_batch
    from scenarios.loader import load_scenario
    from scenarios.timeline import Timeline
    from sim.predict.scenario_result import case_of
    from sim.predict.steps import Case, plans_of, program_of
    from sim.step import engine
    from sim.step.schedule import timeline

    def schedule(case: Case) -> Timeline:
        plans = plans_of(case, reported_batch(case.scenario))
        return timeline(plans[0], engine.times_of_ranks(plans)[0])

    def seeded(case: Case) -> Iterator[Case]:
        for seed in range(repeats):
            protocol = case.scenario.protocol.model_copy(update={"seed": seed})
            yield case.with_scenario(case.scenario.model_copy(update={"protocol": protocol}))

    for issued, sets in ISSUED.items():
        for spread, split in (("64 ranks", SPREAD), ("  folded", SLICED)):
            case = case_of(load_scenario(EXPERTS, (*split, *sets)))
            if split is SLICED:
                hw = case.hardware
                host = replace(hw.host, jitter_sigma=0.0, rank_skew_us=0.0)
                case = replace(case, hardware=replace(hw, host=host, kernel=replace(hw.kernel, jitter_sigma=0.0)))
            kernels = len(program_of(case.scenario, case.model, reported_batch(case.scenario)))
            times = [timed_ms(partial(schedule, one)) / 1000 for one in seeded(case)]
            yield Row(f"{spread}, DeepSeek-V3, {kernels:,} kernels {issued}", "s", times, 2 if split is SPREAD else 0.2)


#: DeepSeek-V3 on 16 dies in 4 stages of 4 ranks, whose host waits for the device after each op.
STAGED = (
    "engine.tensor_parallel_size=4",
    "engine.data_parallel_size=1",
    "engine.pipeline_parallel_size=4",
    "optimizations.graph=eager",
    "protocol.synchronize=op",
)


def stage_rows(repeats: int) -> Iterator[Row]:
    """A pipeline, op by op: the prediction, and once all its what-ifs, which took over two minutes when the plan of
    each rank was laid out."""
    from scenarios.loader import load_scenario
    from sim.predict.predict import predict
    from sim.predict.scenario_result import case_of, scenario_result
    from sim.predict.steps import Case

    case = case_of(load_scenario(EXPERTS, STAGED))

    def seeded(seed: int) -> Case:
        protocol = case.scenario.protocol.model_copy(update={"seed": seed})
        return case.with_scenario(case.scenario.model_copy(update={"protocol": protocol}))

    times = [timed_ms(partial(predict, seeded(seed))) / 1000 for seed in range(1, repeats + 1)]
    yield Row("4 stages of 4 ranks, DeepSeek-V3, op by op", "s", times, 4)
    yield Row("  and all its what-ifs", "s", [timed_ms(lambda: scenario_result(EXPERTS, STAGED)) / 1000], 30)


def file_rows(repeats: int) -> Iterator[Row]:
    """Reading a scenario and writing a trace."""
    from scenarios.loader import load_scenario
    from scenarios.trace import trace_text
    from sim.predict.predict import predict
    from sim.predict.scenario_result import case_of

    loads = [timed_ms(lambda: [load_scenario(SEED) for _ in range(20)]) / 20 for _ in range(repeats)]
    yield Row("loading a scenario", "ms", loads, 5)
    timeline = predict(case_of(load_scenario("qwen3_8b_910b2_eager"))).timeline
    texts = [timed_ms(partial(trace_text, timeline)) for _ in range(repeats)]
    yield Row(f"the trace of {len(timeline.spans):,} spans as text", "ms", texts, 160)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of a prediction beside their bounds.")
    parser.add_argument("--repeats", type=int, default=5, help="repeats of each measurement (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON too")
    given = parser.parse_args()
    rows: list[Row] = []
    loops: list[float] = []
    for part in (
        cold_rows,
        warm_rows,
        many_rows,
        sweep_rows,
        player_rows,
        rank_rows,
        many_rank_rows,
        stage_rows,
        file_rows,
    ):
        for row in part(given.repeats):
            rows.append(row)
            loops.append(reference_ms())
    reference = statistics.median(loops)
    print(table(rows, reference))
    print(f"loop: 200,000 rounds of plain Python, {reference:.1f} ms (median of {len(loops)} in between); CPU times")
    if given.json:
        results = [{**asdict(row), "median": row.median, "verdict": row.verdict} for row in rows]
        document = {"python": sys.version.split()[0], "reference_loop_ms": reference, "rows": results}
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
