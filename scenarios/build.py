"""The one way from a Scenario and a batch to a Program: lowering, then the passes in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from scenarios.batches import captured_size
from scenarios.errors import ScenarioError
from scenarios.lowering.decoder import lower
from scenarios.lowering.finegrained import finegrained_problems, share_products
from scenarios.lowering.parallel import expanded, parallelize
from scenarios.lowering.stacks import issued
from scenarios.lowering.stages import cut
from scenarios.lowering.step import Step
from scenarios.models.model import Model
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Batch, Group, Program
from scenarios.ops.traced import Size, Traced, Unknown, formula, guarded
from scenarios.passes import PASSES, Context, Pass
from scenarios.passes.graph import in_pieces
from scenarios.passes.switches import activation_dtype
from scenarios.schema import Scenario
from scenarios.speculation import speculation_problems

#: Steps of more tokens than this are scattered over tokens in sequence parallelism; smaller ones keep the all-reduce,
#: whose latency is lower (vLLM-Ascend's FlashComm threshold).
SCATTER_ABOVE_TOKENS = 1000


def effective_graph(scenario: Scenario, batch: Batch) -> tuple[str, int]:
    """(graph mode, rows of the matrix products) that `batch` really runs with.

    Prefills and mixed batches run eager; with graph_prefill ge_graph compiles prefills for their exact shape. aclgraph
    and npugraph_ex pad a decode batch to the next captured size, and run a batch above the largest one eager; so does
    aclgraph with the tokens of batches that engine.cudagraph_mode replays in pieces. ge_graph compiles for the exact
    batch.
    """
    mode = scenario.optimizations.graph
    if mode == "aclgraph" and scenario.engine.cudagraph_mode == "NONE":
        return "eager", batch.tokens
    if mode == "aclgraph" and in_pieces(scenario.engine, batch.phase):
        size = captured_size(scenario, batch.tokens)
        return ("eager", batch.tokens) if size is None else (mode, size)
    if batch.phase == "prefill" and mode == "ge_graph" and scenario.optimizations.graph_prefill:
        return mode, batch.tokens
    if batch.phase != "decode" or mode == "eager":
        return "eager", batch.tokens
    if mode == "ge_graph":
        return mode, batch.tokens
    size = captured_size(scenario, batch.tokens)
    return ("eager", batch.tokens) if size is None else (mode, size)


def problems_of(scenario: Scenario, model: Model) -> list[tuple[str, str]]:
    """What is wrong between a scenario and its model: (field, what) pairs."""
    return list(_problems_of(scenario, model))


@lru_cache(maxsize=256)  # asked of a scenario, and of each of its steps
def _problems_of(scenario: Scenario, model: Model) -> tuple[tuple[str, str], ...]:
    problems: list[tuple[str, str]] = []
    longest, refused = scenario.longest_request_tokens, not scenario.engine.allow_long_max_model_len
    positions = f"the {model.max_position} positions of {model.name} (engine.allow_long_max_model_len)"
    if refused and longest > model.max_position:
        where = "engine.max_model_len" if scenario.engine.max_model_len else "workload.input_tokens"
        problems.append((where, f"{longest} tokens are more than {positions}"))
    last = scenario.decode_context_tokens + scenario.engine.query_tokens
    if refused and scenario.workload.phase != "prefill" and last > model.max_position:
        problems.append(("workload.context_tokens", f"longer than {positions}"))
    if scenario.workload.expert_skew and not model.experts:
        problems.append(("workload.expert_skew", f"has no effect: {model.name} has no experts"))
    if scenario.engine.hccl_op_expansion_mode != "auto" and model.cards == 1:
        problems.append(("engine.hccl_op_expansion_mode", "has no effect: a card alone has no collectives"))
    problems += list(speculation_problems(scenario.engine, model))
    problems += list(finegrained_problems(scenario, model))
    optimizations = scenario.optimizations
    if optimizations.kv.prefix_sharing and any(one.fixed_bytes for one in (model, *model.kinds)):
        what = f"layers of {model.name} keep a state, of which a prefix in common would need a copy: not modelled"
        problems.append(("optimizations.kv.prefix_sharing", what))
    if scenario.engine.sequence_parallel and not _scatters(model):
        problems.append(("engine.sequence_parallel", f"is not modelled for the norms of {model.name}"))
    if model.sends_tokens and optimizations.graph != "eager" and not optimizations.fusion.moe_dispatch:
        what = (
            "an all-to-all needs to know on the host how much each rank sends, which a captured graph cannot wait for"
        )
        problems.append(("optimizations.fusion.moe_dispatch", what))
    act, kv = activation_dtype(scenario, model), optimizations.kv.dtype
    if kv not in ("auto", "int8") and kv != act:
        what = f"{kv} with {act} activations: the fused kernels take one type; use auto"
        problems.append(("optimizations.kv.dtype", what))
    context = Context(scenario, model, act)
    defaults = Scenario()
    for item in PASSES:
        idle = item.idle(model)
        if idle:
            if item.value(scenario) != item.value(defaults):
                problems.append((f"optimizations.{item.switch}", f"has no effect here: {idle}"))
        elif item.is_on(scenario):
            missing = ", ".join(f"{switch} {str(value).lower()}" for switch, value in item.missing(scenario))
            reason = f"needs {missing}" if missing else item.refuse(context)
            if reason:
                problems.append((f"optimizations.{item.switch}", reason))
    return tuple(problems)


def _scatters(model: Model) -> bool:
    """Whether the norms of a layer can work on a rank's share of the tokens."""
    plain = model.form.pre_norms and not model.form.hyper
    return plain and not (model.experts and model.experts.with_plain)


