"""Kernels that a software stack issues where another one issues different kernels for the same operation.

Programs are lowered as eager torch code calls them and rewritten by switches. What is left is a stack's own choice of
kernels, with the same result and no switch: here by stack, kind and name of the operation. Sources: profiles of
vLLM-Ascend on A3, of Qwen3-8B under torch.compile (CANN learning hub) and of static TorchAir graphs on 910B2
(Qwen3-0.6B, Qwen3-30B-A3B and a 0.3B decoder in lukaIvanic/paddle_ocr_vl_npu).

torch        what the calls say: RmsNorm for the norms of Q and K; parts of one row are views. Eager code, and graphs
             over a paged cache.
torchair     a graph compiled for a static (contiguous, masked) cache: Q and K are normed by AddRmsNorm with a residual
             of zeros, which takes 2.3-2.6 us where RmsNorm on heads takes 4.5-6.7; a packed product is cut by one
             SplitVD, one row or many; weights are prefetched a whole layer ahead (`scenarios.passes.prefetch`).
vllm_ascend  captured graphs of vLLM-Ascend: packed QKV is cut, Q and K are normed and turned by one Triton kernel
             (`split_qkv_rmsnorm_rope_kernel`, 13.8 us for 16 tokens where the kernels apart take 36), as its compiler
             passes do unless told not to. Kernels that sample follow `workload.sampling`. Weights are prefetched next
             to the vector kernels before their product, no more than these can hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scenarios.ops.program import Block, Op, Program, Tensor
from scenarios.records import dataclass
from scenarios.settings import Graph, NamedStack, Settings, Stack

#: The stack behind a graph mode, where a scenario leaves it open.
_OF_GRAPH: dict[Graph, NamedStack] = {
    "eager": "torch",
    "aclgraph": "vllm_ascend",
    "npugraph_ex": "vllm_ascend",
    "ge_graph": "torchair",
}


@dataclass(frozen=True, slots=True)
class NextToVectors:
    """How a stack prefetches weights next to the vector kernels before their product. max_bytes: of one dense product;
    below_tokens: in steps of fewer tokens; experts_share: of the first weights of all experts of a rank, in steps of
    experts_from_tokens or more; a model with experts has nothing else prefetched."""

    max_bytes: int
    below_tokens: int
    experts_share: float
    experts_from_tokens: int


@dataclass(frozen=True, slots=True)
class Kernels:
    """What a stack issues in its own way.

    norms: profiler names of the norms that it runs as another kernel, by name of the norm, where Add + RMSNorm is
    fused. splits: whether the parts of a packed product are cut by one kernel. qkv_norm_rope: whether one kernel cuts
    packed QKV, norms Q and K and turns them, where each of these is fused. layers_ahead: how many layers ahead weights
    are prefetched, where they are; 0: within the layer. next_to_vectors: as that is done there, where it is not by all
    later products next to attention.
    """

    norms: tuple[tuple[str, str], ...] = ()
    splits: bool = False
    qkv_norm_rope: bool = False
    layers_ahead: int = 0
    next_to_vectors: NextToVectors | None = None


#: vllm_ascend/ops/weight_prefetch.py of v0.18.0 and v0.23.0: MAX_PREFETCH_WEIGHT_SIZE, MOE_PREFETCH_TOKEN_THRESHOLD,
#: the default ratios, 500 tokens. The attention of statically quantised models is prefetched too, and not modelled.
_VLLM_ASCEND_PREFETCH = NextToVectors(18 << 20, 500, experts_share=0.8, experts_from_tokens=96)

KERNELS: dict[NamedStack, Kernels] = {
    "torch": Kernels(),
    "torchair": Kernels(
        norms=(("q_norm", "InplaceAddRmsNorm"), ("k_norm", "InplaceAddRmsNorm")), splits=True, layers_ahead=1
    ),
    "vllm_ascend": Kernels(qkv_norm_rope=True, next_to_vectors=_VLLM_ASCEND_PREFETCH),
}


def stack_of(stack: Stack, graph: Graph, layout: str) -> NamedStack:
    """The stack that issues the kernels; auto: TorchAir for a compiled graph over a static cache, else by the mode."""
    if stack != "auto":
        return stack
    named = _OF_GRAPH[graph]
    return "torch" if named == "torchair" and layout == "paged" else named


def kernels_of(settings: Settings) -> Kernels:
    """What the stack of `settings` issues in its own way."""
    optimizations = settings.optimizations
    return KERNELS[stack_of(settings.engine.stack, optimizations.graph, optimizations.kv.layout)]


def issued(program: Program, settings: Settings) -> Program:
    """`program` with the kernels of its stack in its captured blocks."""
    kernels = kernels_of(settings)
    norms = dict(kernels.norms) if settings.optimizations.fusion.add_rms_norm else {}

    def of_stack(block: Block) -> Block:
        if not block.captured:
            return block
        ops = _split(block.ops) if kernels.splits else block.ops
        ops = _norm_and_rope(ops) if kernels.qkv_norm_rope else ops
        return replace(block, ops=tuple(_as_kernel(op, norms) for op in ops))

    return replace(program, blocks=tuple(of_stack(block) for block in program.blocks))


def _as_kernel(op: Op, norms: dict[str, str]) -> Op:
    op_type = norms.get(op.name.rsplit(".", 1)[-1]) if op.kind == "rms_norm" else None
    return replace(op, op_type=op_type) if op_type else op


def _split(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """One split where a product gives several tensors, or where they are sliced out of it side by side."""
    widths = {t.name: t.shape[-1] for op in ops for t in op.outputs}
    out: list[Op] = []
    run: list[Op] = []
    for op in ops:
        cuts = op.kind == "slice"
        if cuts and run and _goes_on(run[-1], op):
            run.append(op)
            continue
        out += _joined(run, widths)
        run = [op] if cuts else []
        out += [] if cuts else _apart(op)
    return (*out, *_joined(run, widths))


def _goes_on(before: Op, op: Op) -> bool:
    """Whether `op` cuts the same tensor as `before`, right after it, with no event in between."""
    start = before.attr("start", 0)
    assert isinstance(start, int)
    same = op.inputs[0].name == before.inputs[0].name and op.attr("start") == start + before.out.shape[-1]
    return same and _at_once((before, op))


def _at_once(run: Sequence[Op]) -> bool:
    """Whether the ops follow each other on one stream, and no other waits for one of them or the other way round."""
    return (
        len({(op.stream, op.micro_batch) for op in run}) == 1
        and not any(op.records for op in run[:-1])
        and not any(op.waits for op in run[1:])
    )


def _joined(run: list[Op], widths: dict[str, int]) -> list[Op]:
    """Slices that make up all of what they cut as one split of it; others as they are. widths: of tensors, by name."""
    parts = tuple(op.out for op in run)
    if len(run) < 2 or sum(t.shape[-1] for t in parts) != widths.get(run[0].inputs[0].name):
        return run
    return [replace(_cut(run[0], run[0].inputs[0].name, parts), records=run[-1].records)]


def _apart(op: Op) -> list[Op]:
    """A product that writes several tensors as the product of one, and its split."""
    if op.kind not in ("matmul", "quant_matmul", "weight_quant_matmul") or len(op.outputs) < 2:
        return [op]
    name = op.name.removesuffix("_proj")
    width = sum(part.shape[-1] for part in op.outputs)
    packed = Tensor(name, (*op.out.shape[:-1], width), op.out.dtype)
    cut = replace(_cut(op, name, op.outputs), waits=(), records=op.records)
    return [replace(op, outputs=(packed,), records=()), cut]


def _cut(like: Op, source: str, parts: tuple[Tensor, ...]) -> Op:
    """The split of `source` into `parts`, where and when `like` runs."""
    width = sum(part.shape[-1] for part in parts)
    whole = Tensor(source, (*parts[0].shape[:-1], width), parts[0].dtype)
    prefix, _, last = source.rpartition(".")
    name = f"{prefix}.split_{last}" if prefix else f"split_{last}"
    return replace(like, kind="split", name=name, inputs=(whole,), outputs=parts, attrs=(), op_type="")


#: Calls of packed QKV to turned Q and K, but for those that cut it.
_NORM_AND_ROPE = ("rms_norm", "rms_norm", "rope")


def _norm_and_rope(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Packed QKV cut, Q and K normed and turned by one kernel; `ops` as they are where one of these is not fused."""
    for at, op in enumerate(ops):
        if op.name.rsplit(".", 1)[-1] != "qkv_proj":
            continue
        product, *cut = _apart(op)
        run = [*cut]
        for later in ops[at + 1 :]:
            run.append(later)
            if later.kind not in ("slice", "rms_norm"):
                break
        kinds = tuple(one.kind for one in run if one.kind not in ("slice", "split"))
        if kinds == _NORM_AND_ROPE and _at_once([product, *run]):
            after = ops[at + 1 + len(run) - len(cut) :]
            return (*ops[:at], product, _in_one(product, run), *_norm_and_rope(after))
    return ops


def _in_one(product: Op, run: list[Op]) -> Op:
    """The kernel that does all of `run` to what `product` writes; V goes out as it came."""
    rope = run[-1]
    norms = [op for op in run if op.kind == "rms_norm"]
    weights = tuple(op.inputs[1] for op in norms)
    rotated = {t.name for op in norms for t in op.inputs}
    cut = (t for op in run if op.kind in ("slice", "split") for t in op.outputs)
    outs = (*rope.outputs, *(t for t in cut if t.name not in rotated))
    name = product.name.removesuffix("qkv_proj") + "qkv_norm_rope"
    inputs = (product.out, *weights, *rope.inputs[2:])
    return replace(
        rope,
        kind="split_qkv_norm_rope",
        name=name,
        inputs=inputs,
        outputs=outs,
        attrs=(),
        op_type="",
        waits=run[0].waits,
        parts=tuple(run),
    )
