"""Mixture of experts: choosing as one kernel, all experts in one grouped product, the exchange as one kernel each way.

The op names that `scenarios.lowering.moe` gives say which ops belong together: `router.*`, `expert<i>.*`, `exchange.*`.
"""

from __future__ import annotations

from dataclasses import replace

from scenarios.lowering.moe import routed
from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Attr, Op, Program, Tensor
from scenarios.ops.routing import Routing
from scenarios.passes.base import Context, Pass, in_layers

#: Tokens of one rank that npu_moe_distribute_dispatch takes at most (its documentation: BS <= 512 on A3); larger steps
#: keep the all-to-all.
MAX_DISPATCHED_TOKENS = 512


def fuse_choice(program: Program, _: Context) -> Program:
    """Scores, choice and weights -> npu_moe_gating_top_k, which divides a sigmoid's weights by their sum. Softmax
    scores have a call of their own, npu_moe_gating_top_k_softmax; their sum and the division by it stay two kernels.
    """

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        run = [op for op in ops if op.name.startswith("router.") and not kind_of(op).is_collective]  # of its input
        if not run or any(op.name == "router.of_layer" for op in run):  # no call takes the best of each group
            return ops
        logits = run[0].inputs[0]
        held = tuple(t for op in run for t in op.inputs if t.role == "weight")
        # A table of experts is looked up by the tokens' numbers, which the call reads too.
        bias = (*held, *(op.inputs[1] for op in run if op.name == "router.look_up"))
        ids, weights = (
            next(t for op in run for t in op.outputs if t.name == name) for name in ("expert_ids", "expert_weights")
        )
        top = Tensor("top_weights", weights.shape, logits.dtype)
        softmax = not bias
        hashed = any(op.name == "router.softplus" for op in run)  # npu_moe_gating_top_k_hash divides nothing
        last = [op for op in run if op.name in ("router.sum", "router.normalise")]
        divided = last if softmax or hashed else []
        gated = Tensor("gated_weights", weights.shape, logits.dtype) if divided else top
        attrs: tuple[tuple[str, Attr], ...] = (("top_k", ids.shape[-1]), ("divided", not divided))
        op_type = "MoeGatingTopKHash" if hashed else "MoeGatingTopKSoftmax" if softmax else ""
        fused = [Op("moe_gating_top_k", "router.gating", (logits, *bias), (gated, ids), attrs, op_type=op_type)]
        if divided:
            total = Tensor("top_total", (weights.shape[0], 1), logits.dtype)
            fused.append(Op("reduce_mean", "router.sum", (gated,), (total,), op_type="ReduceSum"))
            fused.append(Op("div", "router.normalise", (gated, total), (top,)))
        # Experts are weighed in 32 bit: a cast follows, as engines issue it.
        fused.append(Op("cast", "router.cast_weights", (top,), (weights,)))
        return _in_place(ops, run, tuple(fused))

    return in_layers(program, "fusion.moe_routing", rewrite)


def group_experts(program: Program, context: Context) -> Program:
    """Expert by expert -> rows in the order of their experts, one product over all of them for each of gate, up and
    down, rows back in their order."""

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        run = [op for op in ops if op.expert >= 0]
        if not run:
            return ops
        tokens = _routing(program, context)
        (ids, *weights), x, out = run[0].inputs, run[1].inputs[0], run[-1].out
        exchanged = context.model.sends_tokens
        rows = x.shape[0] if exchanged else tokens.rows
        hidden, act = x.shape[1], x.dtype
        sorted_rows = Tensor("expert_rows", (rows, hidden), act)
        result = Tensor("expert_results", (rows, hidden), act)
        first = (
            Op("moe_re_routing", "experts.sort", (x, ids), (sorted_rows,))
            if exchanged
            else Op("moe_init_routing", "experts.permute", (x, ids), (sorted_rows,))
        )
        last = (
            Op("moe_re_routing", "experts.unsort", (result, ids), (out,))
            if exchanged
            else Op("moe_finalize_routing", "experts.unpermute", (result, *weights), (out,))
        )
        return _in_place(ops, run, (first, *_grouped(tokens, sorted_rows, run), last))

    return in_layers(program, "fusion.grouped_matmul", rewrite)


def _routing(program: Program, context: Context) -> Routing:
    """As `scenarios.lowering.moe.routing` laid it down."""
    scenario, model = context.scenario, context.model
    assert model.experts is not None
    replicas = model.data_parallel if model.expert_parallel else 1
    return Routing(
        program.batch.tokens * replicas,
        model.experts.count,
        model.experts.held,
        model.experts.top_k,
        scenario.workload.expert_skew,
        seed=scenario.protocol.seed,
        groups=model.experts.top_k if model.experts.one_per_group else 1,
    )


