"""Scenarios, models and programs for tests: short builders, random scenarios, the data flow of a program as rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import strategies as st

from scenarios.batches import reported_batch
from scenarios.build import build, effective_graph
from scenarios.lowering.decoder import lower
from scenarios.lowering.step import Step
from scenarios.models.model import Experts, Index, Latent, Model
from scenarios.ops.catalogue import CATALOGUE, work_of
from scenarios.ops.program import Batch, Op, Program, Tensor
from scenarios.ops.work import Work
from scenarios.passes import PASSES, Context, Pass
from scenarios.passes.base import set_switch
from scenarios.passes.switches import activation_dtype
from scenarios.schema import Fusion, Scenario

#: Small enough for sums by hand: q 16, k and v 8 wide.
TINY = Model(
    name="tiny", model_type="qwen3", hidden=16, intermediate=24, layers=2, heads=4, kv_heads=2, head_dim=4, vocab=32,
    max_position=8192, norm_eps=1e-6, rope_theta=10_000.0, tied_embeddings=False, qk_norm=True, qkv_bias=False,
    dtype="bf16",
)  # fmt: skip
PLAIN = replace(TINY, name="plain", model_type="llama", qk_norm=False)
BIASED = replace(TINY, name="biased", model_type="qwen2", qk_norm=False, qkv_bias=True)
#: Eight experts of which each token takes two, behind one dense layer; the other has a shared expert and MLA.
EXPERTS = replace(
    TINY, name="experts", model_type="qwen3_moe", layers=3, experts=Experts(8, 8, 2, 12, 0, 1, "softmax", False)
)
LATENT = replace(
    PLAIN,
    name="latent",
    model_type="deepseek_v3",
    layers=3,
    kv_heads=1,
    head_dim=2,
    latent=Latent(6, 8, 4, 2, 4),
    experts=Experts(8, 8, 2, 12, 12, 1, "sigmoid", True),
)
#: The same with an indexer; and Q and K norms over all heads.
SPARSE = replace(LATENT, name="sparse", model_type="deepseek_v32", latent=Latent(6, 8, 4, 2, 4, Index(2, 4, 5)))
LAYER_NORMS = replace(EXPERTS, name="layer norms", model_type="minimax_m2", qk_norm_of="layer")
#: Half of each normalised head turns; the weights of a token's experts are taken as the router scores them.
PARTIAL = replace(
    EXPERTS,
    name="partial",
    model_type="glm4_moe",
    rotary_dim=2,
    qkv_bias=True,
    experts=Experts(8, 8, 2, 12, 12, 1, "softmax", False, normalised=False),
)

#: What a step is given from outside: by the host, or by an earlier step.
STEP_INPUTS = {"input_ids", "positions", "lengths", "last_index", "mask", "temperature", "noise"}
TABLES = {"slots", "block_table", "inv_freq", "cos_table", "sin_table", "k_scale", "v_scale", "hadamard"} | {
    f"{name}_2{end}" for name, end in (("inv_freq", ""), ("cos", "_table"), ("sin", "_table"))
}
#: Outputs that no op of the step reads: statistics a kernel writes anyway, and what the host or the next step takes.
TAKEN_OUTSIDE = {"next_ids", "parameters", "mask_template", "lengths", "residual"}


def scenario(**settings: object) -> Scenario:
    """A scenario from dotted fields written with double underscores: scenario(workload__batch=4)."""
    tree: dict[str, object] = {}
    for path, value in settings.items():
        *parts, last = path.split("__")
        branch = tree
        for part in parts:
            branch = branch.setdefault(part, {})  # type: ignore[assignment]
        branch[last] = value
    return Scenario.model_validate(tree)


def switched(base: Scenario, **switches: object) -> Scenario:
    """`base` with switches below `optimizations` set: switched(s, fusion__rope=True)."""
    for path, value in switches.items():
        base = set_switch(base, path.replace("__", "."), value)
    return base


def bare(about: Model = TINY, **settings: object) -> Scenario:
    """A scenario with every optimisation off that has something to say about the model `about`."""
    bare = scenario(**settings)
    for item in PASSES:
        if not item.idle(about):
            bare = set_switch(bare, item.switch, item.off[0])
    return bare


def program(result: Scenario, model: Model = TINY, batch: Batch | None = None) -> Program:
    """The program of the scenario's reported step, or of another batch."""
    return build(result, model, batch or reported_batch(result))


