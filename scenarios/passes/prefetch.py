"""Weights on their way into L2 before they are needed: npu_prefetch (aclrtCmoAsync) on a second stream."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from scenarios.batches import reported_batch
from scenarios.lowering.stacks import NextToVectors, kernels_of
from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Op, Program, Tensor
from scenarios.passes.base import Context, Pass, in_layers
from scenarios.settings import Settings

#: The stream of the prefetches.
STREAM = 1


def prefetch_weights(program: Program, context: Context) -> Program:
    """Within a layer, or whole layers ahead, as is asked for or as the stack does it; each product waits for its own
    weights.

    Whether they are still in L2 when they are needed is for the simulator to say: it knows how large L2 is.
    """
    asked = context.scenario.optimizations.overlap.prefetch_layers
    kernels = kernels_of(context.scenario)
    if asked is None and kernels.next_to_vectors:
        rules, tokens = kernels.next_to_vectors, program.batch.tokens
        fetch = _of_experts if context.model.experts else partial(_of_the_mlp, hooked=_hooked(context.scenario))
        applies = _nothing_to_fetch(rules, context.model, tokens) is None
        return in_layers(program, "overlap.prefetch", partial(fetch, rules=rules) if applies else tuple)
    ahead = kernels.layers_ahead if asked is None else asked
    return in_layers(program, "overlap.prefetch", partial(_layers_ahead, ahead=ahead) if ahead else _within_layer)


def _within_layer(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Once the last product before attention has ended, the weights of all later products of the layer are fetched, one
    after the other, alongside RoPE, cache write, attention and norms."""
    attention = next((i for i, op in enumerate(ops) if _attends(op)), len(ops))
    before = [i for i, op in enumerate(ops) if kind_of(op).dense and i < attention]
    later = [i for i, op in enumerate(ops) if kind_of(op).dense and i > attention]
    if not before or not later:
        return ops
    together = sum(_weight(ops[i]).bytes for i in later)
    out: list[Op] = []
    for i, op in enumerate(ops):
        if i == before[-1]:
            out.append(replace(op, records=(*op.records, "prefetch")))
            out += [_fetch(ops[j]) for j in later]
        elif i in later:
            out.append(_fetched(op, together))
        else:
            out.append(op)
    return tuple(out)


def _layers_ahead(ops: tuple[Op, ...], ahead: int) -> tuple[Op, ...]:
    """While a layer runs, the weights of all products of the next one, or of the one after, are fetched, from its start
    on. Layers are alike, so the first ones are taken to find their weights too; the LM head's do not fit L2 and are
    left out. What is on its way to L2 at once is the weights of `ahead` layers.

    A static cache is fetched too, from its update on, while attention already reads it (lukaIvanic/paddle_ocr_vl_npu,
    10_qwen3_8b_inference/README.md: "post-scatter K/V prefetch"): attention waits for nothing, and all its bytes pass
    HBM while it runs, so the fetch is no copy of its own here.
    """
    dense = [i for i, op in enumerate(ops) if kind_of(op).dense]
    if not dense or dense[-1] + 1 == len(ops):
        return ops
    together = ahead * sum(_weight(ops[i]).bytes for i in dense)
    out = [_fetched(op, together) if i in dense else _cache_on_its_way(op) for i, op in enumerate(ops)]
    # The fetches stand behind the products, so that those wait for the layer before; its last op lets them start.
    out[-1] = replace(out[-1], records=(*out[-1].records, "prefetch"))
    behind = dense[-1] + 1
    return (*out[:behind], *(_fetch(ops[i]) for i in dense), *out[behind:])


def _hooked(settings: Settings) -> bool:
    """Whether vLLM-Ascend's own row-parallel product, which sends for gate and up, stands behind attention: with
    FlashComm1 or the fused all-reduce (`_get_row_parallel_op` of its ops/linear_op.py)."""
    return settings.engine.sequence_parallel or settings.optimizations.fusion.matmul_all_reduce


def _of_the_mlp(ops: tuple[Op, ...], rules: NextToVectors, hooked: bool) -> tuple[Op, ...]:
    """Gate and up once attention's output is summed, next to the norm, where that is `hooked`; down once these have
    ended, next to the activation. Of products side by side the first one's."""
    attention = next((i for i, op in enumerate(ops) if _attends(op)), len(ops))
    dense = [i for i, op in enumerate(ops) if kind_of(op).dense and i > attention]
    first_of_group = [i for i in dense[1:] if i - 1 not in dense][0 if hooked else 1 :]
    starts = {}
    for i in first_of_group:
        before = max(j for j in dense if j < i)
        starts[i] = before + kind_of(ops[before + 1]).is_collective
    return _with_fetches(ops, {i: (starts[i], min(_weight(ops[i]).bytes, rules.max_bytes)) for i in first_of_group})


