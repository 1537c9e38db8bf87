"""Where the KV cache lies (paging) and how it is stored (INT8): two independent choices."""

from __future__ import annotations

from dataclasses import replace

from scenarios.lowering.prepare import prepare_paged
from scenarios.models.forms import AttentionForm
from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Op, Program, Tensor
from scenarios.passes.base import Context, Pass, in_layers, of_kind, replace_runs


def page_cache(program: Program, context: Context) -> Program:
    """Contiguous rows -> blocks found through a block table. The KV bytes of a token do not change."""
    size = context.scenario.optimizations.kv.block_size
    requests = program.batch.requests
    per_request = -(-context.scenario.longest_request_tokens // size)
    table = Tensor("block_table", (requests, per_request), "int32", "table")

    def pool(cache: Tensor, heads: int = 0) -> Tensor:
        """The blocks of a cache [requests, tokens, heads, dim]; heads: of one that is seen with its heads first."""
        row = (heads or cache.shape[2], cache.shape[3])
        return replace(cache, shape=(requests * per_request, size, *row))

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        out: list[Op] = []
        for op in ops:
            if _is_write(op):
                new, cache, slots = op.inputs
                out.append(replace(op, inputs=(new, pool(cache), slots), outputs=(pool(cache),), op_type=""))
            elif any(t.role == "kv_cache" for t in op.inputs) and kind_of(op).over_cache == "fixed":
                attrs = tuple((k, size if k == "block_size" else v) for k, v in op.attrs)
                # Compressed rows lie by request: [requests, rows, dim].
                pooled = tuple(pool(t) if t.role == "kv_cache" and len(t.shape) == 4 else t for t in op.inputs)
                out.append(replace(op, inputs=(*pooled, table), attrs=attrs))
            elif kind_of(op).over_cache == "growing" and op.inputs[0].role == "kv_cache":
                # Unfused attention cannot read through a block table: the blocks are gathered first.
                seen = op.inputs[0]
                flat = Tensor(f"{seen.name}.gathered", seen.shape, seen.dtype)
                out.append(Op("block_gather", f"gather_{seen.name}", (pool(seen, seen.shape[1]), table), (flat,)))
                out.append(replace(op, inputs=(flat,)))
            else:
                out.append(op)
        if context.scenario.optimizations.graph in ("eager", "aclgraph"):
            return replace_runs(tuple(out), ("kv_cache_write", "kv_cache_write"), _write_both)
        # Under torch.compile an op that mutates two inputs costs a copy of the whole pool, so K and V are written apart
        # there.
        return tuple(out)

    blocks = tuple(prepare_paged(program.batch) if b.name == "prepare" else b for b in program.blocks)
    return in_layers(program.with_blocks(blocks), "kv.layout", rewrite)


def _is_write(op: Op) -> bool:
    return op.kind == "kv_cache_write"


def _write_both(run: tuple[Op, ...]) -> tuple[Op, ...]:
    (k, k_pool, slots), (v, v_pool, _) = run[0].inputs, run[1].inputs
    return (
        Op("kv_cache_write", "write_kv", (k, v, k_pool, v_pool, slots), (k_pool, v_pool), op_type="ReshapeAndCache"),
    )


def quantise_cache(program: Program, context: Context) -> Program:
    """16-bit cache -> INT8: quantise before the write, dequantise inside attention; half the bytes of each token."""
    kv = context.scenario.optimizations.kv
    if kv.dtype != "int8":
        return program

    def scales(cache: Tensor, tokens: int) -> Tensor:
        """The scales of K or V: constants of the channels, or kept next to the cache for `tokens` tokens."""
        name = cache.name.replace("_cache", "_scale")
        if kv.scale == "channel":
            return Tensor(name, (cache.shape[2], 1, cache.shape[3]), context.act, "table")
        heads = cache.shape[2] if kv.scale == "head" else 1
        return Tensor(name, (tokens, heads), "fp32", "kv_cache")

    def quantised(x: Tensor, cache: Tensor) -> tuple[Op, Tensor, list[Tensor]]:
        q = Tensor(f"{x.name}_int8", x.shape, "int8")
        if kv.scale == "channel":
            return Op("static_quant", f"quant_{x.name}", (x, scales(cache, 0)), (q,)), q, []
        per_row = cache.shape[2] if kv.scale == "head" else 1
        scale = Tensor(f"{x.name}_new_scale", (x.shape[0], per_row), "fp32")
        rows = replace(x, shape=(x.shape[0] * per_row, x.elements // (x.shape[0] * per_row)))
        return Op("dynamic_quant", f"quant_{x.name}", (rows,), (q, scale)), q, [scale]

    def write(op: Op) -> list[Op]:
        new = [t for t in op.inputs if t.role == "activation"]
        pools = [replace(t, dtype="int8") for t in op.inputs if t.role == "kv_cache"]
        slots = op.inputs[-1]
        parts = [quantised(tensor, pool) for tensor, pool in zip(new, pools, strict=True)]
        stored = tuple(q for _, q, _ in parts)
        out = [quant for quant, _, _ in parts]
        out.append(replace(op, inputs=(*stored, *pools, slots), outputs=tuple(pools)))
        for (_, _, fresh), pool in zip(parts, pools, strict=True):
            held = scales(pool, pool.elements // (pool.shape[2] * pool.shape[3]))
            out += [Op("kv_cache_write", f"write_{held.name}", (scale, held, slots), (held,)) for scale in fresh]
        return out

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        out: list[Op] = []
        for op in ops:
            if _is_write(op):
                out += write(op)
            elif kind_of(op).family == "attention":
                query, key, value, *tables = op.inputs
                tokens = sum(g.count * g.kv_len for g in program.batch.groups)
                read = (scales(key, tokens), scales(value, tokens))
                inputs = (query, replace(key, dtype="int8"), replace(value, dtype="int8"), *tables, *read)
                out.append(replace(op, inputs=inputs))
            else:
                out.append(op)
        return tuple(out)

    return in_layers(program, "kv.dtype", rewrite)


def fuse_qkv_norm_rope_cache(program: Program, context: Context) -> Program:
    """Q and K norm, RoPE, (quantisation) and cache write -> one call on the packed projection; of MLA, which normalises
    the latent row only, one call for the row and one for the query's rotation."""
    if context.model.latent:
        return in_layers(program, "fusion.qkv_norm_rope_cache", _fuse_latent_write)

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        names = [op.name for op in ops]
        start, end = names.index("qkv_proj"), names.index("attention")
        qkv_proj, between = ops[start], ops[start + 1 : end]
        tokens = qkv_proj.inputs[0].shape[0]
        qkv = Tensor("qkv", (tokens, qkv_proj.inputs[1].shape[0]), context.act)
        rope = of_kind(between, "rope")[0]
        norms = of_kind(between, "rms_norm")
        gammas = tuple(op.inputs[1] for op in norms)
        writes = of_kind(between, "kv_cache_write")
        held = tuple(t for op in writes for t in op.inputs if t.role == "kv_cache")
        # The call leaves FRACTAL_NZ blocks, which attention has to read as such.
        pools = tuple(replace(t, format="nz") for t in held)
        slots = writes[0].inputs[-1]
        scales = tuple(t for op in of_kind(between, "static_quant") for t in op.inputs[1:])
        fused = Op(
            "qkv_norm_rope_cache",
            "qkv_norm_rope_cache",
            (qkv, *gammas, *rope.inputs[2:], *scales, slots, *pools),
            (rope.out, *pools),
            norms[0].attrs,
        )
        attention = ops[end]
        read = tuple(replace(t, format="nz") if t in held else t for t in attention.inputs)
        return (
            *ops[:start],
            replace(qkv_proj, outputs=(qkv,)),
            fused,
            replace(attention, inputs=read),
            *ops[end + 1 :],
        )

    return in_layers(program, "fusion.qkv_norm_rope_cache", rewrite)


def _fuse_latent_write(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Norm of the latent row, RoPE of its rotated part and both cache writes -> npu_kv_rmsnorm_rope_cache."""
    by_name = {op.name: op for op in ops}
    norm, rope = by_name["kv_a_norm"], by_name["rope"]
    writes = [op for op in of_kind(ops, "kv_cache_write") if op.name != "write_index"]
    slices = [by_name["slice_kv_c"], by_name["slice_k_pe"]]
    q, _, *angles = rope.inputs
    latent = norm.inputs[0]
    row = Tensor(slices[0].inputs[0].name, (latent.shape[0], latent.shape[1] + slices[1].out.shape[-1]), latent.dtype)
    pools = tuple(t for op in writes for t in op.outputs)
    slots = next(t for t in writes[0].inputs if t.name == "slots")
    # Attention of a prefill unpacks the new rows, which are then given out too.
    read = {t.name for op in ops if op not in writes for t in op.inputs}
    kept = tuple(t for t in (norm.out, rope.outputs[1]) if t.name in read)
    fused = (
        Op("kv_norm_rope_cache", "kv_norm_rope_cache", (row, norm.inputs[1], *angles, slots, *pools), (*pools, *kept)),
        Op("interleave_rope", "rope", (q, *angles), rope.outputs[:1]),
    )
    removed = {id(op) for op in (norm, rope, *writes, *slices)}
    at = next(i for i, op in enumerate(ops) if op is norm)
    return (
        *(op for op in ops[:at] if id(op) not in removed),
        *fused,
        *(op for op in ops[at:] if id(op) not in removed),
    )


def _has_norms_and_one_scale(context: Context) -> str | None:
    model = context.model
    if model.latent and (any(one.state for one in model.kinds) or not model.attention.rotates):
        return f"latent rows of {model.name} do not turn, or not all layers keep them"
    if model.latent:
        return None
    if context.model.kinds:
        return f"the layers of {context.model.name} differ, and the fused kernel is that of plain attention in each"
    if not context.model.qk_norm:
        return f"{context.model.name} has no Q and K norm to fuse"
    if context.model.qk_norm_of == "layer":
        return f"{context.model.name} normalises all heads together, and the fused kernel each by itself"
    if context.model.qk_norm_of == "own":
        return f"{context.model.name} has layer norms of Q and K, and the fused kernel RMSNorms"
    if context.model.attention != AttentionForm():
        return f"{context.model.name} does more to queries, keys and values than the fused kernel"
    if context.model.rotated != context.model.head_dim:
        return f"{context.model.name} turns part of each head, and the fused kernel turns whole ones"
    kv = context.scenario.optimizations.kv
    if kv.dtype == "int8" and kv.scale != "channel":
        return "the fused cache write takes only one INT8 scale a channel (kv.scale channel)"
    return None


def no_int8_cache(model: Model) -> str | None:
    """Why a model's cache cannot be INT8, None where it can."""
    kinds = (model, *model.kinds)
    if any(one.shared_kv for one in kinds):
        return f"{model.name} has one row for keys and values, and no fused call reads it in INT8"
    if any(one.latent for one in kinds):
        return f"{model.name} keeps latent rows, and those are not modelled in INT8"
    return None


def _no_int8_cache(context: Context) -> str | None:
    return no_int8_cache(context.model)


LAYOUT = Pass(
    switch="kv.layout",
    title="Paged KV cache",
    off=("contiguous",),
    on="paged",
    rewrite=page_cache,
    rewrites="cache rows reserved at full length -> blocks handed out on demand, found through a block table",
    saves="fragmentation: more requests fit",
    costs=(
        "16 small host calls a step for slots and tables, block table reads, the waste of the last block; the bytes "
        "of a token stay the same"
    ),
    claim="paging changes where KV lies, not how many bytes a token has",
    for_capacity=True,
    name=("KV cache {value}", "KV 缓存 {value}"),
    label=("Layout", "布局"),
    help=(
        "contiguous reserves max_model_len for each request; paged hands out blocks.",
        "contiguous 为每个请求预留最大长度；paged 按块分配。",
    ),
)
DTYPE = Pass(
    switch="kv.dtype",
    title="INT8 KV cache",
    off=("auto", "bf16", "fp16"),
    on="int8",
    rewrite=quantise_cache,
    needs=(("fusion.attention", (True,)),),
    refuse=_no_int8_cache,
    rewrites="16-bit keys and values -> INT8 with scales",
    saves="half the KV bytes: traffic and capacity",
    costs="quantise before the write, dequantise inside attention, scales, some quality",
    claim="quantisation changes the bytes",
    for_capacity=True,
    name=("KV cache {value}", "KV 缓存 {value}"),
    label=("Element type", "元素类型"),
    help=("Element type of keys and values; auto follows the activations.", "键和值的元素类型；auto 与激活相同。"),
)
QKV_NORM_ROPE_CACHE = Pass(
    switch="fusion.qkv_norm_rope_cache",
    title="Q/K norm + RoPE + cache write",
    rewrite=fuse_qkv_norm_rope_cache,
    needs=(
        ("fusion.qkv", (True,)),
        ("fusion.rms_norm", (True,)),
        ("fusion.rope", (True,)),
        ("fusion.attention", (True,)),
        ("kv.layout", ("paged",)),
    ),
    refuse=_has_norms_and_one_scale,
    rewrites="two RMSNorms, RoPE, cache writes -> npu_qkv_rms_norm_rope_cache",
    saves="three to seven launches a layer and the round trips of q, k and v",
    costs="needs a packed projection and a paged cache",
    claim="deeper is not always faster",
    name=("norm + RoPE + cache write", "归一化 + RoPE + 写缓存"),
    label=("Norm + RoPE + cache write", "归一化 + RoPE + 写缓存"),
    help=(
        "Q and K norm, RoPE and cache write -> npu_qkv_rms_norm_rope_cache.",
        "Q/K 归一化、RoPE 与写缓存 → npu_qkv_rms_norm_rope_cache。",
    ),
)