def stages(result: Scenario, model: Model = TINY) -> Iterator[tuple[Pass, Program, Program]]:
    """Each pass that is on, with the program before and after it, as `build` applies them."""
    batch = reported_batch(result)
    mode, rows = effective_graph(result, batch)
    result = set_switch(result, "graph", mode)
    context = Context(result, model, activation_dtype(result, model))
    before = lower(Step(model, batch, context.act, result.longest_request_tokens, rows), result.workload.sampling)
    for item in PASSES:
        if item.is_on(result) and not item.idle(model):
            after = item.rewrite(before, context)
            yield item, before, after
            before = after


def kinds(program: Program, block: str = "layers") -> list[str]:
    return [op.kind for op in program.block(block).ops]


def names(result: Program, block: str = "layers") -> list[str]:
    return [op.name for op in result.block(block).ops]


def op(result: Program, name: str, block: str = "layers") -> Op:
    """The op called `name`."""
    return next(o for o in result.block(block).ops if o.name == name)


def works(result: Program) -> list[tuple[Op, Work]]:
    """Each op of the expanded step with its work."""
    return [(issued.op, work_of(issued.op)) for issued in result]


def cube_flops(result: Program) -> int:
    return sum(work.cube_flops for _, work in works(result))


def gm_bytes(result: Program) -> int:
    """Global-memory bytes of the whole step."""
    return sum(work.gm_bytes for _, work in works(result))


def weight_tensors(result: Program) -> dict[str, tuple[Tensor, int]]:
    """Each weight once, with the number of layers that have one of their own."""
    tensors: dict[str, tuple[Tensor, int]] = {}
    for block in result.blocks:
        for one in block.ops:
            for tensor in one.inputs:
                if tensor.role == "weight":
                    tensors[tensor.name] = (tensor, block.repeat)
    return tensors


def weight_bytes(result: Program) -> int:
    return sum(tensor.bytes * repeat for tensor, repeat in weight_tensors(result).values())


PHASES = ("decode", "prefill", "mixed")


@st.composite
def scenarios(draw: st.DrawFn, phases: tuple[str, ...] = PHASES, model: Model = TINY) -> Scenario:
    """Any setting of the switches on small and large batches; many are contradictory and must be refused. Switches that
    have nothing to say about `model` stay where they are."""
    idle = {item.switch for item in PASSES if item.idle(model)}
    fusion = {name: draw(st.booleans()) for name in Fusion.model_fields if f"fusion.{name}" not in idle}
    style = draw(st.sampled_from(["any", "plain", "plain", "deep", "ffn"]))
    weights = draw(st.sampled_from(["bf16", "fp16", "w8a16", "w8a8", "w4a16", "w4a8"]))
    weight_format, prefetch = draw(st.sampled_from(["nd", "nz"])), draw(st.booleans())
    if style == "plain":  # free of the plain contradictions, so that most of what is drawn can be built
        fusion |= dict.fromkeys(
            ("qkv_norm_rope_cache", "matmul_all_reduce", "add_rms_norm_quant", "swiglu_quant", "ffn"), False
        )
    elif style == "deep":  # the fusions that stand on others
        fusion |= dict.fromkeys(("rms_norm", "add_rms_norm", "rope", "qkv", "attention", "grouped_matmul"), True)
    elif style == "ffn":  # a whole feed-forward layer in one kernel
        fusion |= dict.fromkeys(
            ("qkv_norm_rope_cache", "matmul_all_reduce", "add_rms_norm_quant", "swiglu_quant"), False
        )
        fusion |= dict.fromkeys(("gate_up", "swiglu", "ffn"), True)
        weights, weight_format, prefetch = "fp16", "nd", False
    phase = draw(st.sampled_from(phases))
    return scenario(
        workload__phase=phase,
        workload__batch=draw(st.sampled_from([1, 2, 3, 8, 300] if phase != "mixed" else [2, 3, 8, 300])),
        workload__input_tokens=draw(st.sampled_from([1, 7, 100, 3000])),
        workload__output_tokens=draw(st.sampled_from([1, 64])),
        workload__context_tokens=draw(st.sampled_from([None, None, 0, 5000])),
        workload__sampling=draw(st.sampled_from(["greedy", "top_k_top_p"])),
        engine__max_num_seqs=draw(st.sampled_from([256, 300, 512])),
        engine__max_num_batched_tokens=draw(st.sampled_from([512, 2048])),
        optimizations__fusion=fusion,
        optimizations__graph=draw(st.sampled_from(["eager", "aclgraph", "npugraph_ex", "ge_graph"])),
        optimizations__kv__layout=draw(st.sampled_from(["contiguous", "paged"])),
        optimizations__kv__dtype=draw(st.sampled_from(["auto", "auto", "auto", "bf16", "fp16", "int8"])),
        optimizations__kv__scale=draw(st.sampled_from(["channel", "token", "head"])),
        optimizations__kv__block_size=draw(st.sampled_from([16, 128])),
        optimizations__weights=weights,
        optimizations__weight_format=weight_format,
        optimizations__overlap__prefetch=prefetch,
        optimizations__overlap__streams=draw(st.sampled_from([1, 1, 2])),
        optimizations__overlap__shared_expert_stream=draw(st.booleans()) and "overlap.shared_expert_stream" not in idle,
    )