def _of_experts(ops: tuple[Op, ...], rules: NextToVectors) -> tuple[Op, ...]:
    """Gate and up of all experts of the rank once the router has ended, next to the choice and the exchange."""
    router = next((i for i, op in enumerate(ops) if op.name == "router"), len(ops))
    grouped = next((i for i, op in enumerate(ops) if i > router and kind_of(op).reads_choice), None)
    if grouped is None:
        return ops
    return _with_fetches(ops, {grouped: (router, int(rules.experts_share * _weight(ops[grouped]).bytes))})


def _with_fetches(ops: tuple[Op, ...], fetches: dict[int, tuple[int, int]]) -> tuple[Op, ...]:
    """`ops` with a fetch for each product at a place of `fetches`: (place of the op behind which it starts, bytes)."""
    out: list[Op] = []
    for i, op in enumerate(ops):
        if i in fetches:
            size = fetches[i][1]
            op = _fetched(op, size, size)
        starting = [(product, size) for product, (start, size) in fetches.items() if start == i]
        for product, size in starting:
            event = f"prefetch {ops[product].name}"
            op = replace(op, records=(*op.records, event))
            fetch = replace(_fetch(ops[product]), waits=(event,), attrs=(("bytes", size),))
            out += [op, fetch]
        if not starting:
            out.append(op)
    return tuple(out)


def _nothing_to_fetch(rules: NextToVectors, model: Model, tokens: int) -> str | None:
    """Why a step of `tokens` tokens has nothing prefetched; None where it has."""
    if model.experts and tokens < rules.experts_from_tokens:
        return f"vLLM-Ascend prefetches experts from {rules.experts_from_tokens} tokens a step on, got {tokens}"
    if not model.experts and tokens >= rules.below_tokens:
        return f"vLLM-Ascend prefetches in steps of fewer than {rules.below_tokens} tokens, got {tokens}"
    return None


def _refused(context: Context) -> str | None:
    """The reported step would be as it is without."""
    rules = kernels_of(context.scenario).next_to_vectors
    if rules is None or context.scenario.optimizations.overlap.prefetch_layers is not None:
        return None
    return _nothing_to_fetch(rules, context.model, reported_batch(context.scenario).tokens)


def _fetched(product: Op, together: int, size: int | None = None) -> Op:
    """`product`, which waits for its weights to be in L2. together: bytes that are there at once; size: its own."""
    attrs = (("prefetched_bytes", size or _weight(product).bytes), ("prefetched_together_bytes", together))
    return replace(product, attrs=(*product.attrs, *attrs), waits=(*product.waits, f"prefetched {product.name}"))


def _cache_on_its_way(op: Op) -> Op:
    """`op`, whose cache is prefetched if it is attention over a static one."""
    return replace(op, attrs=(*op.attrs, ("cache_prefetched", True))) if op.attr("static_tokens", 0) else op


def _attends(op: Op) -> bool:
    """Whether attention multiplies from `op` on, in one kernel or in pieces."""
    return kind_of(op).over_cache != "" and kind_of(op).family != "vector"


def _weight(product: Op) -> Tensor:
    return product.inputs[1]


def _fetch(product: Op) -> Op:
    return Op(
        "prefetch",
        f"prefetch.{product.name}",
        (_weight(product),),
        (),
        stream=STREAM,
        waits=("prefetch",),
        records=(f"prefetched {product.name}",),
    )


PREFETCH = Pass(
    switch="overlap.prefetch",
    title="Weight prefetch",
    rewrite=prefetch_weights,
    refuse=_refused,
    rewrites=(
        "weights of the products after attention (TorchAir: of all of the next layer's) are fetched into L2 on a "
        "second stream, beside attention; vLLM-Ascend: of the MLP, or of experts, beside the vector kernels before"
    ),
    saves="HBM idles less: products find their weights in L2",
    costs="HBM shared with what runs beside it; a launch for each; what L2 cannot keep is read twice",
    claim="overlap pays where the data fits the cache, and costs where it does not",
    name=("weights prefetched", "预取权重"),
    label=("Prefetch weights to L2", "预取权重到 L2"),
    help=(
        "Prefetch the next weights into L2 beside vector work and attention.",
        "在向量计算与注意力旁把下一份权重预取到 L2。",
    ),
)
