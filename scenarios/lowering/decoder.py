"""A decoder as eager torch code issues it: nothing fused, packed, paged or quantised.

Blocks: `prepare` (host preamble), `embed`, `dense_layers` (those with a plain MLP in a model with experts), `layers`
(repeated; each ends with the next layer's input norm, the last one with the final norm), `head`, `sample`. Where kinds
of layers take turns there are several of the middle ones, numbered. Activations are [tokens, features]; q, k, v are
[tokens, heads, head_dim].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from scenarios.lowering.alongside import plain_and_experts
from scenarios.lowering.delta import gated_delta
from scenarios.lowering.gqa import grouped_query_attention
from scenarios.lowering.kda import kimi_delta
from scenarios.lowering.mamba import mamba2, short_convolution
from scenarios.lowering.mla import latent_attention
from scenarios.lowering.moe import mixture
from scenarios.lowering.prepare import prepare_contiguous
from scenarios.lowering.primitives import activation, hidden_norm, linear, mlp, weight
from scenarios.lowering.shared_kv import shared_kv_attention
from scenarios.lowering.step import Step
from scenarios.lowering.streams import read_streams, repeated, summed_streams, written_streams
from scenarios.models.forms import HyperConnections
from scenarios.models.model import Model
from scenarios.models.states import GatedDelta, KimiDelta, Mamba2, ShortConv
from scenarios.ops.program import Attr, Batch, Block, DType, Op, Program, Tensor
from scenarios.ops.traced import remembered


@remembered(maxsize=64)
def lower(step: Step, sampling: str = "greedy") -> Program:
    """One forward step of one rank, without its collectives (`scenarios.lowering.parallel` adds them).

    Remembered: what-ifs of one step differ in what passes make of it.
    """
    model, batch, act = step.model, step.batch, step.act
    blocks = (
        prepare_contiguous(batch),
        _embed(model, act, step.tokens),
        *_layers(step),
        _head(model, batch, act, step.tokens),
        _sample(model, batch, act, sampling),
    )
    return Program(blocks, batch)


def _layers(step: Step) -> Iterator[Block]:
    """The layers, run by run of those that are alike. All runs of one kind share one tuple of ops."""
    lowered: dict[int, tuple[Op, ...]] = {}
    blocks: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for one, count in step.model.runs:
        if id(one) not in lowered:
            lowered[id(one)] = _layer(replace(step, model=one))
        family = "dense_layers" if step.model.experts and one.experts is None else "layers"
        blocks[family] += 1
        name = family if blocks[family] == 1 else f"{family}.{blocks[family]}"
        yield Block(name, lowered[id(one)], count, first=before[family])
        before[family] += count


def _embed(model: Model, act: DType, tokens: int) -> Block:
    ids = activation("input_ids", (tokens,), "int64")
    hidden = activation("residual", (tokens, model.hidden), act)
    table = weight("embed_tokens.weight", (model.vocab, model.hidden), act)
    ops = [Op("embedding", "embed_tokens", (table, ids), (hidden,))]
    if model.ends.embed_scale != 1:
        ops.append(Op("muls", "scale_embedding", (hidden,), (hidden,), (("value", model.ends.embed_scale),)))
    for one in model.turns.values():
        ops += _angles(one, act, tokens)
    ops += _join(model, hidden) if model.joined else ()
    if model.form.hyper:
        ops.append(repeated(model, hidden))
    elif model.form.pre_norms:
        ops += hidden_norm("input_norm", hidden, "normed", model)
    return Block("embed", tuple(ops))


def _join(model: Model, hidden: Tensor) -> tuple[Op, ...]:
    """A draft's input: embeddings next to hidden states of the model, brought back to the hidden size."""
    rows, act = hidden.shape[0], hidden.dtype
    states = activation("hidden_states", (rows, (model.joined - 1) * model.hidden), act)
    joined = activation("joined", (rows, model.joined * model.hidden), act)
    return Op("concat", "join", (hidden, states), (joined,)), linear("eh_proj", joined, "residual", model.hidden)


