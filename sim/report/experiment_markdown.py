"""The report as Markdown, the seven steps in their order; made from the document alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

#: Names of the pictures next to the report.
GAINS, WARM_UP = "gains.svg", "warm_up.svg"
NAMES = {"tpot": "TPOT", "ttft": "TTFT", "step": "mixed step"}


def markdown(result: dict[str, Any]) -> str:
    """The whole report."""
    parts = (
        _head, _baseline, _warm_up, _profile, _factors, _numbers, _metrics, _elsewhere, _interactions, _notes,
    )  # fmt: skip
    return "\n".join(line for part in parts for line in (*part(result), "")).rstrip("\n") + "\n"


def gain(ratio: dict[str, Any] | None) -> str:
    """`1.234x (1.200-1.300)`."""
    return "" if ratio is None else f"{ratio['value']:.3f}x ({ratio['low']:.3f}-{ratio['high']:.3f})"


def _head(result: dict[str, Any]) -> Iterator[str]:
    base, machine = result["baseline"], result["baseline"]["machine"]
    yield f"# Experiment: {_text(base['scenario']['name'])} on {machine['backend']}"
    yield ""
    yield (
        f"{_text(machine['device'])}, {machine['date']}. Gains are without / with in {NAMES[result['headline']]}: "
        f"above 1 the switch helps. *Predicted* comes from the profile {_text(base['hardware'])} (its worst numbers "
        f"are {base['hardware_worst_source']}), *measured* from this machine."
    )
    yield ""
    done = [row for row in result["factors"] if row["verdict"]]
    for call in ("adopt", "do not adopt", "not distinguishable"):
        names = [f"`{row['factor']}`" for row in done if row["verdict"]["call"] == call]
        yield f"- **{call}**: {', '.join(names) or 'none'}"
    yield ""
    if result["recommended"]:
        yield f"Settings that follow: `{' '.join('--set ' + s for s in result['recommended'])}`"
    else:
        yield "No setting of the scenario need change."


def _baseline(result: dict[str, Any]) -> Iterator[str]:
    base = result["baseline"]
    precision, lengths = base["precision"], base["lengths"]
    yield "## 1. The baseline, frozen"
    yield ""
    yield from _table(
        ("what", "value"),
        [
            ("scenario", f"{_text(base['scenario']['name'])}, SHA-256 of all settings {base['scenario_sha256'][:16]}"),
            ("model", f"{_text(base['model']['name'])}, {base['model']['layers']} layers, weights {base['weights']}"),
            ("precision", ", ".join(f"{key} {value}" for key, value in precision.items())),
            ("lengths", ", ".join(f"{key} {value}" for key, value in lengths.items())),
            ("concurrency", f"{base['concurrency']} requests"),
            ("sampling", f"{base['sampling']}, seed {base['seed']}"),
            ("tool", base["tool_version"]),
            *((key, _text(str(value))) for key, value in base["machine"].items()),
        ],
    )


def _warm_up(result: dict[str, Any]) -> Iterator[str]:
    warm = result["warm_up"]
    yield "## 2. Warm-up"
    yield ""
    state = "warm" if warm["is_warm"] else "NOT warm: all that follows is in doubt"
    yield (
        f"The very first pass took {warm['first']:.2f} times the steady level; of {len(warm['repeats'])} repeats the "
        f"last third took {warm['drift']:.3f} times the middle third: {state}."
    )
    yield ""
    yield f"![warm-up]({WARM_UP})"


def _profile(result: dict[str, Any]) -> Iterator[str]:
    profile, bottleneck = result["profile"], result["profile"]["bottleneck"]
    step = profile["step"]
    yield "## 3. Profile of the baseline"
    yield ""
    agree = "they agree" if bottleneck["agree"] else "they do not agree"
    yield f"Predicted **{bottleneck['predicted']}**, measured **{bottleneck['measured']}**: {agree}."
    yield ""
    yield f"- predicted: {_text(bottleneck['predicted_evidence'])}"
    yield f"- measured: {bottleneck['measured_evidence']}"
    yield (
        f"- measured step {step['total_us'] / 1000:.3f} ms: computing {step['computing_us'] / 1000:.3f}, communication "
        f"not overlapped {step['communication_not_overlapped_us'] / 1000:.3f}, free {step['free_us'] / 1000:.3f}"
    )
    yield f"- predicted against measured step: {profile['errors']['step']:+.0%}"
    yield ""
    rows = profile["kernels"][:8]
    yield from _table(
        ("kind", "form", "count", "measured us", "predicted us"),
        [(r["kind"], r["form"], r["count"], f"{r['total_us']:.1f}", f"{r['predicted_us']:.1f}") for r in rows],
    )


def _factors(result: dict[str, Any]) -> Iterator[str]:
    head = result["headline"]
    yield "## 4. One factor at a time"
    yield ""
    yield f"![gains]({GAINS})"
    yield ""
    yield from _table(
        ("factor", "scenario has it", "predicted", "measured", "inside predicted", "verdict", "why"),
        [_factor_row(row, head) for row in result["factors"]],
    )
    agreement, control = result["agreement"], result["control"].get(head)
    yield ""
    yield (
        f"{agreement['covered']} of {agreement['factors']} measured gains lie inside their predicted interval; of "
        f"{agreement['pairs_apart']} pairs of factors that the measurement tells apart, "
        f"{agreement['pairs_in_order']} were predicted in the same order."
    )
    if control:
        by = (
            "each side divided by the fixed kernel before it" if result["ratios_by_reference_kernel"] else "as they are"
        )
        yield (
            f"Two equal baselines differed by {gain(control)}, so gains below {result['smallest_gain_told']:.1%} are "
            f"not told from none; ratios within a turn are taken {by}, whichever held the equal sides closer together. "
            f"Intervals are those of the sign test, at least {control['confidence']:.1%}."
        )


def _factor_row(row: dict[str, Any], head: str) -> tuple[str, ...]:
    name = f"`{row['factor']}`" + (f" (given {', '.join(row['given'])})" if row["given"] else "")
    predicted = gain(row["predicted"].get(head))
    if row["status"] != "measured":
        return (name, row["state"], predicted, "", "", row["status"], _text(row["reason"]))
    inside = "yes" if row["covered"] else "no"
    verdict = row["verdict"]
    return (
        name,
        row["state"],
        predicted,
        gain(row["measured"][head]),
        inside,
        f"**{verdict['call']}**",
        _text(verdict["reason"]),
    )


def _numbers(result: dict[str, Any]) -> Iterator[str]:
    yield "## 5. Output error and quality"
    yield ""
    held_to = result["warm_up"]["baseline"]["held_to"] or "which could not be run"
    yield (
        f"Logits against the plain program (every switch off, reference operators, {held_to}) on the same tokens: of "
        "the end of the prefill and of each decode step."
    )
    yield ""
    rows = []
    for row in _measured(result):
        errors, numbers = row["sides"]["with"]["errors"], row["numerics"]
        if errors is None:
            rows.append((f"`{row['factor']}`", "", "", "", "", "", numbers["reason"]))
            continue
        rows.append(
            (
                f"`{row['factor']}`",
                f"{errors['greatest']:.1e}",
                f"{errors['relative']:.1e}",
                f"{errors['kl_nats']:.1e}",
                _tokens(errors),
                _perplexity(numbers),
                numbers["state"],
            )
        )
    heads = ("factor", "greatest error", "relative", "divergence, nats", "greedy tokens", "perplexity", "numbers")
    yield from _table(heads, rows)
    yield ""
    if result["baseline"]["weights"] == "seeded random":
        yield (
            "The weights are seeded random, so task quality cannot be judged: only how far logits and distributions "
            "move. Greedy tokens of random weights flip at near ties."
        )
    else:
        yield "Perplexity is with / without, over the text behind the decode steps."


def _tokens(errors: dict[str, Any]) -> str:
    if not errors["is_finite"]:
        return "none: no numbers"
    if errors["first_other"] is None:
        return "equal"
    step, request = errors["first_other"]
    return f"first other at step {step} of request {request}"


def _perplexity(numbers: dict[str, Any]) -> str:
    return "not judged" if numbers["perplexity"] is None else f"{numbers['perplexity'] - 1:+.2%}"


def _metrics(result: dict[str, Any]) -> Iterator[str]:
    yield "## 6. TTFT, TPOT, throughput and memory"
    yield ""
    measured, predicted = result["metrics"]["measured"], result["metrics"]["predicted"]
    yield from _table(
        ("baseline", "measured", "predicted"),
        [
            (label, _value(measured, key), _interval(predicted.get(key), scale, unit))
            for label, key, scale, unit in _METRICS
        ],
    )
    yield ""
    yield (
        "Times leave out what other programs had of the processor, where the device can tell (by the wall: "
        f"TTFT {measured['ttft_wall_ms']:.3f} ms, TPOT {measured['tpot_wall_ms']:.3f} ms). Memory is counted from the "
        "tensors held; values are what the largest step leaves behind. Throughput follows from TTFT and TPOT."
    )
    yield ""
    yield from _table(
        ("factor", "TTFT", "TPOT", "tokens/s", "memory MiB", "first pass costs more by"),
        [_side_row(row) for row in _measured(result)],
    )


_METRICS = (
    ("TTFT, ms", "ttft_ms", 1.0, ""), ("TPOT, ms", "tpot_ms", 1.0, ""),
    ("output tokens/s", "output_throughput", 1.0, ""), ("decode tokens/s", "decode_throughput", 1.0, ""),
    ("weights, MiB", "weights_bytes", 2.0**-20, ""), ("KV cache, MiB", "kv_cache_bytes", 2.0**-20, ""),
)  # fmt: skip


def _value(metrics: dict[str, float], key: str) -> str:
    scale = 2.0**-20 if key.endswith("_bytes") else 1.0
    return f"{metrics[key] * scale:,.3f}"


def _interval(metric: dict[str, float] | None, scale: float, unit: str) -> str:
    if metric is None:
        return ""
    value, low, high = (metric[key] * scale for key in ("value", "low", "high"))
    return f"{value:,.3f}{unit}" + ("" if low == high else f" ({low:,.3f}-{high:,.3f})")


def _side_row(row: dict[str, Any]) -> tuple[str, ...]:
    without, with_it = row["metrics"]["without"], row["metrics"]["with"]

    def change(key: str, digits: int = 2) -> str:
        scale = 2.0**-20 if key.endswith("_bytes") else 1.0
        return f"{without[key] * scale:,.{digits}f} -> {with_it[key] * scale:,.{digits}f}"

    cold = with_it["cold_ms"] - without["cold_ms"]
    return (
        f"`{row['factor']}`",
        f"{gain(row['measured'].get('ttft'))}",
        f"{gain(row['measured'].get('tpot'))}",
        change("output_throughput", 0),
        change("memory_bytes"),
        f"{cold:+,.0f} ms",
    )


def _elsewhere(result: dict[str, Any]) -> Iterator[str]:
    cold = result["cold_start"]
    yield "## 7. Cold start and other shapes"
    yield ""
    yield (
        f"The baseline's first pass through prefill and decode steps took {cold['measured_ms']:,.0f} ms more than the "
        f"second; predicted for capture and compilation: {cold['predicted_ms']:,.0f} ms. What each factor adds is in "
        "the table above: kernels that an earlier factor had compiled are not compiled again."
    )
    yield ""
    if not result["shapes"]:
        yield "No factor was adopted, so none was taken to other shapes."
        return
    rows = [
        (f"`{r['factor']}`", r["shape"], gain(r["predicted"]), gain(r["measured"]) or f"{r['status']}: {r['reason']}")
        for r in result["shapes"]
    ]
    yield from _table(("factor", "shape", "predicted", "measured"), rows)


def _interactions(result: dict[str, Any]) -> Iterator[str]:
    yield "## Interactions"
    yield ""
    if not result["combinations"]:
        yield "Fewer than two factors of one kind were adopted, so there is nothing to combine."
        return
    yield from _table(
        ("together", "state", "predicted", "predicted product", "measured", "product of single gains", "excess"),
        [_combination_row(row) for row in result["combinations"]],
    )
    yield ""
    yield "Excess is measured / product: below 1 the factors gain from the same thing, above 1 they help each other."


def _combination_row(row: dict[str, Any]) -> tuple[str, ...]:
    names = " + ".join(f"`{name}`" for name in row["factors"])
    state = "off in the scenario" if row["state"] == "off" else "on in the scenario"
    product = "" if row["predicted_product"] is None else f"{row['predicted_product']:.3f}x"
    measured = gain(row["together"]) or f"{row['status']}: {_text(row['reason'])}"
    if row["numerics"] and row["numerics"]["state"] == "not acceptable":
        measured += f" (numbers not acceptable: {row['numerics']['reason']})"
    return (
        names,
        state,
        gain(row["predicted"]),
        product,
        measured,
        gain(row["product_of_singles"]),
        gain(row["excess"]),
    )


def _notes(result: dict[str, Any]) -> Iterator[str]:
    yield "## What was left out"
    yield ""
    for line in result["left_out"]:
        yield f"- for time: {line}"
    if result["left_out"]:
        yield ""
        seconds, budget = result["left_out_s"], result["budget_for_all_s"]
        yield f"They take about {seconds:,.0f} s more: `--budget-s {budget}` takes them up."
        yield ""
    for line in result["warnings"]:
        yield f"- in doubt: {line}"
    if not result["left_out"] and not result["warnings"]:
        yield "Nothing."
    yield ""
    yield f"It took {result['elapsed_s']:.0f} s of a budget of {result['budget_s']:.0f} s."


def _measured(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in result["factors"] if row["status"] == "measured"]


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"


def _text(text: str) -> str:
    """A user's words inside a table."""
    return text.replace("|", "\\|").replace("\n", " ")
