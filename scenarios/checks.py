"""What a scenario says about itself that cannot be: impossible sizes, and settings that would change nothing.

These need the scenario alone. What depends on the model (heads, positions) or the hardware (memory) is checked where
those are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from scenarios.batches import prefill_tokens
from scenarios.records import dataclass
from scenarios.schema import Scenario
from scenarios.traffic_checks import traffic_problems

#: Prefill steps that are listed at most; a request's TTFT is their sum.
MAX_PREFILL_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Problem:
    """where: the dotted field to change; the one the user wrote, where several meet. what: what is wrong with it."""

    where: str
    what: str


def check(scenario: Scenario) -> list[Problem]:
    """All that is impossible or without effect in the scenario; empty where nothing is."""
    rules = (
        _experts,
        _lengths,
        _batch,
        _chunks,
        _capture_sizes,
        _graph_prefill,
        _kv_cache,
        _prefix_sharing,
        _prefetch,
        _fusion,
        _cudagraph_mode,
        _speculation,
        _finegrained,
        _serving,
    )
    return [problem for rule in rules for problem in rule(scenario)]


def is_given(scenario: Scenario, where: str) -> bool:
    """Whether the user wrote the field (or code copied it in), even if with its default value."""
    part: Any = scenario
    for name in where.split("."):
        if name not in part.model_fields_set:
            return False
        part = getattr(part, name)
    return True


def _written(scenario: Scenario, *fields: str) -> str:
    """Of the fields that meet in a problem, the first that the user wrote."""
    return next((field for field in fields if is_given(scenario, field)), fields[0])


def _experts(scenario: Scenario) -> Iterator[Problem]:
    engine, where = scenario.engine, "engine.all2all_backend"
    if engine.all2all_backend != "alltoall" and not engine.enable_expert_parallel:
        yield Problem(where, "has no effect without engine.enable_expert_parallel")


def _lengths(scenario: Scenario) -> Iterator[Problem]:
    workload, limit = scenario.workload, scenario.engine.max_model_len
    if limit is None:
        return
    request = workload.input_tokens + workload.output_tokens
    if limit < request:
        what = (
            f"must be at least {request}, the {workload.input_tokens} input_tokens and {workload.output_tokens} "
            f"output_tokens of a request, got {limit}"
        )
        yield Problem("engine.max_model_len", what)
    if workload.context_tokens is not None:
        query = workload.input_tokens if workload.phase == "prefill" else 1
        if workload.context_tokens + query > limit:
            what = (
                f"{workload.context_tokens} tokens in the cache and {query} new ones are more than "
                f"engine.max_model_len {limit}"
            )
            yield Problem("workload.context_tokens", what)


def _batch(scenario: Scenario) -> Iterator[Problem]:
    batch, engine, phase = scenario.workload.batch, scenario.engine, scenario.workload.phase
    if batch > engine.max_num_seqs:
        where = _written(scenario, "workload.batch", "engine.max_num_seqs")
        yield Problem(where, f"workload.batch {batch} is more than engine.max_num_seqs {engine.max_num_seqs}")
    if phase != "prefill" and batch > engine.max_num_batched_tokens:
        where = _written(scenario, "engine.max_num_batched_tokens", "workload.batch")
        what = f"must be at least {batch}, one token for each request of a {phase} step, got "
        yield Problem(where, what + str(engine.max_num_batched_tokens))
    if phase == "mixed" and batch < 2:
        where = _written(scenario, "workload.batch", "workload.phase")
        yield Problem(
            where, f"a mixed step needs workload.batch of at least 2, for a prefill and a decode, got {batch}"
        )


def _chunks(scenario: Scenario) -> Iterator[Problem]:
    budget, tokens = scenario.engine.max_num_batched_tokens, prefill_tokens(scenario)
    chunks = -(-tokens // budget)
    if chunks > MAX_PREFILL_STEPS:
        where = _written(scenario, "engine.max_num_batched_tokens", "workload.batch", "workload.input_tokens")
        what = (
            f"the prefill of {tokens} prompt tokens in steps of max_num_batched_tokens {budget} takes {chunks} steps, "
            f"more than {MAX_PREFILL_STEPS}: at least {-(-tokens // MAX_PREFILL_STEPS)} tokens a step are needed"
        )
        yield Problem(where, what)


def _capture_sizes(scenario: Scenario) -> Iterator[Problem]:
    where, sizes, graph = (
        "engine.cudagraph_capture_sizes",
        scenario.engine.cudagraph_capture_sizes,
        scenario.optimizations.graph,
    )
    if sizes is None:
        return
    if graph not in ("aclgraph", "npugraph_ex"):
        yield Problem(
            where, f"has no effect with optimizations.graph {graph}: only aclgraph and npugraph_ex capture sizes"
        )
    if not sizes:
        yield Problem(where, "must not be empty")
    for index, (before, size) in enumerate(pairwise(sizes), start=1):
        if size <= before:
            yield Problem(f"{where}[{index}]", f"must be greater than the size before it, {before}, got {size}")


def _graph_prefill(scenario: Scenario) -> Iterator[Problem]:
    where, graph = "optimizations.graph_prefill", scenario.optimizations.graph
    if scenario.optimizations.graph_prefill and graph != "ge_graph":
        yield Problem(where, f"has no effect with optimizations.graph {graph}: only ge_graph compiles prefills")


def _kv_cache(scenario: Scenario) -> Iterator[Problem]:
    kv = scenario.optimizations.kv
    if kv.layout != "paged" and is_given(scenario, "optimizations.kv.block_size"):
        yield Problem("optimizations.kv.block_size", f"has no effect with layout {kv.layout}. {_REMOVE}")
    if kv.dtype != "int8" and is_given(scenario, "optimizations.kv.scale"):
        yield Problem("optimizations.kv.scale", f"has no effect with dtype {kv.dtype}, only with int8. {_REMOVE}")


def _prefix_sharing(scenario: Scenario) -> Iterator[Problem]:
    kv, prompt = scenario.optimizations.kv, scenario.workload.input_tokens
    sharing, shared = "optimizations.kv.prefix_sharing", "optimizations.kv.shared_prefix_tokens"
    if kv.prefix_sharing and kv.layout != "paged":
        yield Problem(sharing, f"needs layout paged, got {kv.layout}")
    # With traffic, a request that lost its blocks finds those again that nobody has taken since.
    if kv.prefix_sharing and kv.shared_prefix_tokens == 0 and scenario.workload.traffic is None:
        yield Problem(sharing, "has no effect without shared_prefix_tokens above 0")
    if kv.shared_prefix_tokens and not kv.prefix_sharing:
        yield Problem(shared, "has no effect without prefix_sharing: true")
    if kv.shared_prefix_tokens > prompt:
        yield Problem(shared, f"must be at most workload.input_tokens, {prompt}, got {kv.shared_prefix_tokens}")


def _prefetch(scenario: Scenario) -> Iterator[Problem]:
    overlap, where = scenario.optimizations.overlap, "optimizations.overlap.prefetch_layers"
    if overlap.prefetch_layers is not None and not overlap.prefetch:
        yield Problem(where, f"has no effect without overlap.prefetch: true. {_REMOVE}")


def _fusion(scenario: Scenario) -> Iterator[Problem]:
    """What the passes cannot know; what one fusion needs of others is declared with its pass."""
    if scenario.engine.sequence_parallel and scenario.engine.tensor_parallel_size == 1:
        yield Problem("engine.sequence_parallel", "has no effect with engine.tensor_parallel_size 1")


def _cudagraph_mode(scenario: Scenario) -> Iterator[Problem]:
    graph = scenario.optimizations.graph
    if scenario.engine.cudagraph_mode is not None and graph != "aclgraph":
        yield Problem("engine.cudagraph_mode", f"has no effect with optimizations.graph {graph}, only with aclgraph")


def _speculation(scenario: Scenario) -> Iterator[Problem]:
    config, where = scenario.engine.speculative_config, "engine.speculative_config"
    if config is None:
        return
    drafted = config.num_speculative_tokens
    if isinstance(config.acceptance, tuple):
        if len(config.acceptance) != drafted:
            what = f"needs one share for each of {drafted} drafted tokens, got {len(config.acceptance)}"
            yield Problem(f"{where}.acceptance", what)
        elif any(later > earlier for earlier, later in pairwise(config.acceptance)):
            what = "must not rise: a position is accepted only where those before it are"
            yield Problem(f"{where}.acceptance", what)
    if config.enforce_eager and not config.forward:
        yield Problem(f"{where}.enforce_eager", f"has no effect with method {config.method}, which runs no draft model")
    if config.enforce_eager and scenario.optimizations.graph == "eager":
        yield Problem(f"{where}.enforce_eager", "has no effect with optimizations.graph eager")


def _finegrained(scenario: Scenario) -> Iterator[Problem]:
    """A what-if without the graph is still priced: only a scenario as it is written is refused, as the engine does."""
    config, where = scenario.engine.finegrained_tp_config, "engine.finegrained_tp_config.oproj_tensor_parallel_size"
    if config is not None and config.oproj_tensor_parallel_size > 1 and scenario.optimizations.graph == "eager":
        what = "needs a captured graph (vLLM-Ascend refuses it with enforce_eager): set optimizations.graph"
        yield Problem(where, what)


def _serving(scenario: Scenario) -> Iterator[Problem]:
    for where, what in traffic_problems(scenario):
        yield Problem(where, what)


_REMOVE = "Remove it, or set it to null where a base file gives it"
