"""Kernels that a software stack issues where another one issues a different kernel for the same operation.

Programs are lowered as eager torch code calls them and rewritten by switches. What is left is a stack's own choice of
kernel, with the same result and no switch: here by stack, kind and name of the operation. Sources: profiles of
vLLM-Ascend on A3, of Qwen3-8B under torch.compile (CANN learning hub) and of static TorchAir graphs on 910B2.

torch        what the calls say: RmsNorm for the norms of Q and K. Eager code, and graphs over a paged cache.
torchair     a graph compiled for a static (contiguous, masked) cache: Q and K are normed by AddRmsNorm with a residual
             of zeros, which takes 2.3-2.6 us where RmsNorm on heads takes 4.5-6.7.
vllm_ascend  captured graphs of vLLM-Ascend: as torch; its Triton kernel for QKV, norm and RoPE has a switch of its own
             (`fusion.qkv_norm_rope_cache`), and its sampling one too (`workload.sampling`).
"""

from __future__ import annotations

from dataclasses import replace

from scenarios.ops.program import Block, Op, Program
from scenarios.settings import Graph, NamedStack, Settings, Stack

#: The stack behind a graph mode, where a scenario leaves it open.
_OF_GRAPH: dict[Graph, NamedStack] = {
    "eager": "torch",
    "aclgraph": "vllm_ascend",
    "npugraph_ex": "vllm_ascend",
    "ge_graph": "torchair",
}

#: Profiler names of the kernels that a stack runs instead, by (kind, last part of the operation's name).
KERNELS: dict[NamedStack, dict[tuple[str, str], str]] = {
    "torch": {},
    "torchair": {("rms_norm", "q_norm"): "InplaceAddRmsNorm", ("rms_norm", "k_norm"): "InplaceAddRmsNorm"},
    "vllm_ascend": {},
}


def stack_of(stack: Stack, graph: Graph, layout: str) -> NamedStack:
    """The stack that issues the kernels; auto: TorchAir for a compiled graph over a static cache, else by the mode."""
    if stack != "auto":
        return stack
    named = _OF_GRAPH[graph]
    return "torch" if named == "torchair" and layout == "paged" else named


def issued(program: Program, settings: Settings) -> Program:
    """`program` with the kernels of its stack in its captured blocks; norms through AddRmsNorm where that is on."""
    optimizations = settings.optimizations
    kernels = KERNELS[stack_of(settings.engine.stack, optimizations.graph, optimizations.kv.layout)]
    if not kernels or not optimizations.fusion.add_rms_norm:
        return program
    return replace(
        program, blocks=tuple(_issued(block, kernels) if block.captured else block for block in program.blocks)
    )


def _issued(block: Block, kernels: dict[tuple[str, str], str]) -> Block:
    ops = tuple(_as_kernel(op, kernels.get((op.kind, op.name.rsplit(".", 1)[-1]), "")) for op in block.ops)
    return replace(block, ops=ops)


def _as_kernel(op: Op, op_type: str) -> Op:
    return replace(op, op_type=op_type) if op_type else op
