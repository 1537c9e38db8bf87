"""Micro-batches: the requests of a step in parts that take turns, so that one computes while another communicates.

Every layer runs once for each part (vLLM's dual batch overlap, DBO). Products and vector kernels of all parts share
stream 0, part after part, cut where a part needs its ranks; collectives go to a stream of their own. Weights are read
once for each part: what a small batch pays for it.

Where tokens are sent to their experts by dispatch and combine, next to attention that is not sharded, a layer is cut
once, before its router: attention of one part runs alongside the experts of another, and dispatch and combine get a
third of the vector cores, so that attention has the others. So does the one published deployment of this kind
(CloudMatrix-Infer, arXiv 2506.12708: of a die 16 cube and 32 vector cores for the stream of attention, 8 and 16 for
that of the experts); torch_npu's `set_stream_limit` is there for it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Batch, Block, Group, Op, Program, Tensor
from scenarios.passes.base import Context, Pass
from scenarios.records import dataclass

#: The stream of the collectives.
STREAM = 2
#: Of the vector cores, what dispatch and combine take next to another part's attention (the module's docstring).
EXCHANGE_CORE_SHARE = 1 / 3
#: Buffers of all tokens, of which each part has its rows: what the layers hand on, and the tables of the positions.
SHARED = ("normed", "residual", "cos", "sin")


def split(batch: Batch, parts: int) -> list[Batch]:
    """`batch` as `parts` batches with about as many tokens each.

    Requests stay whole where there are enough of them; a request alone is cut along its prompt. Fewer than `parts`
    batches come back where there are too few tokens.
    """
    if batch.requests < parts:
        return _along_the_prompt(batch, parts)
    batches, left = [], list(batch.groups)
    for part in range(parts, 0, -1):
        groups, room = [], round(sum(g.count * g.query for g in left) / part)
        requests = sum(g.count for g in left) - (part - 1)  # each later part needs one
        while left and requests and (room > 0 or part == 1):
            group = left[0]
            take = min(group.count, requests, group.count if part == 1 else max(1, round(room / group.query)))
            groups.append(replace(group, count=take))
            room, requests = room - take * group.query, requests - take
            left[0] = replace(group, count=group.count - take)
            if not left[0].count:
                left.pop(0)
        batches.append(replace(batch, groups=tuple(groups)))
    return batches


def _along_the_prompt(batch: Batch, parts: int) -> list[Batch]:
    group = batch.groups[0]
    if batch.requests > 1 or group.query < parts:
        return [batch]
    edges = [group.query * part // parts for part in range(parts + 1)]
    return [replace(batch, groups=(Group(1, end - start, group.context + start),)) for start, end in pairwise(edges)]


def take_turns(program: Program, context: Context) -> Program:
    """The layers of `program`, once for each part of its batch and woven together."""
    parts = split(program.batch, context.scenario.optimizations.overlap.micro_batches)
    if len(parts) == 1 or context.part is None:
        return program
    programs = [context.part(part) for part in parts]
    halves = _halved(program, context.model)
    blocks = [
        replace(b, ops=_woven([part.block(b.name) for part in programs], halves)) if b.is_layer else b
        for b in program.blocks
    ]
    first = next(i for i, block in enumerate(blocks) if block.is_layer)
    behind = next(i for i, block in enumerate(blocks) if i > first and not block.is_layer)
    before = (event for part in range(len(parts)) for event in _carried(part)) if halves else (_BEFORE,)
    blocks[first - 1] = _recording(blocks[first - 1], *before)
    through = {event for op in blocks[behind - 1].ops for event in op.records if " through on " in event}
    blocks[behind] = _waiting(blocks[behind], tuple(sorted(through)))
    return program.with_blocks(tuple(blocks), "overlap.micro_batches")


#: Recorded when all that is before the layers is there.
_BEFORE = "layers may begin"


def _halved(program: Program, model: Model) -> bool:
    """Whether layers are cut before their routers: where one kernel sends tokens, next to attention of one rank."""
    sends = any(kind_of(op).sends_in_a_kernel for block in program.blocks if block.is_layer for op in block.ops)
    return sends and model.tensor_parallel == 1


def _carried(part: int) -> tuple[str, ...]:
    """Recorded when a part is through a layer whose experts ran on the other stream."""
    return (f"part{part} through on {STREAM}",)


def _recording(block: Block, *events: str) -> Block:
    last = block.ops[-1]
    return replace(block, ops=(*block.ops[:-1], replace(last, records=(*last.records, *events))))


def _waiting(block: Block, events: tuple[str, ...]) -> Block:
    first = block.ops[0]
    return replace(block, ops=(replace(first, waits=(*first.waits, *events)), *block.ops[1:]))


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Ops of one part that follow one another: computing, or communicating with what little lies between."""

    ops: tuple[Op, ...]
    links: bool


def _woven(layers: list[Block], halves: bool) -> tuple[Op, ...]:
    """Part after part up to each one's next collective (with `halves` to its router), then the next stretch of each."""
    stretches = _halves if halves else _stretches
    parts = [_on_streams(stretches(block.ops), part, carried=halves) for part, block in enumerate(layers)]
    woven: list[Op] = []
    for turn in range(max(map(len, parts))):
        for own in parts:
            if turn < len(own):
                woven += own[turn]
    return tuple(woven)