def _grouped(routing: Routing, x: Tensor, run: list[Op]) -> tuple[Op, ...]:
    """Projections and activation of the first expert of `run` over the rows of all experts of this rank."""
    own = [op for op in run if op.expert == run[0].expert]
    prefix = own[0].name.rpartition(".")[0] + "."
    last = next(at for at, op in enumerate(own) if op.name == f"{prefix}down_proj")
    attrs, named = routed(routing), {f"{prefix}x": x.name, f"{prefix}out": "expert_results"}

    def of_all(t: Tensor) -> Tensor:
        name = named.get(t.name, f"experts.{t.name.removeprefix(prefix)}")
        shape = (routing.held, *t.shape) if t.role == "weight" else (x.shape[0], *t.shape[1:])
        return replace(t, name=name, shape=shape)

    def issued(op: Op) -> Op:
        name = f"experts.{op.name.removeprefix(prefix)}"
        op = replace(
            op, name=name, expert=-1, inputs=tuple(map(of_all, op.inputs)), outputs=tuple(map(of_all, op.outputs))
        )
        return replace(op, kind="grouped_matmul", attrs=attrs) if name.endswith("_proj") else op

    return tuple(issued(op) for op in own[2 : last + 1])  # behind those that find and pick its rows


def fuse_exchange(program: Program, _: Context) -> Program:
    """Permute, all-to-all and sort -> npu_moe_distribute_dispatch; unsort, all-to-all and unpermute -> ..._combine.

    A step of more tokens than the kernel takes keeps the all-to-all.
    """

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        by_name = {op.name: op for op in ops}
        permute, sort = by_name.get("exchange.permute"), by_name.get("experts.sort")
        if permute is None or sort is None or permute.inputs[0].shape[0] > MAX_DISPATCHED_TOKENS:
            return ops
        send, unsort = by_name["exchange.send"], by_name["experts.unsort"]
        back, unpermute = by_name["exchange.return"], by_name["exchange.unpermute"]
        dispatch = Op("moe_dispatch", "exchange.dispatch", permute.inputs, (sort.out,), send.attrs)
        weights = unpermute.inputs[1]
        combine = Op("moe_combine", "exchange.combine", (unsort.inputs[0], weights), (unpermute.out,), send.attrs)
        ops = _in_place(ops, [permute, send, sort], (dispatch,))
        return _in_place(ops, [unsort, back, unpermute], (combine,))

    return in_layers(program, "fusion.moe_dispatch", rewrite)


def _in_place(ops: tuple[Op, ...], run: list[Op], instead: tuple[Op, ...]) -> tuple[Op, ...]:
    """`ops` with those of `run` replaced by `instead`, where the first of them stood."""
    removed = {id(op) for op in run}
    at = next(i for i, op in enumerate(ops) if id(op) in removed)
    return (*ops[:at], *instead, *(op for op in ops[at:] if id(op) not in removed))


def _no_experts(model: Model) -> str | None:
    return None if model.experts else f"{model.name} has no experts"


def _no_fused_choice(model: Model) -> str | None:
    if model.experts and model.experts.one_per_group:
        return f"{model.name} takes one expert of each group, which no call of torch_npu does"
    return _no_experts(model)


def _not_spread(model: Model) -> str | None:
    if model.sends_tokens:
        return None
    return _no_experts(model) or "no tokens are sent without engine.enable_expert_parallel over several ranks"


MOE_ROUTING = Pass(
    switch="fusion.moe_routing",
    title="Expert choice as one kernel",
    rewrite=fuse_choice,
    idle=_no_fused_choice,
    rewrites="scores, top-k, normalisation -> npu_moe_gating_top_k (softmax scores: ..._softmax, sum, division)",
    saves="three to seven launches a layer",
    costs="one cast more",
    claim="fusion saves launches and round trips, not arithmetic",
    name=("fused expert routing", "融合专家路由"),
    label=("Expert routing", "专家路由"),
    help=(
        "Scores, top-k and weights of the experts -> npu_moe_gating_top_k.",
        "专家的打分、top-k 与权重 → npu_moe_gating_top_k。",
    ),
)
GROUPED_MATMUL = Pass(
    switch="fusion.grouped_matmul",
    title="Grouped matmul over experts",
    rewrite=group_experts,
    idle=_no_experts,
    rewrites="pick, gate, up, SwiGLU, down, weigh and add for each expert -> permute, npu_grouped_matmul, unpermute",
    saves="eight launches an expert; experts fill the cores together",
    costs="rows are sorted by expert first and back after",
    claim="fusion saves launches and round trips, not arithmetic",
    name=("grouped expert matmul", "专家分组矩阵乘"),
    label=("Grouped expert matmul", "专家分组矩阵乘"),
    help=(
        "Expert by expert -> npu_grouped_matmul over all experts of the rank.",
        "逐个专家 → 对本卡全部专家做一次 npu_grouped_matmul。",
    ),
)
MOE_DISPATCH = Pass(
    switch="fusion.moe_dispatch",
    title="Dispatch and combine as one kernel each",
    rewrite=fuse_exchange,
    needs=(("fusion.grouped_matmul", (True,)),),
    idle=_not_spread,
    rewrites="permute, all-to-all, sort -> npu_moe_distribute_dispatch; the way back -> npu_moe_distribute_combine",
    saves="four launches and two sorts a layer; rows go straight into the peers' memory",
    costs="all vector cores are taken; at most 512 tokens a rank",
    claim="communication and its copies are one pipeline",
    name=("expert dispatch, combine", "专家分发与合并"),
    label=("Expert dispatch, combine", "专家分发与合并"),
    help=(
        "Permute, all-to-all and sort -> npu_moe_distribute_dispatch, and ..._combine back (expert parallelism only).",
        "置换、all-to-all 与排序 → npu_moe_distribute_dispatch 与 combine（仅专家并行）。",
    ),
)
