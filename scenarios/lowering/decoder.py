"""A decoder as eager torch code issues it: nothing fused, packed, paged or quantised.

Blocks: `prepare` (host preamble), `embed`, `dense_layers` (those before the first layer with experts), `layers`
(repeated; each ends with the next layer's input norm, the last one with the final norm), `head`, `sample`. Activations
are [tokens, features]; q, k, v are [tokens, heads, head_dim].
"""

from __future__ import annotations

from scenarios.lowering.gqa import grouped_query_attention
from scenarios.lowering.mla import latent_attention
from scenarios.lowering.moe import mixture
from scenarios.lowering.prepare import prepare_contiguous
from scenarios.lowering.primitives import activation, linear, mlp, rms_norm, weight
from scenarios.lowering.step import Step
from scenarios.models.model import Model
from scenarios.ops.program import Batch, Block, DType, Op, Program, Tensor


def lower(step: Step, sampling: str = "greedy") -> Program:
    """One forward step of one rank, without its collectives (`scenarios.lowering.parallel` adds them)."""
    model, batch, act = step.model, step.batch, step.act
    dense = mlp(model, act, step.tokens)
    if not model.experts:
        layers: tuple[Block, ...] = (Block("layers", _layer(step, dense), model.layers),)
    else:
        layers = (Block("layers", _layer(step, mixture(step, model.experts)), model.layers - model.dense_layers),)
        if model.dense_layers:
            layers = (Block("dense_layers", _layer(step, dense), model.dense_layers), *layers)
    blocks = (
        prepare_contiguous(batch),
        _embed(model, act, step.tokens),
        *layers,
        _head(model, batch, act, step.tokens),
        _sample(model, batch, act, sampling),
    )
    return Program(blocks, batch)


def _embed(model: Model, act: DType, tokens: int) -> Block:
    ids = activation("input_ids", (tokens,), "int64")
    hidden = activation("residual", (tokens, model.hidden), act)
    positions = activation("positions", (tokens,), "int64")
    angles = activation("angles", (tokens, model.rotated // 2), "fp32")
    wide = (tokens, model.rotated)
    inv_freq = Tensor("inv_freq", (model.rotated // 2,), "fp32", "table")
    doubled = activation("angles2", wide, "fp32")
    table = weight("embed_tokens.weight", (model.vocab, model.hidden), act)
    ops = (
        Op("embedding", "embed_tokens", (table, ids), (hidden,)),
        Op("mul", "rotary.angles", (positions, inv_freq), (angles,)),
        Op("concat", "rotary.double", (angles, angles), (doubled,)),
        Op("cos", "rotary.cos", (doubled,), (activation("cos32", wide, "fp32"),)),
        Op("sin", "rotary.sin", (doubled,), (activation("sin32", wide, "fp32"),)),
        Op("cast", "rotary.cos_cast", (activation("cos32", wide, "fp32"),), (activation("cos", wide, act),)),
        Op("cast", "rotary.sin_cast", (activation("sin32", wide, "fp32"),), (activation("sin", wide, act),)),
        *(_join(model, hidden) if model.joined else ()),
        *rms_norm("input_norm", hidden, "normed", model.norm_eps),
    )
    return Block("embed", ops)


def _join(model: Model, hidden: Tensor) -> tuple[Op, ...]:
    """A draft's input: embeddings next to hidden states of the model, brought back to the hidden size."""
    rows, act = hidden.shape[0], hidden.dtype
    states = activation("hidden_states", (rows, (model.joined - 1) * model.hidden), act)
    joined = activation("joined", (rows, model.joined * model.hidden), act)
    return Op("concat", "join", (hidden, states), (joined,)), linear("eh_proj", joined, "residual", model.hidden)


def _layer(step: Step, mlp_ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """One layer around its MLP, which reads `mlp_in` and writes `mlp_out`."""
    model, act = step.model, step.act
    hidden = (step.tokens, model.hidden)
    x, residual = activation("normed", hidden, act), activation("residual", hidden, act)
    after_attention = activation("residual_mid", hidden, act)
    attention = latent_attention if model.latent else grouped_query_attention
    return (
        *attention(step, x),
        linear("o_proj", activation("attended", (step.tokens, model.attended), act), "attention_out", model.hidden),
        Op("add", "add_attention", (activation("attention_out", hidden, act), residual), (after_attention,)),
        *rms_norm("post_attention_norm", after_attention, "mlp_in", model.norm_eps),
        *mlp_ops,
        Op("add", "add_mlp", (activation("mlp_out", hidden, act), after_attention), (residual,)),
        *rms_norm("next_norm", residual, "normed", model.norm_eps),
    )


def _head(model: Model, batch: Batch, act: DType, tokens: int) -> Block:
    """LM head for the last token of each request; earlier tokens of a prefill or a draft are dropped first. A step that
    verifies a draft needs all."""
    normed = activation("normed", (tokens, model.hidden), act)
    ops: list[Op] = []
    rows = _chosen(model, batch)
    if batch.tokens > rows:
        last = activation("last", (rows, model.hidden), act)
        ops.append(Op("index_select", "last_token", (normed, activation("last_index", (rows,), "int64")), (last,)))
        normed = last
    else:
        rows = tokens
    ops.append(linear("lm_head", normed, "logits", model.vocab))
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
