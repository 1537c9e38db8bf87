"""Requests served through torch_npu on the dry runtime with numbers (tier 3), next to the plain operators on the CPU.

The load comes in time, has few KV blocks and is cut into chunks, so that steps are mixed, ragged and padded, and
requests lose their blocks. An even clock makes all runs take the same steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from device.run.session import Options
from device.serving.serve import Task, run_of, session_for
from device.weights.weights import RandomCheckpoint
from scenarios.schema import Scenario
from scenarios.serving.deployment import cache_of
from scenarios.serving.traffic import load_of
from tests.even_clock import EvenClock
from tests.npu_dry import making, references
from tests.npu_dry.numerics import Numbers, install

#: Names of cases of making.py: tokens of their caches, and the graph modes that they are served in.
CASES: dict[str, tuple[int, tuple[str, ...]]] = {
    "small-llama, all fused, paged": (384, ("eager", "aclgraph")),
    "small-llama, int8 channel": (384, ("eager",)),
    "small-llama, all fused": (512, ("eager",)),
}
TRAFFIC = {
    "arrival": "poisson", "rate": 60.0, "requests": 7,
    "input": {"distribution": "uniform", "low": 90, "high": 150},
    "output": {"distribution": "uniform", "low": 2, "high": 12},
}  # fmt: skip
ENGINE = {"max_num_seqs": 4, "max_num_batched_tokens": 100, "max_model_len": 256}
#: The attention calls, and the argument that a paged cache is read through.
ATTENTION, TABLE = "npu_fused_infer_attention_score", "block_table"


@dataclass
class Calls(TorchDispatchMode):
    """Attention calls by whether they were given a block table."""

    count: Counter[bool] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if ATTENTION in name and "workspace" not in name and "infer_output" not in name:
            self.count[(kwargs or {}).get(TABLE) is not None] += 1
        return func(*args, **(kwargs or {}))


def scenario_of(case: str, graph: str) -> Scenario:
    model, switches = making.CASES[case]
    tree = making.scenario(model, {**switches, "graph": graph}).model_dump(mode="json")
    workload = {"input_tokens": 100, "output_tokens": 8, "traffic": TRAFFIC}
    return Scenario.model_validate(tree | {"workload": workload, "engine": ENGINE})


def serve(case: str, graph: str, backend: Any, options: Options | None = None) -> dict[str, Any]:
    """Output tokens of each request, preemptions and the kinds of steps."""
    model, _ = making.CASES[case]
    scenario = scenario_of(case, graph)
    task = Task(scenario, model, load_of(scenario.workload, 0))
    whole = cache_of(scenario, CASES[case][0], task.longest)
    session = session_for(backend, task, RandomCheckpoint(model, 0), task.touched(whole), options)
    run = run_of(session, task, EvenClock(), whole)
    kinds = Counter("mixed" if s.decoding and s.chunks else "prefill" if s.chunks else "decode" for s in run.steps)
    return {
        "tokens": {request.id: list(request.output) for request in run.requests},
        "preemptions": run.preemptions,
        "steps": dict(kinds),
    }


def served_by_way() -> dict[str, Any]:
    """Of each case what was served by the adapters' plain operators on the CPU, and through torch_npu eager and
    captured, with its attention calls."""
    references.register()
    install()
    result: dict[str, Any] = {}
    for case in CASES:
        result[case] = {"plain": serve(case, "eager", making.On("cpu"))}
        for graph in CASES[case][1]:
            backend, _, _ = making.of_case(case)
            with Numbers(), Calls() as calls:
                served = serve(case, graph, backend)
            result[case][graph] = served | {"with_table": calls.count[True], "without": calls.count[False]}
    return result