def _stretches(ops: tuple[Op, ...]) -> list[_Stretch]:
    """Alternately computing and communicating. Where only small kernels lie between two collectives (a norm between
    reduce-scatter and all-gather), there is nothing to take turns for: they go with the collectives."""
    stretches: list[_Stretch] = []
    for op in ops:
        links = kind_of(op).is_collective
        if stretches and stretches[-1].links == links:
            stretches[-1] = replace(stretches[-1], ops=(*stretches[-1].ops, op))
        else:
            stretches.append(_Stretch((op,), links))
    wraps = stretches[0].links  # the layer after starts as this one does
    joined: list[_Stretch] = []
    for i, stretch in enumerate(stretches):
        between = i > 0 and (i < len(stretches) - 1 or wraps)
        links = stretch.links or (between and not any(kind_of(op).uses_cube for op in stretch.ops))
        if joined and joined[-1].links and links:
            joined[-1] = replace(joined[-1], ops=(*joined[-1].ops, *stretch.ops))
        else:
            joined.append(_Stretch(stretch.ops, links))
    return joined


def _halves(ops: tuple[Op, ...]) -> list[_Stretch]:
    """Attention, and from the router on the experts; a layer without experts is all of the first kind."""
    at = next((i for i, op in enumerate(ops) if op.name == "router"), len(ops))
    experts = tuple(
        replace(op, attrs=(*op.attrs, ("core_share", EXCHANGE_CORE_SHARE))) if kind_of(op).sends_in_a_kernel else op
        for op in ops[at:]
    )
    return [_Stretch(ops[:at], links=False), *([_Stretch(experts, links=True)] if experts else [])]


def _on_streams(stretches: list[_Stretch], part: int, carried: bool) -> list[list[Op]]:
    """The stretches of one part with their events: each waits for all streams of the one before it. carried: whether
    the first waits for the last of the layer before, which may have been on another stream."""
    placed: list[list[Op]] = []
    waits: tuple[str, ...] = (_BEFORE,) if stretches[0].links else _carried(part) if carried else ()
    for number, stretch in enumerate(stretches):
        ops = [_of_part(op, part) for op in stretch.ops]
        if stretch.links:
            ops = [replace(op, stream=STREAM if not (carried and op.stream) else op.stream) for op in ops]
        ends = {op.stream: i for i, op in enumerate(ops)}
        starts = {op.stream: i for i, op in reversed(list(enumerate(ops)))}
        for i in starts.values():
            ops[i] = replace(ops[i], waits=(*ops[i].waits, *waits))
        through = "through" if number == len(stretches) - 1 else f"stretch {number}"
        waits = tuple(f"part{part} {through} on {stream}" for stream in ends)
        for i, event in zip(ends.values(), waits, strict=True):
            ops[i] = replace(ops[i], records=(*ops[i].records, event))
        placed.append(ops)
    return placed


def _of_part(op: Op, part: int) -> Op:
    """`op` under names of its part."""

    def own(tensor: Tensor) -> Tensor:
        if tensor.role != "activation" or tensor.name in SHARED:
            return tensor
        return replace(tensor, name=f"part{part}.{tensor.name}")

    return replace(
        op,
        name=f"part{part}.{op.name}",
        stem=op.name,
        micro_batch=part,
        inputs=tuple(map(own, op.inputs)),
        outputs=tuple(map(own, op.outputs)),
        waits=tuple(f"part{part}.{name}" for name in op.waits),
        records=tuple(f"part{part}.{name}" for name in op.records),
    )


def _one_rank(model: Model) -> str | None:
    return "a rank alone has no collectives to hide" if model.ranks == 1 else None


def _too_few(context: Context) -> str | None:
    if context.model.pipeline_parallel > 1:
        return "pipeline stages pass micro-batches of their own: not modelled together"
    if context.scenario.optimizations.overlap.comm_chunks > 1:
        return "overlap.comm_chunks hides the collectives already: not modelled together"
    workload, parts = context.scenario.workload, context.scenario.optimizations.overlap.micro_batches
    if workload.phase != "prefill" and workload.batch < parts:
        return f"{parts} micro-batches need workload.batch of at least {parts}, got {workload.batch}"
    return None


MICRO_BATCHES = Pass(
    switch="overlap.micro_batches",
    title="Micro-batches that take turns",
    off=(1,),
    on=2,
    rewrite=take_turns,
    refuse=_too_few,
    idle=_one_rank,
    rewrites=(
        "the requests of a step in parts; one computes while the collectives of another run on their own stream, or "
        "the experts of another where dispatch and combine send its tokens"
    ),
    saves="the time of the collectives, as far as there is other work to do meanwhile",
    costs=(
        "weights are read once for each part, kernels get smaller, twice the launches; collectives on vector cores "
        "slow what runs beside them"
    ),
    claim="overlap moves a + b towards max(a, b), and hurts where there is too little of either",
    name=("{value} micro-batches", "{value} 个微批"),
    label=("Micro-batches", "微批数"),
    help=(
        "Micro-batches of a dual pipeline: one computes while the other communicates.",
        "双流水的微批数：一个计算时另一个通信。",
    ),
)
