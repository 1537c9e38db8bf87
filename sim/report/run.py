"""Results as a person reads them on a terminal: plain tables, bars and sentences, drawn from the result documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.predict.device_terms import NOT_ON_A_GPU, spoken
from sim.predict.gains import NO_RATIO
from sim.report.attribution import attribution_part
from sim.report.formats import (
    BAR_WIDTH,
    STEP_BAR_WIDTH,
    bar,
    bar_pair,
    counted,
    ms,
    paragraph,
    plain,
    share_bar,
    size,
)
from sim.report.overlap import overlap_lines
from sim.report.serving import serving_explained, serving_part
from sim.report.tables import Column, fitted

TOP_KERNELS, TOP_KERNELS_EXPLAINED = 10, 20
TOP_ADVICE = 5
#: A gain that the report rounds away is not worth a line of advice.
WORTH_TRYING = 1.005

_PARTS = (
    ("computing_us", "computing", "green", "█"),
    ("communication_not_overlapped_us", "communication", "magenta", "▓"),
    ("free_us", "free", "yellow", "░"),
)
_ENGINES = (
    ("python_thread", "Python"), ("launch_thread", "launch thread"), ("cube", "cube"), ("vector", "vector"),
    ("hbm", "HBM"), ("ai_cpu", "AI CPU"),
)  # fmt: skip
_MEMORY = (
    ("weights_bytes", "weights"), ("kv_cache_bytes", "KV cache"), ("activations_bytes", "activations"),
    ("graph_pool_bytes", "graph"), ("runtime_bytes", "runtime"),
    ("hccl_buffers_bytes", "HCCL buffers"),
)  # fmt: skip
_VERDICT_STYLE = {"gain": "green", "loss": "red"}


def print_run(console: Console, result: dict[str, Any]) -> None:
    """The whole answer of `whatif run`: how long, where the time goes, what to try; then the tables behind it."""
    shown, width = in_words(plain(result)), console.width
    for part in (
        _head(shown),
        *serving_part(shown, width),
        _metrics(shown),
        _step(shown),
        *_overlap(shown),
        _next(shown, width),
        _kernels(shown, width, TOP_KERNELS),
        _gains(shown, width),
        _room(shown),
    ):
        console.print(part)


def print_explain(console: Console, result: dict[str, Any]) -> None:
    """Why, and what to try: the answer of `whatif explain`."""
    shown, width = in_words(plain(result)), console.width
    for part in (
        _head(shown),
        _step(shown),
        *_overlap(shown),
        _next(shown, width),
        _limits(shown, width),
        *serving_explained(shown, width),
        _kernels(shown, width, TOP_KERNELS_EXPLAINED),
        _gains(shown, width),
        *attribution_part(shown, width),
    ):
        console.print(part)


def in_words(result: dict[str, Any]) -> dict[str, Any]:
    """The result with its bounds and its bottleneck in the words of its device."""
    device = result.get("device", "npu")  # results written before there were others say nothing
    bottleneck = result["bottleneck"]
    limits = {spoken(name, device): us for name, us in bottleneck["limits_us"].items()}
    kernels = [{**row, "bound": spoken(row["bound"], device)} for row in result["kernels"]]
    named = {**bottleneck, "name": spoken(bottleneck["name"], device), "limits_us": limits}
    return {**result, "bottleneck": named, "kernels": kernels}


def _head(result: dict[str, Any]) -> RenderableType:
    scenario, batch, workload = result["scenario"], result["batch"], result["scenario"]["workload"]
    title = Text.assemble(("\n" + scenario["name"], "bold"), f"  {scenario['description']}")
    asked = scenario["optimizations"]["graph"]
    graph = result["graph"] if asked == result["graph"] else f"{result['graph']} ({asked} does not cover this step)"
    requests = counted(batch["requests"], "request")
    facts = (
        f"{scenario['model']} on {result['hardware']} · {batch['phase']} step of {requests}, "
        f"{counted(batch['tokens'], 'token')} · {workload['input_tokens']:,} in / {workload['output_tokens']:,} out · "
        f"weights {scenario['optimizations']['weights']} · graph {graph}"
    )
    sources = ", ".join(f"{n} {source}" for source, n in result["provenance"]["sources"].items())
    device = "measured below" if "measured" in result else "no device was used"
    kind = f"predicted, {device}; numbers behind it: {sources}"
    notes = [Text(note, style="dim") for note in result["notes"]]
    return Group(title, Text(facts, style="dim"), *notes, Text(kind, style="dim"), Text())


def _metrics(result: dict[str, Any]) -> RenderableType:
    def shown(key: str, unit: str, digits: int) -> str:
        value, low, high = (result["metrics"][key][end] for end in ("value", "low", "high"))
        interval = f" ({low:,.{digits}f}-{high:,.{digits}f})" if low != high else ""
        return f"{value:,.{digits}f} {unit}{interval}"

    table = Table.grid(padding=(0, 3, 0, 0))
    for style in ("", "bold", "", "bold"):
        table.add_column(style=style)
    requests = result["scenario"]["workload"]["batch"]
    whose = "one request alone" if requests == 1 else f"mean of {requests:,} at once"
    digits = 2 if result["metrics"]["ttft_ms"]["value"] < 10_000 else 0
    ttft = Text.assemble(shown("ttft_ms", "ms", digits), (f", {whose}", "not bold dim"))
    table.add_row("TPOT", shown("tpot_ms", "ms", 2), "TTFT", ttft)
    table.add_row("decoding", shown("decode_throughput", "tokens/s", 0), "E2EL", shown("e2el_ms", "ms", 0))
    table.add_row(
        "output",
        shown("output_throughput", "tokens/s", 0),
        "memory",
        size(result["metrics"]["peak_memory_bytes"]["value"]),
    )
    return Group(table, *_in_engine(result))


def _in_engine(result: dict[str, Any]) -> list[RenderableType]:
    """TPOT as a client of an engine sees it; nothing on other devices and in results written before it was there."""
    served = result.get("in_engine")
    if not served:
        return []
    tpot, host = served["tpot_ms"], served["host_ms"]
    text = (
        f"TPOT is the step alone; in an engine {tpot['value']:,.2f} ms ({tpot['low']:,.2f}-{tpot['high']:,.2f}), for "
        f"the host of engine profile {served['profile']} needs {host['value']:,.1f} ms a step "
        f"({host['low']:,.1f}-{host['high']:,.1f})"
    )
    return [Text(text, style="dim")]


def _speculation(result: dict[str, Any]) -> Iterable[RenderableType]:
    """What drafts yield and cost, of a step that verifies some."""
    drafts = result.get("speculation")
    if drafts:
        pays = "times as fast" if drafts["gain"] >= 1 else "times as fast: it loses"
        yield paragraph(
            f"speculation by {drafts['method']}, {counted(drafts['drafted_tokens'], 'token')} drafted: "
            f"{drafts['tokens_per_step']:.2f} tokens a step (acceptance {drafts['acceptance_source']}); "
            f"verifying {ms(drafts['verify_us'])} ms and drafting {ms(drafts['draft_us'])} ms, without speculation "
            f"{ms(drafts['plain_us'])} ms for one token: {drafts['gain']:.2f} {pays}"
        )


def _shares(bottleneck: dict[str, Any], device: str) -> Iterable[RenderableType]:
    """The parts of the step, of a percent and more; results written before there were shares have none."""
    shares = bottleneck.get("shares", {})
    if shares:
        said = " · ".join(f"{spoken(part, device)} {share:.0%}" for part, share in shares.items() if share >= 0.01)
        yield paragraph(said, "dim")


def _step(result: dict[str, Any]) -> RenderableType:
    step, bottleneck = result["step"], result["bottleneck"]
    total = step["total_us"]
    line = Text.assemble("\n", (f"Step {ms(total)} ms", "bold"), "  ")
    for key, _, style, glyph in _PARTS:
        line.append(bar(step[key] / total, STEP_BAR_WIDTH, glyph), style=style)
    parts = "  ".join(
        f"{label} {ms(step[key])} ms ({step[key] / total:.0%})" for key, label, _, _ in _PARTS if step[key]
    )
    device = result.get("device", "npu")
    engines = [engine for engine in _ENGINES if device != "cuda" or engine[0] not in NOT_ON_A_GPU]
    busy = "  ".join(f"{spoken(label, device)} {result['busy'][key]:.0%}" for key, label in engines)
    counts = (
        f"{counted(result['kernel_count'], 'kernel')}, "
        f"{counted(result['launches'], 'host launch', 'es')}, "
        f"{result['hbm_bytes'] / 1e9:.2f} GB of HBM traffic ({result['global_memory_bytes'] / 1e9:.2f} GB with L2)"
    )
    return Group(
        line,
        paragraph(parts),
        *_pipeline(result["pipeline"]),
        paragraph(f"busy: {busy}", "dim"),
        paragraph(counts, "dim"),
        Text(),
        Text.assemble("Bottleneck: ", (bottleneck["name"], "bold red")),
        paragraph(bottleneck["evidence"]),
        *_shares(bottleneck, device),
        *_speculation(result),
        Text(),
    )


def _pipeline(pipeline: dict[str, Any] | None) -> list[RenderableType]:
    """Stages, what is in flight, and the bubble; nothing where there is one stage."""
    if pipeline is None:
        return []
    stages = pipeline["stages"]
    layers = "+".join(str(stage["layers"]) for stage in stages)
    bubbles = ", ".join(ms(stage["bubble_us"]) for stage in stages)
    flying = counted(pipeline["micro_batches"], "micro-batch", "es")
    text = (
        f"pipeline of {len(stages)} stages ({layers} layers), {flying}: "
        f"bubble {ms(pipeline['bubble_us'])} ms ({pipeline['bubble_share']:.0%}) a stage, {bubbles} ms by stage"
    )
    return [paragraph(text)]


def _overlap(result: dict[str, Any]) -> list[RenderableType]:
    """Nothing where nothing overlaps; results written before overlaps were counted have none either."""
    lines = overlap_lines(result.get("overlaps", ()))
    return [Text("Overlap", style="bold"), *map(paragraph, lines), Text()] if lines else []


def _next(result: dict[str, Any], width: int) -> RenderableType:
    advice = [item for item in result["advice"] if item["ratio"] >= WORTH_TRYING][:TOP_ADVICE]
    text = Text.assemble(("Try next", "bold"), "\n")
    if not advice:
        return text.append("  nothing: no optimisation that is off here is predicted to help\n")
    longest = max((len(item["why"]) for item in advice if len(item["settings"]) == 1), default=0)
    for item in advice:
        indent = " " * 10
        options = [f"--set {pair}" for pair in item["settings"]]
        lines = _broken(options, width - len(indent))
        ends = f"{item['low']:.2f}-{item['high']:.2f}" if "low" in item else ""
        first = f"  {item['ratio']:5.2f}x  {f'({ends})' if ends else '':<13}  {item['why']:<{longest}}  "
        if len(lines) == 1 and len(first) + len(lines[0]) <= width:
            text.append(f"{first}{lines[0]}\n")
        else:
            text.append("".join((first.rstrip() + "\n", *(f"{indent}{line}\n" for line in lines))))
    return text


def _broken(options: list[str], width: int) -> list[str]:
    """Options in lines of at most `width`, each but the last with the backslash that lets a shell read on."""
    lines = [options[0]]
    for option in options[1:]:
        if len(lines[-1]) + 1 + len(option) + 2 <= width:
            lines[-1] += f" {option}"
        else:
            lines[-1] += " \\"
            lines.append(option)
    return lines


def _limits(result: dict[str, Any], width: int) -> RenderableType:
    limits = sorted(result["bottleneck"]["limits_us"].items(), key=lambda item: (-item[1], item[0]))
    total = sum(us for _, us in limits) or 1.0
    columns = [
        Column("limit", [name for name, _ in limits]),
        Column("ms", [ms(us) for _, us in limits], right=True),
        Column("of kernel time", [share_bar(us / total, width) for _, us in limits]),
    ]
    return fitted("Kernel time by what limits it", columns, width)


def _kernels(result: dict[str, Any], width: int, most: int) -> RenderableType:
    rows, rest = result["kernels"][:most], result["kernels"][most:]
    columns = [
        Column("op type", [r["op_type"] for r in rows]),
        Column("kind", [r["kind"] for r in rows], rank=5),
        Column("count", [f"{r['count']:,}" for r in rows], right=True),
        Column("total us", [f"{r['total_us']:,.1f}" for r in rows], right=True),
        Column("each us", [f"{r['total_us'] / r['count']:,.2f}" for r in rows], right=True, rank=1),
        Column("of step", [share_bar(r["share"], width) for r in rows]),
        Column("bound", [r["bound"] for r in rows]),
        Column("GB/s", [f"{r['gbps']:,.0f}" for r in rows], right=True, rank=3),
        Column("TFLOPS", [f"{r['tflops']:.1f}" if r["tflops"] >= 0.05 else "" for r in rows], right=True, rank=4),
        Column("roofline", [f"{r['roofline_share']:.0%}" for r in rows], right=True, rank=2),
    ]
    notes = []
    if rest:
        count, us = sum(r["count"] for r in rest), sum(r["total_us"] for r in rest)
        notes = [f"and {counted(len(rest), 'more type')}: {counted(count, 'call')}, {us:,.1f} us"]
    return fitted(f"Kernels by time ({counted(result['kernel_count'], 'call')})", columns, width, notes)


def _gains(result: dict[str, Any], width: int) -> RenderableType:
    fall, gains = result["waterfall"], _as_they_fall(result)
    widest = max((abs(g["waterfall_us"]) for g in gains), default=0.0) or 1.0
    best = [g.get("in_best", True) for g in gains]
    columns = [
        Column("optimisation", [f"{g['pass']}={g['value']}" for g in gains]),
        Column("now", [g["state"] for g in gains], rank=2),
        Column("alone", [f"{g['alone_ratio']:.3f}x" if _applies(g) else "-" for g in gains], right=True),
        Column("interval", [f"{g['low']:.3f}-{g['high']:.3f}" if _applies(g) else "" for g in gains], rank=3),
        Column("verdict", [_verdict(g) for g in gains]),
        Column(
            "change ms",
            [ms(-g["waterfall_us"], signed=True) if on else "" for g, on in zip(gains, best, strict=True)],
            right=True,
        ),
        Column(
            "",
            [
                bar_pair(-g["waterfall_us"] / widest, width) if on else "apart"
                for g, on in zip(gains, best, strict=True)
            ],
            rank=1,
        ),
    ]
    title = (
        f"Optimisations: step of {_state(fall, 'baseline')} with none, {_state(fall, 'scenario')} here, "
        f"{_state(fall, 'target')} at best"
    )
    notes = [f"{g['pass']}: {g['verdict']}, {g['reason']}" for g in gains if g["reason"]]
    if settings := fall.get("best_settings"):
        notes.append(f"from here to the best set: {' '.join(f'--set {pair}' for pair in settings)}")
    notes.append(
        "alone: step without it / step with it, all else as here. change: of the step, when those of the best set are "
        "switched on from top to bottom; the changes sum to the way from none to the best. apart: not in the best set. "
        "*: its verdict alone is not what its place here says."
    )
    return fitted(title, columns, width, notes)


def _as_they_fall(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The gains in the order of the waterfall, then the others."""
    order = result["waterfall"].get("order", [])  # results written before there was one have that of the list
    return sorted(result["gains"], key=lambda g: order.index(g["pass"]) if g["pass"] in order else len(order))