def _angles(model: Model, act: DType, tokens: int) -> tuple[Op, ...]:
    """Cosines and sines of the step's positions, of the layers that turn by them."""
    which, wide = model.angles, (tokens, model.rotated)
    positions = activation("positions", (tokens,), "int64")
    angles = activation(f"angles{which}", (tokens, model.rotated // 2), "fp32")
    inv_freq = Tensor(f"inv_freq{which}", (model.rotated // 2,), "fp32", "table")
    doubled = activation(f"angles2{which}", wide, "fp32")
    cos32, sin32 = (activation(f"{name}32{which}", wide, "fp32") for name in ("cos", "sin"))
    cos, sin = (activation(f"{name}{which}", wide, act) for name in ("cos", "sin"))
    return (
        Op("mul", f"rotary{which}.angles", (positions, inv_freq), (angles,)),
        Op("concat", f"rotary{which}.double", (angles, angles), (doubled,)),
        Op("cos", f"rotary{which}.cos", (doubled,), (cos32,)),
        Op("sin", f"rotary{which}.sin", (doubled,), (sin32,)),
        Op("cast", f"rotary{which}.cos_cast", (cos32,), (cos,)),
        Op("cast", f"rotary{which}.sin_cast", (sin32,), (sin,)),
    )


def _layer(step: Step) -> tuple[Op, ...]:
    """One layer: attention, its MLP, or both, each added to the residual."""
    model, act, form = step.model, step.act, step.model.form
    if form.hyper:
        return _layer_of_streams(step, form.hyper)
    hidden = (step.tokens, model.hidden)
    residual = activation("residual", hidden, act)
    ops: list[Op] = []
    source = "normed" if form.pre_norms else "residual"
    if form.attends:
        after = activation("residual_mid", hidden, act) if form.has_mlp else residual
        attended = activation("attended", (step.tokens, model.attended), act)
        ops += _attention(step, activation(source, hidden, act))
        ops.append(linear("o_proj", attended, "attention_out", model.hidden, model.attention.out_bias))
        ops += _added(model, "attention", activation("attention_out", hidden, act), residual, after)
        if form.has_mlp and form.pre_norms and not form.parallel:
            ops += hidden_norm("post_attention_norm", after, "mlp_in", model)
        source = source if form.parallel else "mlp_in" if form.pre_norms else after.name
    if form.has_mlp:
        before = activation("residual_mid", hidden, act) if form.attends else residual
        experts = model.experts
        out = "mlp_out"
        if experts and experts.with_plain:
            ops, out = [*ops, *plain_and_experts(step, experts)], "mlp_sum"
        else:
            ops += mixture(step, experts, source) if experts else mlp(model, act, step.tokens, source)
        ops += _added(model, "mlp", activation(out, hidden, act), before, residual)
    if form.layer_scale:
        ops.append(Op("mul", "layer_scale", (residual, weight("layer_scalar.weight", (1,), act)), (residual,)))
    if form.pre_norms:
        ops += hidden_norm("next_norm", residual, "normed", model)
    return tuple(ops)


def _layer_of_streams(step: Step, hyper: HyperConnections) -> tuple[Op, ...]:
    """The same where the residual is several streams, which attention and MLP read and write by weights."""
    model, act, tokens = step.model, step.act, step.tokens
    hidden = (tokens, model.hidden)
    attended = activation("attended", (tokens, model.attended), act)
    return (
        read_streams(model, hyper, "attention", tokens, act),
        *hidden_norm("attention_norm", activation("attention_read", hidden, act), "normed", model),
        *_attention(step, activation("normed", hidden, act)),
        linear("o_proj", attended, "attention_out", model.hidden),
        written_streams(model, "attention", activation("attention_out", hidden, act)),
        read_streams(model, hyper, "mlp", tokens, act),
        *hidden_norm("post_attention_norm", activation("mlp_read", hidden, act), "mlp_in", model),
        *(mixture(step, model.experts) if model.experts else mlp(model, act, tokens)),
        written_streams(model, "mlp", activation("mlp_out", hidden, act)),
    )


def _attention(step: Step, x: Tensor) -> tuple[Op, ...]:
    match step.model.state:
        case KimiDelta() as state:
            return kimi_delta(step, x, state)
        case GatedDelta() as state:
            return gated_delta(step, x, state)
        case Mamba2() as state:
            return mamba2(step, x, state)
        case ShortConv() as state:
            return short_convolution(step, x, state)
    if step.model.shared_kv:
        return shared_kv_attention(step, x)
    return (latent_attention if step.model.latent else grouped_query_attention)(step, x)


def _added(model: Model, name: str, x: Tensor, residual: Tensor, out: Tensor) -> tuple[Op, ...]:
    """`x` added to the residual, normed and scaled before where the layer does so."""
    ops: list[Op] = []
    if model.form.post_norms:
        ops += hidden_norm(f"{name}_out_norm", x, f"{name}_out_normed", model)
        x = activation(f"{name}_out_normed", x.shape, x.dtype)
    if model.form.residual_scale != 1:
        scaled = activation(f"{name}_out_scaled", x.shape, x.dtype)
        ops.append(Op("muls", f"scale_{name}", (x,), (scaled,), (("value", model.form.residual_scale),)))
        x = scaled
    return (*ops, Op("add", f"add_{name}", (x, residual), (out,)))


def _head(model: Model, batch: Batch, act: DType, tokens: int) -> Block:
    """LM head for the last token of each request; earlier tokens of a prefill or a draft are dropped first. A step that
    verifies a draft needs all."""
    normed = activation("normed", (tokens, model.hidden), act)
    ops: list[Op] = []
    if model.form.hyper:
        ops += summed_streams(model, model.form.hyper, tokens, act)
    if model.form.hyper or not model.form.pre_norms:
        ops += hidden_norm("final_norm", activation("residual", normed.shape, act), "normed", model)
    rows = _chosen(model, batch)
    if batch.tokens > rows:
        last = activation("last", (rows, model.hidden), act)
        ops.append(Op("index_select", "last_token", (normed, activation("last_index", (rows,), "int64")), (last,)))
        normed = last
    else:
        rows = tokens
    ends, wide = model.ends, (rows, model.whole_vocab)  # behind the gathering of all ranks' logits
    steps: list[tuple[str, str, tuple[tuple[str, Attr], ...]]] = []
    if ends.logit_scale != 1:
        steps.append(("muls", "scale_logits", (("value", ends.logit_scale),)))
    if ends.logit_cap:
        steps += [
            ("muls", "cap_logits.down", (("value", 1 / ends.logit_cap),)),
            ("tanh", "cap_logits.tanh", ()),
            ("muls", "cap_logits.up", (("value", ends.logit_cap),)),
        ]
    ops.append(linear("lm_head", normed, "logits_raw" if steps else "logits", model.vocab))
    for at, (kind, name, attrs) in enumerate(steps):
        x = activation(ops[-1].out.name, wide, act)
        out = activation("logits" if at == len(steps) - 1 else f"{name}.out", wide, act)
        ops.append(Op(kind, name, (x,), (out,), attrs))
    return Block("head", tuple(ops))


def _chosen(model: Model, batch: Batch) -> int:
    """Tokens for which the step chooses a next one."""
    verifies = batch.phase == "decode" and not model.joined
    return batch.tokens if verifies else batch.requests


def _sample(model: Model, batch: Batch, act: DType, sampling: str) -> Block:
    rows = _chosen(model, batch)
    logits = activation("logits", (rows, model.whole_vocab), act)
    logits32 = activation("logits32", (rows, model.whole_vocab), "fp32")
    chosen = activation("chosen", (rows,), "int64")
    ops: list[Op] = [Op("cast", "logits_cast", (logits,), (logits32,))]
    best = logits32
    if sampling == "top_k_top_p":
        shape = (rows, model.whole_vocab)
        one = activation("temperature", (rows, 1), "fp32")
        ops += [
            Op("div", "temperature", (logits32, one), (activation("scaled_logits", shape, "fp32"),)),
            Op(
                "sort",
                "sort",
                (activation("scaled_logits", shape, "fp32"),),
                (activation("sorted", shape, "fp32"), activation("order", shape, "int32")),
            ),
            Op(
                "top_k_top_p",
                "top_k_top_p",
                (activation("sorted", shape, "fp32"), activation("order", shape, "int32")),
                (activation("kept", shape, "fp32"),),
            ),
            Op("softmax", "softmax", (activation("kept", shape, "fp32"),), (activation("probs", shape, "fp32"),)),
            Op(
                "div",
                "exponential_race",
                (activation("probs", shape, "fp32"), activation("noise", shape, "fp32")),
                (activation("race", shape, "fp32"),),
            ),
        ]
        best = activation("race", shape, "fp32")
    ops += [
        Op("argmax", "argmax", (best,), (chosen,)),
        Op("cast", "token_cast", (chosen,), (activation("next_ids", (rows,), "int64"),)),
    ]
    return Block("sample", tuple(ops))
