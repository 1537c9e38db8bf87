"""How the host issues the step: which blocks a graph replays, and what the graph compiler does to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import LAYER_BLOCKS, Block, Op, Program, Tensor
from scenarios.passes.base import Context, Pass
from scenarios.settings import Engine, Phase

#: Blocks inside the graph. vLLM-Ascend captures the forward pass; ge_graph compiles sampling too.
CAPTURED = {
    "aclgraph": ("embed", *LAYER_BLOCKS),
    "npugraph_ex": ("embed", *LAYER_BLOCKS, "head"),
    "ge_graph": ("embed", *LAYER_BLOCKS, "head", "sample"),
}

#: Profiler names that differ once the graph engine has compiled an op.
_GE_NAMES = {"matmul": "MatMul", "add_rms_norm": "InplaceAddRmsNorm", "slice": "StridedSliceD"}


def in_pieces(engine: Engine, phase: Phase) -> bool:
    """Whether aclgraph replays a step of this phase piece by piece around attention."""
    if phase == "decode":
        return engine.cudagraph_mode == "PIECEWISE"
    return engine.cudagraph_mode in ("PIECEWISE", "FULL_AND_PIECEWISE")


def capture(program: Program, context: Context) -> Program:
    """Mark the captured blocks; ge_graph also fuses elementwise runs and starts with a parameter update.

    Prefills and mixed batches have ever new shapes: they are issued eagerly in every mode, but for prefills that
    graph_prefill has ge_graph compile, and for batches that aclgraph replays piece by piece around attention
    (engine.cudagraph_mode), whose graphs depend on the number of tokens alone.
    """
    optimizations, phase = context.scenario.optimizations, program.batch.phase
    mode = optimizations.graph
    if mode == "aclgraph" and in_pieces(context.scenario.engine, phase):
        blocks = tuple(replace(b, pieces=b.family in CAPTURED[mode]) for b in program.blocks)
        return replace(program.with_blocks(blocks, f"graph={mode}"), graph=mode)
    compiled_prefill = phase == "prefill" and mode == "ge_graph" and optimizations.graph_prefill
    if mode == "eager" or not (phase == "decode" or compiled_prefill):
        return program
    if mode == "ge_graph":
        program = _compile(program)
    blocks = tuple(replace(b, captured=b.family in CAPTURED[mode]) for b in program.blocks)
    return replace(program.with_blocks(blocks, f"graph={mode}"), graph=mode)


def _compile(program: Program) -> Program:
    """What the graph engine does: connected runs of elementwise ops become one kernel, ops get its names."""

    def is_compiled(block: Block) -> bool:
        return block.family in CAPTURED["ge_graph"]

    readers = _readers(program)
    blocks = program.rewritten(lambda block: _fuse_elementwise(readers, block), only=is_compiled).blocks
    update = Op(
        "graph_parameters",
        "update_parameters",
        (Tensor("lengths", (program.batch.requests,), "int64"),),
        (Tensor("parameters", (1024,), "int64"),),
    )
    blocks = tuple(replace(b, ops=(update, *b.ops)) if b.name == "embed" else b for b in blocks)
    return program.with_blocks(blocks).rewritten(
        lambda block: tuple(
            replace(op, op_type=_GE_NAMES[op.kind]) if op.kind in _GE_NAMES else op for op in block.ops
        ),
        only=is_compiled,
    )


def _readers(program: Program) -> Counter[str]:
    """How often ops read each name; layers that are alike share their ops, which count once."""
    return _reads(op for block in program.blocks for op in block.ops)


def _reads(ops: Iterable[Op]) -> Counter[str]:
    """How often each name is read by these ops, one that comes again left out."""
    once = {id(op): op for op in ops}
    return Counter(tensor.name for op in once.values() for tensor in op.inputs)


def _fuse_elementwise(readers: Counter[str], block: Block) -> tuple[Op, ...]:
    """Runs that hang together and keep one output shape: a change of shape (a reduced row, a broadcast) ends a
    kernel."""
    out: list[Op] = []
    run: list[Op] = []
    for op in block.ops:
        elementwise = kind_of(op).elementwise
        if elementwise and run and _connected(run, op):
            run.append(op)
            continue
        out += _merge(readers, run)
        run = [op] if elementwise else []
        if not run:
            out.append(op)
    return (*out, *_merge(readers, run))


def _connected(run: list[Op], op: Op) -> bool:
    """Whether `op` reads what the run writes, in the same shape; an event in between, or another stream, keeps kernels
    apart."""
    last = run[-1]
    return (
        op.stream == last.stream
        and not op.waits
        and not last.records
        and op.out.elements == last.out.elements
        and not {t.name for t in op.inputs}.isdisjoint(t.name for o in run for t in o.outputs)
    )


def _merge(readers: Counter[str], run: list[Op]) -> list[Op]:
    """One op that reads what the run reads from outside and writes what others still need."""
    if len(run) < 2:
        return run
    inside = _reads(run)
    written: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}
    for op in run:
        for tensor in op.inputs:
            if tensor.name not in written:
                inputs.setdefault(tensor.name, tensor)
        for tensor in op.outputs:
            written[tensor.name] = tensor
    last = run[-1].out.name
    outputs = tuple(t for name, t in written.items() if readers[name] > inside[name] or name == last)
    ops = sum(kind_of(op).ops_per_element for op in run)
    name = "+".join(op.name.rsplit(".", 1)[-1] for op in run)
    return [
        Op(
            "fused_elementwise",
            f"{run[0].name}+{name.split('+', 1)[1]}",
            tuple(inputs.values()),
            outputs,
            (("fused_ops", ops),),
            stream=run[0].stream,
            waits=run[0].waits,
            records=run[-1].records,
            parts=tuple(run),
            expert=run[0].expert,
            micro_batch=run[0].micro_batch,
        )
    ]


GRAPH = Pass(
    switch="graph",
    title="Graph mode",
    off=("eager",),
    on="ge_graph",
    rewrite=capture,
    rewrites="op-by-op dispatch -> replay of a captured or compiled graph",
    saves="host dispatch of every op; device gaps",
    costs="capture or compile time per shape, padding to capture sizes, parameter updates, static buffers",
    claim="graph mode changes how work is issued, and needs warm-up",
    name=("graph: {value}", "图模式：{value}"),
    label=("Graph mode", "图模式"),
    help=(
        "How the host issues: op by op; torch.npu.graph capture as vLLM-Ascend does; torch.compile capture; whole "
        "graph.",
        "主机如何下发：逐算子；torch.npu.graph 捕获；torch.compile 捕获；整图编译。",
    ),
)