def _verdict(gain: dict[str, Any]) -> Text:
    star = "*" if gain.get("marked") else ""
    return Text(gain["verdict"] + star, style=_VERDICT_STYLE.get(gain["verdict"], "dim"))


def _state(fall: dict[str, Any], name: str) -> str:
    """`13.493 ms`, and whether a state with that time cannot run."""
    return f"{ms(fall[f'{name}_us'])} ms{'' if fall.get(f'{name}_fits', True) else ' (does not fit)'}"


def _applies(gain: dict[str, Any]) -> bool:
    return gain["verdict"] not in NO_RATIO


def _room(result: dict[str, Any]) -> RenderableType:
    memory, capacity, cold = result["memory"], result["capacity"], result["cold_start"]
    usable = memory["usable_bytes"]
    labels = [(key, spoken(label, result.get("device", "npu"))) for key, label in _MEMORY]
    running, most = capacity["max_running_requests"], result["scenario"]["engine"]["max_num_seqs"]
    whose = f" on the fullest of {len(result['pipeline']['stages'])} stages" if result["pipeline"] else ""
    head = Text.assemble((f"Memory {size(memory['total_bytes'])} of {size(usable)} usable{whose}", "bold"), "  ")
    head.append(bar(memory["total_bytes"] / usable, 2 * BAR_WIDTH), style="cyan")
    layouts = ", ".join(
        f"{name.replace('_', ' ')} {layout['max_concurrent_requests']:,}"
        for name, layout in capacity["layouts"].items()
    )
    lines: list[RenderableType] = [
        head,
        paragraph("  ".join(f"{label} {size(memory[key])}" for key, label in labels if memory[key])),
        paragraph(
            f"room for {counted(capacity['kv_tokens'], 'token')} of KV; requests of this length that fit: {layouts}; "
            f"in one step at most {running:,}, by {'max_num_seqs' if running == most else 'memory'}"
        ),
    ]
    if len(capacity["kinds"]) > 1:
        lines.append(paragraph(f"a request keeps {size(capacity['request_bytes'])}: {_kept(capacity['kinds'])}"))
    return Group(*lines, *_cold_start(cold))