Drawn = tuple[Scenario, Model]


@st.composite
def cases(draw: st.DrawFn, phases: tuple[str, ...] = PHASES) -> Drawn:
    """A scenario and a model that it is about."""
    model = draw(st.sampled_from([TINY, PLAIN, BIASED, EXPERTS, LATENT, SPARSE, LAYER_NORMS, PARTIAL]))
    return draw(scenarios(phases, model)), model


def faults(result: Program) -> list[str]:
    """Whatever is wrong with a program as a list of calls that hand tensors on; empty where nothing is."""
    return [
        *_bad_names(result),
        *_bad_work(result),
        *_bad_reads(result),
        *_short_caches(result),
        *_dead_writes(result),
        *races(result),
    ]


def _bad_names(result: Program) -> list[str]:
    bad_names = []
    for block in result.blocks:
        counts = Counter(one.name for one in block.ops)
        bad_names += [f"{block.name} has {count} ops called {name}" for name, count in counts.items() if count > 1]
        bad_names += [f"{one.kind} is not in the catalogue" for one in block.ops if one.kind not in CATALOGUE]
    return bad_names


def _bad_work(result: Program) -> list[str]:
    bad_work = []
    for block in result.blocks:
        for one in block.ops:
            work = work_of(one)
            counted = (
                work.cube_flops, work.vector_ops, work.cold_read_bytes, work.warm_read_bytes, work.write_bytes,
                work.pieces,
            )  # fmt: skip
            if any(type(value) is not int or value < 0 for value in counted) or work.gm_bytes <= 0:
                bad_work.append(f"{one.name}: {work}")
    return bad_work


def _two_layers(result: Program) -> Program:
    """Two repetitions show all that the edge of the loop can do."""
    return replace(result, blocks=tuple(replace(block, repeat=min(2, block.repeat)) for block in result.blocks))


def _bad_reads(result: Program) -> list[str]:
    bad_reads: list[str] = []
    written: dict[str, Tensor] = {}
    parts: dict[str, dict[int, int]] = {}
    most: dict[str, int] = {}
    weights: dict[tuple[int, str], Tensor] = {}  # layers of another kind may have another of that name
    for issued in _two_layers(result):
        for tensor in issued.op.inputs:
            what = f"{issued.op.name} reads {tensor.name}"
            before = written.get(tensor.name)
            if tensor.role == "weight":
                if weights.setdefault((id(issued.block.ops), tensor.name), tensor) != tensor:
                    bad_reads.append(f"{what} as another weight of that name")
            elif tensor.role == "table":
                if tensor.name not in TABLES:
                    bad_reads.append(f"{what}, an unknown table")
            elif tensor.role == "kv_cache" and any(out.name == tensor.name for out in issued.op.outputs):
                pass  # the pool, or the state, is there from the start; the op changes it
            elif before is None:
                if tensor.name not in STEP_INPUTS:
                    bad_reads.append(f"{what}, which nothing has written")
            elif (before.dtype, before.role) != (tensor.dtype, tensor.role):
                bad_reads.append(f"{what} as {tensor.dtype} {tensor.role}, written as {before.dtype} {before.role}")
            elif issued.op.piece >= 0:  # some of the rows of what was there before the first piece
                if tensor.elements > most[tensor.name]:
                    bad_reads.append(f"{what} {tensor.shape}, more than was written")
            elif not _same_elements(result, issued.op, before, tensor):
                bad_reads.append(f"{what} {tensor.shape}, written as {before.shape}")
        written.update((tensor.name, _so_far(issued.op, tensor, parts)) for tensor in issued.op.outputs)
        most |= {t.name: max(t.elements, most.get(t.name, 0)) for t in issued.op.outputs}
    return bad_reads


