"""A mixture of experts as eager torch code issues it: score, choose, then expert by expert; `mlp_in` -> `mlp_out`.

Op names: `router`, then `router.*` (choosing), `expert<i>.*` (one expert each), `shared.*`. Where whole experts are
spread over ranks, `exchange.*` sends the chosen rows to their ranks and back, and all of this works on a rank's own
share of the tokens.
"""

from __future__ import annotations

from dataclasses import replace

from scenarios.lowering.primitives import activation, gated, linear, weight
from scenarios.lowering.step import Step
from scenarios.models.model import Experts
from scenarios.ops.program import Attr, Op, Tensor
from scenarios.ops.routing import Routing


def share_of_tokens(step: Step) -> int:
    """Tokens that this rank routes: all of them, or its share where experts are spread over ranks."""
    model = step.model
    return -(-step.tokens // model.tensor_parallel) if model.sends_tokens else step.tokens


def routing(step: Step, experts: Experts) -> Routing:
    """Who chooses which experts: the tokens of all replicas where they share them (padding chooses none)."""
    replicas = step.model.data_parallel if step.model.expert_parallel else 1
    tokens = step.batch.tokens * replicas
    groups = experts.top_k if experts.one_per_group else 1
    return Routing(tokens, experts.count, experts.held, experts.top_k, step.skew, seed=step.seed, groups=groups)


def routed(item: Routing) -> tuple[tuple[str, Attr], ...]:
    """A routing as op attributes (`scenarios.ops.product_work.routing_of` reads them)."""
    return (
        ("tokens", item.tokens),
        ("experts", item.experts),
        ("held", item.held),
        ("top_k", item.top_k),
        ("skew", item.skew),
        ("seed", item.seed),
        *((("groups", item.groups),) if item.groups > 1 else ()),
    )


def mixture(
    step: Step, experts: Experts, source: str = "mlp_in", routed_by: str = "", result: str = "mlp_out"
) -> tuple[Op, ...]:
    """The MLP of a layer with experts: `source` -> `result`. routed_by: what the router reads, where it is not the
    same."""
    model, act, rows = step.model, step.act, share_of_tokens(step)
    x = whole = activation(source, (rows, model.hidden), act)
    chosen = "moe_out" if experts.shared or experts.scaled else result
    read = activation(routed_by or source, x.shape, act)
    ops = [linear("router", read, "router_logits", experts.count, experts.router_bias), *_choose(step, experts, rows)]
    if experts.scales_choice:
        ops += _scaled_choice(experts, rows)
    if experts.weighs_input:
        x = activation("moe_in", x.shape, act)
        ops += _weighed(whole, x)
    given = chosen
    if experts.latent:
        ops.append(linear("latent_down_proj", x, "moe_latent", experts.latent))
        x, chosen = activation("moe_latent", (rows, experts.latent), act), "moe_latent_out"
    item = routing(step, experts)
    choice = (rows, experts.top_k)
    ids, weights = activation("expert_ids", choice, "int32"), activation("expert_weights", choice, "fp32")
    if model.sends_tokens:
        ops += _exchanged(step, experts, item, x, chosen)
    elif experts.gathered and model.data_parallel > 1:
        ops += _gathered(step, experts, item, (x, ids, weights), chosen)
    else:
        ops += _one_by_one(experts, item, x, chosen, ids, weights)
    if experts.latent:
        ops.append(linear("latent_up_proj", activation(chosen, x.shape, act), given, model.hidden))
        x = whole
    if experts.scaled:
        scaled = "moe_scaled" if experts.shared else "mlp_out"
        by = (("value", experts.factor),)
        ops.append(replace(_same("muls", "scale_routed", (activation("moe_out", x.shape, act),), scaled), attrs=by))
    if experts.shared:
        plain = "shared_plain" if experts.shared_gate else "shared_out"
        kind, limit = experts.shared_activation
        ops += gated(whole, "shared.", experts.shared, plain, kind, limit=limit, bias=experts.bias)
        ops += _shared_gate(whole) if experts.shared_gate else ()
        routed_out = activation("moe_scaled" if experts.scaled else "moe_out", x.shape, act)
        ops.append(_same("add", "add_shared", (routed_out, activation("shared_out", x.shape, act)), "mlp_out"))
    return tuple(ops)


def _scaled_choice(experts: Experts, rows: int) -> tuple[Op, ...]:
    """Weights times a learned scale of each expert."""
    few = (rows, experts.top_k)
    scales, ids = weight("router_scales.weight", (experts.count,), "fp32"), activation("expert_ids", few, "int32")
    own, weights = activation("choice_scales", few, "fp32"), activation("expert_weights", few, "fp32")
    return (
        Op("index_select", "scale_choice.pick", (scales, ids), (own,)),
        Op("mul", "scale_choice", (weights, own), (weights,)),
    )


def _weighed(x: Tensor, out: Tensor) -> tuple[Op, ...]:
    """Each token times the weight of its one expert, whose result is then not weighed again (vLLM's
    apply_router_weight_on_input)."""
    few = activation("expert_weights", (x.shape[0], 1), "fp32")
    narrow = activation("input_weights", few.shape, x.dtype)
    return (
        Op("cast", "weigh_input.cast", (few,), (narrow,)),
        Op("mul", "weigh_input", (x, narrow), (out,)),
        Op("div", "weigh_input.ones", (few, few), (few,), op_type="OnesLike"),
    )


def _shared_gate(x: Tensor) -> tuple[Op, ...]:
    """The shared expert's result times a sigmoid of its input, one number a token."""
    narrow = (x.shape[0], 1)
    gate, open_ = activation("shared_gate", narrow, x.dtype), activation("shared_gate_open", narrow, x.dtype)
    return (
        linear("shared_expert_gate", x, "shared_gate", 1),
        Op("sigmoid", "shared_expert_gate.sigmoid", (gate,), (open_,)),
        _same("mul", "shared_expert_gate.mul", (activation("shared_plain", x.shape, x.dtype), open_), "shared_out"),
    )


def _same(kind: str, name: str, inputs: tuple[Tensor, ...], out: str) -> Op:
    """An elementwise op whose output is shaped as its first input."""
    return Op(kind, name, inputs, (activation(out, inputs[0].shape, inputs[0].dtype),))


def _choose(step: Step, experts: Experts, rows: int) -> tuple[Op, ...]:
    """Scores -> the `top_k` experts of each token and their weights, made to sum to 1 where the model wants that."""
    wide, few = (rows, experts.count), (rows, experts.top_k)
    logits, logits32 = activation("router_logits", wide, step.act), activation("router_logits32", wide, "fp32")
    scores, ids = activation("router_scores", wide, "fp32"), activation("expert_ids", few, "int32")
    weights = activation("expert_weights", few, "fp32")
    top = activation("top_scores", few, "fp32") if experts.normalised else weights
    total = activation("top_total", (rows, 1), "fp32")
    ops = [Op("cast", "router.cast", (logits,), (logits32,))]
    ops += _scores(experts, logits32, scores)
    if experts.hashed:
        ops += _looked_up(step, experts, scores, top, ids)
    elif experts.one_per_group:
        ops += _best_of_groups(experts, rows, top, ids)
    elif not experts.moves_choice:
        ops.append(Op("sort", "router.top_k", (scores,), (top, ids), op_type="TopKV2"))
    else:  # the bias moves the choice and not the weights
        biased = activation("router_biased", wide, "fp32")
        bias = weight("router.bias", (experts.count,), "fp32")
        ops.append(Op("add", "router.add_bias", (scores, bias), (biased,)))
        ops.append(
            Op("sort", "router.top_k", (biased,), (activation("top_biased", few, "fp32"), ids), op_type="TopKV2")
        )
        ops.append(Op("index_select", "router.gather", (scores, ids), (top,), op_type="GatherElements"))
    if experts.normalised:
        ops.append(Op("reduce_mean", "router.sum", (top,), (total,), op_type="ReduceSum"))
        ops.append(Op("div", "router.normalise", (top, total), (weights,)))
    return tuple(ops)


def _scores(experts: Experts, logits: Tensor, scores: Tensor) -> tuple[Op, ...]:
    if experts.score != "sqrtsoftplus":
        return (Op(experts.score, f"router.{experts.score}", (logits,), (scores,)),)
    soft = activation("router_softplus", logits.shape, logits.dtype)
    return Op("softplus", "router.softplus", (logits,), (soft,)), Op("sqrt", "router.sqrt", (soft,), (scores,))


def _looked_up(step: Step, experts: Experts, scores: Tensor, top: Tensor, ids: Tensor) -> tuple[Op, ...]:
    """The experts that a table names for the token's number, whose scores are their weights."""
    table = weight("router.tid2eid", (step.model.whole_vocab, experts.top_k), "int32")
    tokens = activation("input_ids", ids.shape[:1], "int64")
    return (
        Op("index_select", "router.look_up", (table, tokens), (ids,)),
        Op("index_select", "router.gather", (scores, ids), (top,), op_type="GatherElements"),
    )


def _best_of_groups(experts: Experts, rows: int, top: Tensor, ids: Tensor) -> tuple[Op, ...]:
    """The best expert of each group: the largest score of a view by group, then numbers in the group made numbers of
    the layer (vLLM-Ascend 0.9's pangu_moe.py, which calls torch.max and adds a range)."""
    groups = experts.top_k
    by_group = activation("router_scores", (rows, groups, experts.count // groups), "fp32")
    local = activation("group_ids", ids.shape, "int32")
    each = (("value", experts.count // groups),)
    return (
        Op("sort", "router.top_k", (by_group,), (top, local), op_type="ArgMaxWithValue"),
        Op("adds", "router.of_layer", (local,), (ids,), each, op_type="Add"),
    )


def _one_by_one(
    experts: Experts, item: Routing, x: Tensor, out: str, ids: Tensor, weights: Tensor | None
) -> tuple[Op, ...]:
    """Expert by expert: find and pick its rows, run its MLP, weigh, add to the sum; those that nobody chose are passed
    over. ids: the experts of each row of `x`; weights: next to them, None where rows are weighed elsewhere.

    Who chose whom is that of the first layer: a repeated block can be unrolled in one way only.
    """
    ops: list[Op] = []
    # A rank whose experts nobody chose there still makes a sum, and has tokens in other layers: one expert, one row.
    busy = [(expert, load) for expert, load in enumerate(item.loads(0)) if load] or [(0, 1)]
    for expert, load in busy:
        prefix = f"expert{expert}."
        picked = activation(f"{prefix}x", (load, x.shape[1]), x.dtype)
        result = activation(f"{prefix}out", picked.shape, x.dtype)
        index, share = activation(f"{prefix}index", (load,), "int64"), activation(f"{prefix}weights", (load, 1), "fp32")
        total = activation(out if expert == busy[-1][0] else "moe_sum", x.shape, x.dtype)
        outcome = (index,) if weights is None else (index, share)
        chosen = (ids,) if weights is None else (ids, weights)
        own = [
            Op("index_select", f"{prefix}find", chosen, outcome, op_type="NonZero"),
            Op("index_select", f"{prefix}pick", (x, index), (picked,)),
            *gated(
                picked,
                prefix,
                experts.intermediate,
                f"{prefix}out",
                experts.activation,
                limit=experts.limit,
                bias=experts.bias,
            ),
        ]
        if weights is not None:
            own.append(_same("mul", f"{prefix}weigh", (result, share), f"{prefix}weighed"))
            result = activation(f"{prefix}weighed", picked.shape, x.dtype)
        before = (activation("moe_sum", x.shape, x.dtype),) if expert != busy[0][0] else ()
        own.append(Op("index_add", f"{prefix}add", (result, index, *before), (total,)))
        ops += [replace(op, expert=expert) for op in own]
    return tuple(ops)


def _exchanged(step: Step, experts: Experts, item: Routing, x: Tensor, out: str) -> tuple[Op, ...]:
    """Rows in the order of their ranks, an all-to-all there, the experts, an all-to-all back, rows in their order."""
    ranks, top_k = step.model.ranks, experts.top_k
    sent = activation("rows_sent", (x.shape[0] * top_k, x.shape[1]), x.dtype)
    received = activation("rows_received", (max(1, item.rows), x.shape[1]), x.dtype)
    order = activation("row_experts", (received.shape[0],), "int32")
    done = activation("rows_done", received.shape, x.dtype)
    back = activation("rows_back", sent.shape, x.dtype)
    choice = (x.shape[0], top_k)
    ids, weights = activation("expert_ids", choice, "int32"), activation("expert_weights", choice, "fp32")
    group: tuple[tuple[str, Attr], ...] = (("ranks", ranks), ("top_k", top_k), ("imbalance", item.busiest(0)))
    return (
        Op("moe_init_routing", "exchange.permute", (x, ids), (sent,)),
        Op("all_to_all", "exchange.send", (sent,), (received, order), group),
        *_one_by_one(experts, item, received, "rows_done", order, None),
        Op("all_to_all", "exchange.return", (done,), (back,), group),
        Op("moe_finalize_routing", "exchange.unpermute", (back, weights), (activation(out, x.shape, x.dtype),)),
    )


def _gathered(
    step: Step, experts: Experts, item: Routing, mine: tuple[Tensor, Tensor, Tensor], out: str
) -> tuple[Op, ...]:
    """Tokens, choices and weights of all replicas come to every rank; each adds up its experts' part, and the sums go
    back to the replicas."""
    replicas = step.model.data_parallel
    group: tuple[tuple[str, Attr], ...] = (("ranks", replicas), ("stride", step.model.tensor_parallel))
    all_of = [activation(f"all_{t.name}", (t.shape[0] * replicas, *t.shape[1:]), t.dtype) for t in mine]
    x, ids, weights = all_of
    partial = activation("moe_partial", x.shape, x.dtype)
    return (
        *(Op("all_gather", f"gather.{t.name}", (t,), (whole,), group) for t, whole in zip(mine, all_of, strict=True)),
        *_one_by_one(experts, item, x, "moe_partial", ids, weights),
        Op("reduce_scatter", "scatter.experts", (partial,), (activation(out, mine[0].shape, x.dtype),), group),
    )
