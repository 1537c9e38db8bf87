"""How the host issues the step: which blocks a graph replays, and what the graph compiler does to them."""

from __future__ import annotations

from dataclasses import replace

from scenarios.ops.catalogue import kind_of, op_type_of
from scenarios.ops.program import LAYER_BLOCKS, Block, Op, Program, Tensor
from scenarios.passes.base import Context, Pass
from scenarios.passes.graph_fusion import fuse_elementwise, reads
from scenarios.settings import Engine, Phase

#: Blocks inside the graph. vLLM-Ascend captures the forward pass; ge_graph compiles sampling too.
CAPTURED = {
    "aclgraph": ("embed", *LAYER_BLOCKS),
    "npugraph_ex": ("embed", *LAYER_BLOCKS, "head"),
    "ge_graph": ("embed", *LAYER_BLOCKS, "head", "sample"),
}

#: Profiler names that differ once the graph engine has compiled an op.
_GE_NAMES = {"matmul": "MatMul", "add_rms_norm": "InplaceAddRmsNorm", "slice": "StridedSliceD", "pow": "Square"}


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


def _named(op: Op) -> Op:
    """`op` by the name that the graph engine gives its kernel; reductions over given axes end in D."""
    name = f"{op_type_of(op)}D" if kind_of(op).reduces_rows else _GE_NAMES.get(op.kind)
    return replace(op, op_type=name) if name else op


def _compile(program: Program) -> Program:
    """What the graph engine does: ops get its names, and connected runs of elementwise ops become one kernel."""

    def is_compiled(block: Block) -> bool:
        return block.family in CAPTURED["ge_graph"]

    def compiled(block: Block) -> tuple[Op, ...]:
        return fuse_elementwise(readers, tuple(map(_named, block.ops)))

    # Layers that are alike share their ops, which count once.
    readers = reads(op for block in program.blocks for op in block.ops)
    update = Op(
        "graph_parameters",
        "update_parameters",
        (Tensor("lengths", (program.batch.requests,), "int64"),),
        (Tensor("parameters", (1024,), "int64"),),
    )
    blocks = program.rewritten(compiled, only=is_compiled).blocks
    return program.with_blocks(tuple(replace(b, ops=(update, *b.ops)) if b.name == "embed" else b for b in blocks))


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
        "Host 如何下发：逐算子；torch.npu.graph 捕获；torch.compile 捕获；整图编译。",
    ),
)