def _kept(kinds: list[dict[str, Any]]) -> str:
    """What layers of each kind keep of a request."""
    parts = []
    for kind in kinds:
        kept = []
        if kind["bytes_per_token"]:
            kept.append(
                f"{kind['bytes_per_token']:,} bytes a token, of at most {counted(kind['kept_tokens'], 'token')}"
            )
        if compressed := kind["compressed_bytes_per_token"]:
            kept.append(f"{compressed:,.0f} bytes of compressed rows a token, of all")
        if kind["state_bytes"]:
            kept.append(f"{size(kind['state_bytes'])} of state, whatever its length")
        what = " and ".join(kept)
        parts.append(f"{counted(kind['layers'], 'layer')} ({kind['kind']}) {what}")
    return "; ".join(parts)


def _cold_start(cold: dict[str, Any]) -> Iterable[RenderableType]:
    if cold["mode"] == "eager":
        return
    steps = cold["break_even_steps"]
    after = f"paid back after {counted(steps, 'step')}" if steps else "never paid back here"
    yield Text(f"Cold start of {cold['mode']}", style="bold")
    yield paragraph(
        f"compile {cold['compile_ms'] / 1000:.1f} s, capture {cold['capture_ms'] / 1000:.1f} s for "
        f"{counted(cold['shapes'], 'shape')}, each new shape {cold['recapture_ms'] / 1000:.2f} s; {after}"
    )