def _so_far(writer: Op, tensor: Tensor, parts: dict[str, dict[int, int]]) -> Tensor:
    """`tensor` with the rows that the pieces of an op have written of it until now."""
    piece = writer.piece
    if piece < 0:
        return tensor
    rows = {**(parts.get(tensor.name, {}) if piece else {}), piece: tensor.shape[0]}
    parts[tensor.name] = rows
    return replace(tensor, shape=(sum(rows.values()), *tensor.shape[1:]))


def _same_elements(result: Program, reader: Op, written: Tensor, read: Tensor) -> bool:
    """A view has the elements of what was written, but for parts of it, and for rows that padding adds or drops."""
    if read.role == "kv_cache":
        return read.elements <= written.elements  # attention sees the tokens that are there, not the whole pool
    if (
        reader.kind in ("slice", "kv_norm_rope_cache") or reader.name == "logits_cast"
    ):  # of the logits: the rows of padding are not sampled
        return read.elements <= written.elements
    if {"absorb_k", "q_join"} <= {op.name for op in result.block("layers").ops}:
        return True  # MLA: decoding and prefilling tokens go their own ways, each a range of rows of one buffer
    if reader.name == "attn.qk":
        return read.elements == written.elements or _ragged(result)
    return read.elements == written.elements


def _ragged(result: Program) -> bool:
    """Whether unfused attention has to pad: requests of several lengths in one step, or rows of a captured size."""
    queries = {group.query for group in result.batch.groups}
    return len(queries) > 1 or result.batch.phase == "decode"


def _short_caches(result: Program) -> list[str]:
    """Attention that sees more tokens than the blocks of a request hold."""
    short_caches = []
    longest = max(group.kv_len for group in result.batch.groups)
    for one in result.block("layers").ops:
        pool = next((t for t in one.inputs if t.role == "kv_cache"), None)
        table = next((t for t in one.inputs if t.name == "block_table"), None)
        if pool is not None and table is not None and table.shape[1] * pool.shape[1] < longest:
            short_caches.append(f"{one.name} sees {longest} tokens in {table.shape[1]} blocks of {pool.shape[1]}")
        if pool is not None and pool.name.endswith("_cache") and one.kind == "kv_cache_write":
            room = pool.elements // (result.batch.requests * pool.shape[-1] * pool.shape[-2])
            if room < longest:
                short_caches.append(f"{one.name} has room for {room} tokens of {longest}")
    return short_caches


def _dead_writes(result: Program) -> list[str]:
    """Ops of which nothing is ever read."""
    read = {tensor.name for issued in result for tensor in issued.op.inputs} | TAKEN_OUTSIDE
    ops = [one for block in result.blocks for one in block.ops]
    return [
        f"nothing reads what {one.name} writes"
        for one in ops
        if one.outputs and not read & {t.name for t in one.outputs}
    ]


def races(result: Program) -> list[str]:
    """Reads of what another stream writes, with no event that orders the two.

    For each stream a clock says how far into every stream its ops can rely on; an event carries that of its record.
    Micro-batches write rows of their own into one buffer: each reads what it has written itself.
    """
    outcome: list[str] = []
    clocks: dict[int, dict[int, int]] = {}
    recorded: dict[str, dict[int, int]] = {}
    written: dict[tuple[str, str], tuple[int, int]] = {}
    for issued in _two_layers(result):
        one = issued.op
        part = one.name.partition(".")[0] if one.name.startswith("part") else ""
        clock = dict(clocks.get(one.stream, {}))
        for event in one.waits:
            for stream, place in recorded.get(event, {}).items():
                clock[stream] = max(clock.get(stream, 0), place)
        for tensor in one.inputs:
            wrote = [at for (name, by), at in written.items() if name == tensor.name and by in (part, "")]
            if not part:
                wrote = [at for (name, _), at in written.items() if name == tensor.name]
            for stream, place in wrote:
                if tensor.role == "activation" and clock.get(stream, 0) < place:
                    outcome.append(
                        f"{one.name} on stream {one.stream} may outrun stream {stream}, which writes {tensor.name}"
                    )
        clock[one.stream] = clock.get(one.stream, 0) + 1
        clocks[one.stream] = clock
        written.update(((tensor.name, part), (one.stream, clock[one.stream])) for tensor in one.outputs)
        recorded.update((event, clock) for event in one.records)
    return outcome
