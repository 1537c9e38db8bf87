"""What of a Program an NPU cannot run, said before it runs: each fused call is rehearsed on tensors without memory.

The rehearsal makes the real call on the device `meta`, held against the rules of `rules`: so a shape that the call does
not take, and an argument that the installed wheel does not know, are found on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from device.operators.experts import follows_router
from device.operators.kernel import Kernel
from device.operators.npu.call import enforced
from device.operators.npu.exchange import CHOSEN, ORIGINS, RECEIVED
from device.operators.npu.experts import PLACES
from device.operators.npu.kernels import kernel_of
from device.operators.npu.needs import Refused
from device.operators.npu.quant import with_offset
from device.operators.npu.refusals import WITHOUT_META, refused
from device.operators.npu.rules import INT4_GROUP
from device.operators.npu.rules_exchange import ORIGIN
from device.operators.npu.versions import NPUGRAPH_EX, V2_IN_CAPTURE, lacks
from device.operators.npu.weights import how_of
from device.operators.reference import special
from device.step.dtypes import DTYPES
from device.step.step import COUNTS, Groups, Layout, Step
from scenarios.errors import printable
from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Batch, Op, Program, Tensor
from scenarios.passes.micro_batches import split

#: The switch that puts ops on a stream, by its number.
STREAMS = {
    1: "overlap.prefetch",
    2: "overlap.comm_chunks",
    3: "overlap.shared_expert_stream",
    4: "overlap.streams",
}


def lacking(program: Program, model: Model, torch_npu: str, atb: bool = False) -> list[str]:
    """One line for each switch that cannot be had: its name, why, what to do. model: what this rank holds of it.
    torch_npu: the installed version. atb: whether its calls of ATB are there."""
    result: dict[str, str] = {}
    # Of a kernel that torch_npu has no call for, a graph compiler's or Triton's, the parts run.
    ops = tuple(dict.fromkeys(part for block in program.blocks for op in block.ops for part in op.parts or (op,)))
    step = rehearsed_step(program, model)
    parts = [rehearsed_step(replace(program, batch=part), model, part.tokens) for part in _parts(ops, program.batch)]
    # A padded batch in parts is refused as a whole (run/windows.py).
    padded = bool(parts) and sum(part.layout.tokens for part in parts) != step.layout.rows
    for op in ops:
        if padded and op.micro_batch >= 0:
            continue
        switch, at = kind_of(op).switch or op.kind, parts[op.micro_batch] if op.micro_batch >= 0 else step
        if why := refused(op, model, torch_npu) or _rehearse(op, kernel_of(op, torch_npu, atb), at):
            result.setdefault(switch, why)
    for switch, why in (*_one_by_one(ops), *_graph(program, torch_npu)):
        result.setdefault(switch, why)
    return [f"optimizations.{switch}: {why}" for switch, why in result.items()]


def _parts(ops: Iterable[Op], batch: Batch) -> list[Batch]:
    """The micro-batches of a step in order; none where it is not cut."""
    parts = 1 + max(op.micro_batch for op in ops)
    return split(batch, parts) if parts else []


def _one_by_one(ops: Iterable[Op]) -> Iterator[tuple[str, str]]:
    """What of weights cannot be cut into those of single experts."""
    for op in ops:
        for tensor in op.inputs if op.expert >= 0 else ():
            if tensor.role == "weight" and (tensor.dtype == "int4" or tensor.format == "nz"):
                what = "INT4 weights" if tensor.dtype == "int4" else "weights in FRACTAL_NZ"
                yield "fusion.grouped_matmul", f"{what} are not cut into single experts; set it to true, or take w8a8"


def _graph(program: Program, torch_npu: str) -> Iterator[tuple[str, str]]:
    if program.graph == "eager":
        return
    if any(op.expert >= 0 for block in program.blocks for op in block.ops):
        what = "experts one by one are as many as the host reads from the device, which a captured step cannot"
        yield "fusion.grouped_matmul", f"{what}; set it to true, or graph to eager"
    if any(op.micro_batch >= 0 for block in program.blocks for op in block.ops):
        what = "the second part of a captured step comes out wrong on the dry runtime"
        yield "overlap.micro_batches", f"{what}; set it to 1, or graph to eager"
    if program.graph == "npugraph_ex" and (lack := lacks(NPUGRAPH_EX, torch_npu)):
        yield "graph", f"{lack}; set it to aclgraph"
    ops = [op for block in program.blocks if block.captured for op in block.ops]
    if any(kind_of(op).over_cache == "growing" and special(op) is None for op in ops):
        yield "graph", "a captured step cannot hold unfused attention, whose shapes grow; set fusion.attention to true"
    if program.graph == "aclgraph":
        latent = any(kind_of(op).family == "attention" and op.attr("latent", False) for op in ops)
        if latent and (lack := lacks(V2_IN_CAPTURE, torch_npu)):
            yield "graph", f"{lack}, and latent attention is one; set it to eager"
        return
    for stream in sorted({op.stream for op in ops} - {0}):
        what = f"{program.graph} issues compiled code on one stream; switch it off, or take aclgraph"
        micro = stream == 2 and any(name.startswith("overlap.micro_batches") for name in program.applied)
        yield "overlap.micro_batches" if micro else STREAMS.get(stream, "overlap"), what
    if any(kind_of(op).family == "attention" and not op.attr("block_size") for op in ops):
        what = f"{program.graph} would copy a contiguous cache at each write; set it to paged, or take aclgraph"
        yield "kv.layout", what
    if program.graph == "npugraph_ex" and any(kind_of(op).exchanges == "tokens" for op in ops):
        yield "graph", "npugraph_ex has not been shown calls that send tokens; set it to aclgraph"
    if any(op.kind == "qkv_norm_rope_cache" for op in ops):
        what = f"{program.graph} would copy both pools at each write; set it to false, or take aclgraph"
        yield "fusion.qkv_norm_rope_cache", what


def _rehearse(op: Op, kernel: Kernel | None, step: Step) -> str | None:
    """What the call of `op` is refused for, None where it is taken."""
    if kernel is None or kernel.form == "torch" or _needs_hccl(op):
        return None
    inputs = [standing_for(op, _with_room(tensor, step)) for tensor in op.inputs]
    try:
        with enforced(), torch.inference_mode():
            kernel.compute(op, inputs, step)
    except Refused as refusal:
        return f"{refusal}; change the scenario, or switch it off"
    except NotImplementedError as error:
        # A call without a meta kernel has been held against the rules before it got there.
        known = any(f"::{name}" in str(error) for name in WITHOUT_META)
        return None if known else f"torch_npu refuses it: {_first_line(error)}"
    except AttributeError as error:
        if "_OpNamespace" not in str(error):  # a fault of this program
            raise
        return f"the installed torch_npu has it not: {_first_line(error)}"
    except (RuntimeError, TypeError) as error:
        return f"torch_npu refuses it: {_first_line(error)}"
    return None


def _needs_hccl(op: Op) -> bool:
    """Whether `op` cannot be rehearsed: a collective. The calls that send tokens have meta kernels, like any other."""
    kind = kind_of(op)
    return bool(kind.exchanges) and not (kind.exchanges == "tokens" and kind.host == "npu")


def _with_room(tensor: Tensor, step: Step) -> Tensor:
    """`tensor` with as many rows as a rank that holds some of the experts has room for, not as the Program drew."""
    model = step.model
    if model is None or not (model.expert_parallel and model.experts and follows_router(tensor)):
        return tensor
    tokens, chosen = step.layout.rows, model.experts.top_k
    if model.sends_tokens:
        tokens, chosen = -(-tokens // model.tensor_parallel) * model.ranks, min(chosen, model.experts.held)
    else:
        tokens = step.layout.tokens * model.data_parallel
    return replace(tensor, shape=(tokens * chosen, *tensor.shape[1:]))


@dataclass(frozen=True, slots=True)
class _Absent:
    """Ranks that are rehearsed with: none is there."""

    ranks: int
    rank: int = 0

    def own_name(self) -> str:
        return "rehearsed"


def _rehearsed_groups(model: Model) -> Groups:
    tensor: Any = _Absent(model.tensor_parallel) if model.tensor_parallel > 1 else None
    everyone: Any = _Absent(model.ranks) if model.ranks > 1 else None
    return Groups(tensor=tensor, everyone=everyone)


def _first_line(error: Exception) -> str:
    return printable(str(error).strip().partition(chr(10))[0], 160)


def rehearsed_step(program: Program, model: Model, rows: int = 0) -> Step:
    """A step of the Program's batch, without values but those that experts leave for each other. rows: of its matrix
    products, 0 for those of the Program."""
    pairs = [(group.query, group.context) for group in program.batch.groups for _ in range(group.count)]
    numbers = tuple(range(len(pairs)))
    queries, contexts = (tuple(pair[i] for pair in pairs) for i in (0, 1))
    rows = rows or next(op.inputs[1] for op in program.block("embed").ops if kind_of(op).picks_rows).shape[0]
    values = {}
    if model.experts:
        choices = sum(queries) * model.experts.top_k
        values[COUNTS] = torch.empty(model.experts.held, dtype=torch.int64, device="meta")
        values[PLACES] = torch.empty(choices, dtype=torch.int32, device="meta")
        values |= _sent(model, rows)
    values["attended"] = torch.empty((rows, model.heads * (model.latent.v_dim if model.latent else 1)), device="meta")
    layout = Layout(numbers, numbers, queries, contexts, rows)
    return Step(layout, DTYPES, values, model, groups=_rehearsed_groups(model))


def _sent(model: Model, rows: int) -> dict[str, torch.Tensor]:
    """What a dispatch leaves for its combine, where a rank's tokens are sent."""
    experts = model.experts
    if experts is None or not model.sends_tokens:
        return {}
    tokens = -(-rows // model.tensor_parallel)
    room = tokens * model.ranks * min(experts.held, experts.top_k)
    shapes = {CHOSEN: (tokens, experts.top_k), ORIGINS: (room * ORIGIN,), RECEIVED: (experts.count,)}
    return {name: torch.empty(shape, dtype=torch.int32, device="meta") for name, shape in shapes.items()}


def standing_for(op: Op, tensor: Tensor) -> torch.Tensor:
    """A tensor without memory in the place of an operand, as the call reads it (weights.py)."""
    shape, dtype = tensor.shape, DTYPES[tensor.dtype]
    act = DTYPES["fp16" if any(t.dtype == "fp16" for t in (*op.inputs, *op.outputs)) else "bf16"]
    if tensor.role == "weight":
        return _weight_standing_for(how_of(op, tensor, act).split(), op, tensor, act)
    if op.name == "absorb_v":  # declared by head, kept by token
        shape = (shape[1], shape[0], *shape[2:])
    scales = tensor.role == "kv_cache" and len(shape) == 2
    if scales and kind_of(op).family == "attention":  # kept place by place
        shape = (prod(op.inputs[1].shape[:2]), shape[1])
    return torch.empty(shape, dtype=dtype, device="meta")


def _weight_standing_for(how: list[str], op: Op, tensor: Tensor, act: torch.dtype) -> torch.Tensor:
    shape, dtype = tensor.shape, DTYPES[tensor.dtype]
    if how == ["int4", "scale"]:
        inputs = op.inputs[0].shape[-1]
        groups = torch.empty((inputs // INT4_GROUP, *shape), dtype=torch.int64, device="meta")
        return with_offset(groups, torch.empty(shape, dtype=torch.float32, device="meta"))
    if "int4" in how:
        return torch.empty((*shape[:-2], shape[-1], shape[-2] // 8), dtype=torch.int32, device="meta")
    dtype = act if how == ["as", "activations"] else torch.float32 if how == ["float32"] else dtype
    empty = torch.empty(shape, dtype=dtype, device="meta")
    return empty.mT if "turned" in how else empty
