"""The `compare` document of any two sides: what both know decides how deep it goes.

Two `run` documents give settings, metrics and causes; two timelines give kernels, lanes and causes; a document and a
timeline have times by op type in common.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from scenarios.errors import ScenarioError
from scenarios.timeline import step_time
from sim.compare.causes import causes_ns
from sim.compare.classes import COLLECTIVE, WAIT, family_of_type, is_kernel, op_type_of
from sim.compare.fallbacks import evidence_of, likely
from sim.compare.loads import compare_loads, sentence
from sim.compare.results import AS_FAST, change_of, compare_results, pair_of
from sim.compare.side import Side
from sim.compare.timelines import compare_timelines
from sim.predict.result import SCHEMA_VERSION

IDLE = "device idle"


def compare_sides(a: Side, b: Side) -> dict[str, Any]:
    """The document of A and B. Times in us.

    Next to the keys of `compare_results`: `timelines` where both have one, and `fallbacks` that are likely then; else
    `op_types`; `serving` where requests of both are known (`compare_loads`); `notes`; and of each side its `kind`.
    Raises ScenarioError where one side is a load test and the other has no requests.
    """
    names = (a.name, b.name) if a.name != b.name else (f"{a.name} (A)", f"{b.name} (B)")
    if not (a.has_step and b.has_step):
        result = _of_requests(a, b, names)
    elif a.result is not None and b.result is not None:
        result = compare_results(a.result, b.result)
    else:
        result = _of_times(a, b, names)
    for key, side in (("a", a), ("b", b)):
        result[key]["kind"] = side.kind
    if a.timeline is not None and b.timeline is not None:
        result["timelines"] = compare_timelines(a.timeline, b.timeline)
        result["fallbacks"] = likely(evidence_of(names[0], a.timeline), evidence_of(names[1], b.timeline))
    result["notes"] = [*a.notes, *b.notes]
    if a.loads and b.loads:
        result["serving"] = compare_loads(a.loads, b.loads)
        result["notes"] += result["serving"].pop("notes")
        if not result["step"]:
            result["sentence"] = sentence(names, result["serving"])
    return result


def _of_requests(a: Side, b: Side, names: tuple[str, str]) -> dict[str, Any]:
    """What stands around the `serving` part of two sides of which one has no step."""
    for side, other in ((a, b), (b, a)):
        if not other.loads:
            what = f"{side.name} is a load test, and {other.name} ({other.kind}) has no requests"
            raise ScenarioError([f"{what}: compare it with another load test or a scenario with workload.traffic"])
    return {
        "schema_version": SCHEMA_VERSION,
        "a": _head(a, names[0]),
        "b": _head(b, names[1]),
        "settings": [],
        "metrics": {},
        "step": {},
        "counts": {},
        "causes": [],
        "overlaps": {"a": [], "b": []},
    }


def _of_times(a: Side, b: Side, names: tuple[str, str]) -> dict[str, Any]:
    """What two sides have in common that are not both `run` documents."""
    steps = _step_us(a), _step_us(b)
    rows = {} if a.timeline and b.timeline else {"op_types": _op_types(a, b)}
    causes = _causes(a, b)
    return {
        "schema_version": SCHEMA_VERSION,
        "a": _head(a, names[0]),
        "b": _head(b, names[1]),
        "settings": [],
        "metrics": {},
        "step": {key: pair_of(steps[0][key], steps[1][key]) for key in steps[0] if key in steps[1]},
        "counts": {"kernel_count": pair_of(_kernels(a), _kernels(b))},
        "causes": causes,
        "overlaps": {"a": [], "b": []},
        **rows,
        "sentence": _sentence(steps[0]["total_us"], steps[1]["total_us"], names, causes),
    }


def _head(side: Side, name: str) -> dict[str, Any]:
    if side.result is not None:
        return {"name": name, "hardware": side.result["hardware"], "bottleneck": side.result["bottleneck"]["name"]}
    device = side.timeline.device if side.timeline is not None else None
    return {"name": name, "hardware": device, "bottleneck": None}


def _step_us(side: Side) -> dict[str, float]:
    if side.result is not None:
        return dict(side.result["step"])
    assert side.timeline is not None
    return {key.removesuffix("_ns") + "_us": ns / 1000 for key, ns in asdict(step_time(side.timeline)).items()}


def _kernels(side: Side) -> int:
    if side.result is not None:
        return int(side.result["kernel_count"])
    assert side.timeline is not None
    return sum(map(is_kernel, side.timeline.spans))


def _causes(a: Side, b: Side) -> list[dict[str, Any]]:
    """By cause where both have spans; else by family of kernel, and what is no kernel time."""
    if a.timeline is not None and b.timeline is not None:
        of_a, of_b = ({k: ns / 1000 for k, ns in causes_ns(t).items()} for t in (a.timeline, b.timeline))
    else:
        of_a, of_b = _families(a), _families(b)
    rows = [
        {"cause": cause, "a_us": of_a.get(cause, 0.0), "b_us": of_b.get(cause, 0.0)}
        for cause in dict.fromkeys((*of_a, *of_b))
    ]
    return sorted(rows, key=lambda row: (-abs(row["b_us"] - row["a_us"]), row["cause"]))


def _families(side: Side) -> dict[str, float]:
    times: dict[str, float] = {}
    for op_type, (_, us) in _times(side).items():
        family = family_of_type(op_type)
        times[family] = times.get(family, 0.0) + us
    step = _step_us(side)
    if side.result is None and COLLECTIVE in times:  # of a run document, collectives are without their waiting
        times[COLLECTIVE] = max(0.0, times[COLLECTIVE] - step["communication_wait_us"])
    times |= {IDLE: step["free_us"], WAIT: step.get("communication_wait_us", 0.0)}
    return {cause: us for cause, us in times.items() if us}


def _op_types(a: Side, b: Side) -> list[dict[str, Any]]:
    of_a, of_b = _times(a), _times(b)
    nothing = (0, 0.0)
    rows = [
        {
            "op_type": op_type,
            "a_count": of_a.get(op_type, nothing)[0],
            "b_count": of_b.get(op_type, nothing)[0],
            "a_us": of_a.get(op_type, nothing)[1],
            "b_us": of_b.get(op_type, nothing)[1],
        }
        for op_type in dict.fromkeys((*of_a, *of_b))
    ]
    return sorted(rows, key=lambda row: (-abs(row["b_us"] - row["a_us"]), row["op_type"]))


def _times(side: Side) -> dict[str, tuple[int, float]]:
    """(count, us) of each op type."""
    if side.result is not None:
        rows = [(row["op_type"], int(row["count"]), round(row["total_us"] * 1000)) for row in side.result["kernels"]]
    else:
        assert side.timeline is not None
        rows = [(op_type_of(s), 1, s.duration_ns) for s in side.timeline.spans if is_kernel(s)]
    times: dict[str, tuple[int, int]] = {}
    for op_type, count, ns in rows:
        before = times.get(op_type, (0, 0))
        times[op_type] = before[0] + count, before[1] + ns
    return {op_type: (count, ns / 1000) for op_type, (count, ns) in times.items()}


def _sentence(a_us: float, b_us: float, names: tuple[str, str], causes: list[dict[str, Any]]) -> str:
    where = ""
    if a_us and b_us and abs(a_us / b_us - 1) >= AS_FAST:
        moved = {c["cause"]: c["b_us"] - c["a_us"] for c in causes}
        most = (min if a_us > b_us else max)(moved, key=moved.__getitem__, default="")
        if most:
            where = f", most of it {most} ({moved[most] / 1000:+,.3f} ms)"
    return (
        f"A step of {names[1]} takes {b_us / 1000:,.2f} ms against {a_us / 1000:,.2f} ms of {names[0]}: "
        f"{change_of(a_us, b_us)}{where}."
    )
