"""Independent branches of a layer on a stream of their own: the shared expert, and what becomes keys and values."""

from __future__ import annotations

from dataclasses import replace

from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Op, Program
from scenarios.passes.base import Context, Pass, in_layers

#: What one layer hands to the next.
_CARRIED = {"normed", "normed_int8", "residual"}
#: Streams of the branches.
SHARED_EXPERT_STREAM, KEYS_STREAM = 3, 4


def split_shared_expert(program: Program, _: Context) -> Program:
    """The shared expert alongside choice, exchange and routed experts: both read the same normed input."""

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        end = next((i for i, op in enumerate(ops) if op.name == "add_shared"), None)
        if end is None:
            return ops
        branch = _needed_for(ops, "shared_out", next(op for op in ops if op.name.startswith("router")), end)
        return _on_stream(ops, branch, SHARED_EXPERT_STREAM, "shared", ops[end])

    return in_layers(program, "overlap.shared_expert_stream", rewrite)


def split_keys(program: Program, _: Context) -> Program:
    """Norm, rotation and cache write of keys and values alongside the same of the query; attention waits for both."""

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        at = next((i for i, op in enumerate(ops) if _reads_cache(op)), None)
        if at is None:
            return ops
        reader = ops[at]
        # Whatever is read but through the cache: a fused RoPE stays with the query, with all that it reads.
        later = {t.name for op in ops[at:] for t in op.inputs if t.role == "activation"}
        query = {i for name in later for i in _makers(ops, name, at)}
        written = {t.name for t in reader.inputs if t.role == "kv_cache"}
        keys = {i for name in written for i in _makers(ops, name, at)} - query
        # What reads the layer before stays where that layer ends.
        branch = [i for i in sorted(keys) if ops[i].stream == 0 and not _CARRIED & {t.name for t in ops[i].inputs}]
        return _on_stream(ops, branch, KEYS_STREAM, "keys", reader)

    return in_layers(program, "overlap.streams", rewrite)


def _reads_cache(op: Op) -> bool:
    """Whether attention starts with `op`, in one kernel or in pieces; what absorbs the latent rows comes before it."""
    kind = kind_of(op)
    return kind.family == "attention" or (kind.over_cache == "growing" and kind.family == "vector")


def _makers(ops: tuple[Op, ...], name: str, before: int) -> set[int]:
    """Places of all ops before `before` that `name` depends on."""
    places: set[int] = set()
    wanted = {name}
    for i in range(before - 1, -1, -1):
        if wanted & {t.name for t in ops[i].outputs}:
            places.add(i)
            wanted |= {t.name for t in ops[i].inputs if t.role == "activation"}
    return places


def _needed_for(ops: tuple[Op, ...], name: str, first: Op, end: int) -> list[int]:
    """Places of the ops from `first` on that only `name` depends on."""
    start = next(i for i, op in enumerate(ops) if op is first)
    makers = {i for i in _makers(ops, name, end) if i > start}
    others = {t.name for i, op in enumerate(ops) if i > start and i not in makers and i != end for t in op.inputs}
    return [i for i in sorted(makers) if not others & {t.name for t in ops[i].outputs}]


def _on_stream(ops: tuple[Op, ...], branch: list[int], stream: int, name: str, joins: Op) -> tuple[Op, ...]:
    """`ops` with those at `branch` on `stream`: they start when the last op before them that they read is through, and
    `joins` waits for them."""
    if not branch:
        return ops
    read = {t.name for i in branch for t in ops[i].inputs}
    sources = [i for i in range(branch[-1]) if i not in branch and read & {t.name for t in ops[i].outputs}]
    moved = [replace(ops[i], stream=stream) for i in branch]
    moved[-1] = replace(moved[-1], records=(*moved[-1].records, f"{name} done"))
    out: list[Op] = []
    if sources:
        moved[0] = replace(moved[0], waits=(*moved[0].waits, f"{name} ready"))
    else:
        out += moved
    for i, op in enumerate(ops):
        if i in branch:
            continue
        if op is joins:
            op = replace(op, waits=(*op.waits, f"{name} done"))
        if sources and i == sources[-1]:
            out += [replace(op, records=(*op.records, f"{name} ready")), *moved]
        else:
            out.append(op)
    return tuple(out)


def _no_shared_expert(model: Model) -> str | None:
    return None if model.experts and model.experts.shared else f"{model.name} has no shared expert"


SHARED_EXPERT = Pass(
    switch="overlap.shared_expert_stream",
    title="Shared expert on a second stream",
    rewrite=split_shared_expert,
    idle=_no_shared_expert,
    rewrites="the shared expert runs on its own stream beside choice, exchange and routed experts",
    saves="its time, where the exchange leaves cube and HBM idle",
    costs="HBM and cores shared with the routed experts; two events a layer",
    claim="two streams are not a promise of parallelism",
    name=("shared expert beside", "共享专家并行流"),
    label=("Shared expert beside", "共享专家并行流"),
    help=("Shared expert on a second stream beside the routed experts.", "共享专家放到第二条流上，与路由专家并行。"),
)
STREAMS = Pass(
    switch="overlap.streams",
    title="Keys and values beside the query",
    off=(1,),
    on=2,
    rewrite=split_keys,
    rewrites="norm, rotation and cache write of keys and values run on a second stream; attention waits for both",
    saves="the shorter of the two branches",
    costs="two events a layer; small kernels start no faster beside each other",
    claim="two streams are not a promise of parallelism",
    name=("{value} compute streams", "{value} 条计算流"),
    label=("Compute streams", "计算流数"),
    help=(
        "Compute streams of attention's preparation: 2 puts keys and values beside the query.",
        "注意力准备阶段的计算流数：2 表示 K、V 与 Q 并行。",
    ),
)