def build(scenario: Scenario, model: Model, batch: Batch, stage: int | None = None) -> Program:
    """The Program of one step: of all layers, or of one pipeline stage.

    Raises ScenarioError where `problems_of` finds something.
    """
    problems = problems_of(scenario, model)
    if problems:
        raise ScenarioError([f"{where}: {what}" for where, what in problems])
    mode, rows = effective_graph(scenario, batch)
    program = _rewritten(_in_mode(scenario, mode), model, batch, rows, is_scattered(scenario, model, rows), PASSES)
    return program if stage is None else cut(program, model, stage, is_scattered(scenario, model, rows))


def _in_mode(scenario: Scenario, mode: str) -> Scenario:
    """`scenario` with the graph mode that a step really runs with."""
    if mode == scenario.optimizations.graph:
        return scenario
    optimizations = scenario.optimizations.model_copy(update={"graph": mode})
    return scenario.model_copy(update={"optimizations": optimizations})


def is_scattered(scenario: Scenario, model: Model, rows: int) -> bool:
    """Whether the tokens of a step of `rows` rows lie scattered over the ranks between its products."""
    return scenario.engine.sequence_parallel and rows > SCATTER_ABOVE_TOKENS and not model.joined


def sizes_of(scenario: Scenario, batch: Batch, rows: int) -> tuple[int, ...]:
    """The numbers that steps of one kind differ in, by place as `traced` takes them: rows of the products, the longest
    request, and of each group its requests, new tokens and cached tokens."""
    groups = (number for g in batch.groups for number in (g.count, g.query, g.context))
    return (rows, scenario.longest_request_tokens, *groups)


#: Settings that say how large a scenario's requests and steps are, and their values where that is nothing to the
#: program: it gets the sizes of its batch, and max_model_len as the longest request.
_WORKLOAD_SIZES = {"batch": 1, "input_tokens": 1, "output_tokens": 1, "context_tokens": None}
_ENGINE_SIZES = {"max_model_len": None, "max_num_seqs": 1, "max_num_batched_tokens": 1, "gpu_memory_utilization": 1.0}


def without_sizes(scenario: Scenario) -> Scenario:
    """`scenario` with the settings at fixed values that `traced` takes as sizes, so that scenarios which differ in
    them alone are equal."""
    return _with_sizes(scenario, _WORKLOAD_SIZES, _ENGINE_SIZES)


def _with_sizes(scenario: Scenario, workload: dict[str, Any], engine: dict[str, Any]) -> Scenario:
    return scenario.model_copy(
        update={
            "workload": scenario.workload.model_copy(update=workload),
            "engine": scenario.engine.model_copy(update=engine),
        }
    )


def traced(scenario: Scenario, model: Model, batch: Batch) -> Traced | None:
    """What the ops of `batch`, and of batches of its phase with as many groups, ask for at any sizes; None where the
    program cannot be traced. The scenario must be the same but for sizes of its requests, and so must be the graph mode
    and whether tokens are scattered."""
    mode, rows = effective_graph(scenario, batch)
    values = sizes_of(scenario, batch, rows)
    names = ("rows_", "longest_", *(f"{of}{n}_" for n in range(len(batch.groups)) for of in ("count", "query", "had")))
    guards: dict[str, bool] = {}
    sizes: list[Any] = [Size(value, name, guards) for name, value in zip(names, values, strict=True)]
    engine = {**dict.fromkeys(_ENGINE_SIZES, Unknown()), "max_model_len": sizes[1]}
    settings = _with_sizes(_in_mode(scenario, mode), dict.fromkeys(_WORKLOAD_SIZES, Unknown()), engine)
    groups = tuple(Group(*sizes[at : at + 3]) for at in range(2, len(sizes), 3))
    try:
        scattered = is_scattered(scenario, model, rows)
        program = _rewritten(settings, model, Batch(batch.phase, groups), sizes[0], scattered, PASSES)
        works = tuple(tuple(formula(work_of(op), names) for op in block.ops) for block in program.blocks)
    except Exception:  # whatever cannot be done with an expression: such programs are built one by one
        return None
    ops = tuple(tuple(op.name for op in block.ops) for block in program.blocks)
    return Traced(ops, works, guarded(guards, names))


def _rewritten(
    scenario: Scenario, model: Model, batch: Batch, rows: int, scattered: bool, passes: Sequence[Pass]
) -> Program:
    """`batch` lowered to `rows` rows, its tokens `scattered` over the ranks or not, with those of `passes` that are
    on."""
    act = activation_dtype(scenario, model)
    ranks = model.tensor_parallel
    if scenario.engine.sequence_parallel:
        rows = -(-rows // ranks) * ranks  # the engine pads whether or not this step is scattered
    step = Step(
        model,
        batch,
        act=act,
        cache_tokens=scenario.longest_request_tokens,
        tokens=rows,
        skew=scenario.workload.expert_skew,
        seed=scenario.protocol.seed,
    )
    program = lower(step, scenario.workload.sampling)
    if ranks > 1:
        program = parallelize(program, model, scattered)
    if config := scenario.engine.finegrained_tp_config:
        program = share_products(program, config)
    program = expanded(program, scenario.engine.hccl_op_expansion_mode)
    for done, item in enumerate(passes):
        if item.is_on(scenario) and not item.idle(model):
            context = Context(scenario, model, act, _parts(scenario, model, batch, rows, scattered, passes[:done]))
            program = item.rewrite(program, context)
    return issued(program, scenario)


def _parts(
    scenario: Scenario, model: Model, whole: Batch, rows: int, scattered: bool, passes: Sequence[Pass]
) -> Callable[[Batch], Program]:
    """How a part of `whole` is built: with its share of the padding, and scattered as the whole is."""

    def part(batch: Batch) -> Program:
        return _rewritten(scenario, model, batch, -(-rows * batch.tokens // whole.tokens), scattered, passes)

    return part
