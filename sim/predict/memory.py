"""Where HBM goes, and how many requests fit: weights, KV cache, activations, graph pools, buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from scenarios.batches import capture_sizes, largest_chunk_tokens
from scenarios.lowering.stages import stage_model
from scenarios.models.model import Model
from scenarios.ops.program import DTYPE_BITS
from scenarios.passes.kv import no_int8_cache
from scenarios.passes.switches import activation_dtype
from scenarios.records import dataclass
from scenarios.schema import KvCache, Scenario
from scenarios.serving.kv_cache import ContiguousCache, PagedCache, blocks_of, shared_blocks
from scenarios.speculation import draft_layers, draft_model, draft_scenario
from sim.hardware.profile import HardwareProfile

GIB = 1 << 30
#: Bits of one weight, scales aside.
WEIGHT_BITS = {"bf16": 16, "fp16": 16, "w8a16": 8, "w8a8": 8, "w4a16": 4, "w4a8": 4}


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """What a KV cache layout holds. bytes_per_token: keys, values and scales that a token adds over all layers.
    kv_tokens: of requests of the scenario's length. reserved_tokens: what one request takes of the cache, waste
    included; request_bytes: the same in bytes, of layers with windows what they see and of others their state.
    max_concurrent_requests: the largest number at the scenario's lengths."""

    layout: str
    dtype: str
    bytes_per_token: int
    kv_tokens: int
    reserved_tokens: int
    max_concurrent_requests: int
    request_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by part for the scenario's batch, and what the cache could hold. `usable` is the HBM that software
    sees times gpu_memory_utilization, `left` what of it is left for the KV cache. kinds: what each kind of layers
    keeps."""

    weights: int
    kv_cache: int
    activations: int
    graph_pool: int
    runtime: int
    hccl_buffers: int
    usable: int
    left: int
    capacity: KvCapacity
    others: tuple[KvCapacity, ...]
    kinds: tuple[KindOfLayers, ...] = ()

    @property
    def total(self) -> int:
        parts = self.weights, self.kv_cache, self.activations, self.graph_pool, self.runtime, self.hccl_buffers
        return sum(parts)

    @property
    def weights_fit(self) -> bool:
        """Whether anything is left next to the weights."""
        return self.weights + self.runtime + self.hccl_buffers < self.usable

    @property
    def too_much(self) -> int:
        """Bytes beyond what is usable, 0 where everything fits."""
        return max(0, self.total - self.usable)


class DoesNotFit(ValueError):
    """The scenario needs more HBM than there is; the message says by how much and what would fit."""


@dataclass(frozen=True, slots=True)
class KindOfLayers:
    """What layers of one kind keep. layers: how many. bytes_per_token: of all of them, 0 of layers with a state.
    kept_tokens: at most, of the longest request. compressed_bytes_per_token: of compressed rows, which are kept for
    good. state_bytes: of one request, whatever its length."""

    kind: str
    layers: int
    bytes_per_token: int
    kept_tokens: int
    compressed_bytes_per_token: float
    state_bytes: int


def layer_bytes_per_token(scenario: Scenario, one: Model, dtype: str) -> int:
    """Keys, values and (per token or head) scales of one token in one layer, bytes."""
    size = one.cached_elements * (8 if dtype == "int8" else 16) // 8
    if dtype == "int8" and one.has_cache and scenario.optimizations.kv.scale != "channel":
        heads = one.kv_heads if scenario.optimizations.kv.scale == "head" else 1
        size += 2 * heads * 4  # one fp32 scale each for K and V
    return size


def kv_bytes_per_token(scenario: Scenario, model: Model, dtype: str) -> int:
    """The same over all layers, and those of a draft; of layers with windows, until those are full."""
    layers = sum(count * layer_bytes_per_token(scenario, one, dtype) for one, count in model.runs)
    layers += int(sum(count * one.compressed_bytes_per_token for one, count in model.runs))
    return layers + _draft_bytes_per_token(scenario, model, dtype)


def _draft_bytes_per_token(scenario: Scenario, model: Model, dtype: str) -> int:
    draft = draft_model(scenario.engine, model)
    return draft_layers(scenario.engine, model) * layer_bytes_per_token(scenario, draft, dtype) if draft else 0


def kinds_of_layers(scenario: Scenario, model: Model, dtype: str) -> tuple[KindOfLayers, ...]:
    """What each kind of layers keeps, those that keep nothing left out."""
    longest = scenario.longest_request_tokens
    kinds: dict[str, KindOfLayers] = {}
    for one, count in model.runs:
        if not one.has_cache and one.state is None:
            continue
        name = one.kind or "full"
        before = kinds.get(name, KindOfLayers(name, 0, 0, 0, 0, 0))
        kinds[name] = KindOfLayers(
            kind=name,
            layers=before.layers + count,
            bytes_per_token=before.bytes_per_token + count * layer_bytes_per_token(scenario, one, dtype),
            kept_tokens=0 if one.state else one.attention.kept(longest),
            compressed_bytes_per_token=before.compressed_bytes_per_token + count * one.compressed_bytes_per_token,
            state_bytes=before.state_bytes + count * one.fixed_bytes,
        )
    return tuple(kinds.values())


def reserved_tokens(scenario: Scenario, kv: KvCache) -> tuple[int, int]:
    """(tokens of cache one request takes, tokens of a prefix that all share once).

    Contiguous reserves the longest request. Paged takes whole blocks of what the request really is; a shared prefix
    counts once.
    """
    if kv.layout == "contiguous":
        return scenario.longest_request_tokens, 0
    used = scenario.request_tokens
    shared = 0
    if kv.prefix_sharing:
        shared = shared_blocks(kv.shared_prefix_tokens, kv.block_size) * kv.block_size
    return blocks_of(used - shared, kv.block_size) * kv.block_size, shared


def weight_bytes(scenario: Scenario, model: Model) -> int:
    """All weights of one card: quantised linear layers with one fp32 scale an output, the rest in 16 bits; of a draft
    its layers, and its LM head where the model's is not shared."""
    draft = draft_model(scenario.engine, model)
    if draft is None:
        return _weight_bytes(scenario, model)
    own_head = scenario.engine.speculative_config is not None and scenario.engine.speculative_config.method == "eagle3"
    layer = replace(draft, has_embedding=False, has_head=own_head, tied_embeddings=False)
    drafted = _weight_bytes(draft_scenario(scenario, model), layer)
    return _weight_bytes(scenario, model) + draft_layers(scenario.engine, model) * drafted


def _weight_bytes(scenario: Scenario, model: Model) -> int:
    """Of one card, without what its neighbours hold for it (`engine.finegrained_tp_config`)."""
    return _own_weight_bytes(scenario, model) - _held_by_others_bytes(scenario, model)


def _held_by_others_bytes(scenario: Scenario, model: Model) -> int:
    config = scenario.engine.finegrained_tp_config
    if config is None:
        return 0
    bits = WEIGHT_BITS[scenario.optimizations.weights]
    kept = model.kept_in(scenario.optimizations.weights)
    table = 2 * model.vocab * model.hidden

    def layers(product: tuple[str, ...], width: str) -> int:
        """Bytes of a product of each layer that has it."""
        runs = ((one, count) for one, count in model.runs if width == "attended" or one.experts is None)
        matrices = 1 if width == "attended" else model.matrices
        size = 16 if kept & {*product} else bits
        weights: int = sum(count * matrices * one.hidden * getattr(one, width) for one, count in runs)
        return weights * size // 8

    whole = {
        "lmhead_tensor_parallel_size": table * model.has_head,
        "embedding_tensor_parallel_size": table * model.has_embedding,
        "oproj_tensor_parallel_size": layers(("attention", "attention.o_proj"), "attended"),
        "mlp_tensor_parallel_size": layers(("mlp",), "intermediate"),
    }
    return sum(whole[name] - whole[name] // size for name, size in config.sizes.items())


def _own_weight_bytes(scenario: Scenario, model: Model) -> int:
    bits = WEIGHT_BITS[scenario.optimizations.weights]
    if bits == 16:
        return (model.linear_weights + model.other_weights) * 2
    kept, kept_outputs = model.kept_weights(model.kept_in(scenario.optimizations.weights))
    quantised = (model.linear_weights - kept) * bits // 8 + 4 * (model.linear_outputs - kept_outputs)
    return quantised + (kept + model.other_weights) * 2


def activation_bytes(scenario: Scenario, model: Model) -> int:
    """Largest activations alive at once: in the MLP of the largest step, or the logits in 16 and 32 bits.

    An estimate (assumed): the residual (all its streams), the normed input, gate and up together, and their product.
    """
    running = _running(scenario, model)
    rows = max(largest_chunk_tokens(scenario), running * scenario.engine.query_tokens)
    act = DTYPE_BITS[activation_dtype(scenario, model)] // 8
    mlp = rows * (2 * model.form.streams * model.hidden + 3 * model.intermediate) * act
    logits = running * scenario.engine.query_tokens * model.vocab * (act + 4) if model.has_head else 0
    scores = 0
    if not scenario.optimizations.fusion.attention:
        longest = scenario.workload.input_tokens
        scores = min(rows, running * longest) * longest * model.heads * (2 * act + 4)
    return max(mlp + scores, logits)


def graph_pool_bytes(scenario: Scenario, model: Model) -> int:
    """What captured graphs take: one pool of static buffers, as large as the largest captured batch needs (assumed),
    and no less than GRAPH_BYTES."""
    mode = scenario.optimizations.graph
    if mode == "eager":
        return 0
    running = _running(scenario, model) * scenario.engine.query_tokens
    decoding = running if mode == "ge_graph" else max(capture_sizes(scenario.engine))
    compiled_prefill = mode == "ge_graph" and scenario.optimizations.graph_prefill
    rows = max(decoding, largest_chunk_tokens(scenario)) if compiled_prefill else decoding
    logits = decoding * model.vocab if model.has_head else 0
    return max(GRAPH_BYTES, (rows * (2 * model.form.streams * model.hidden + 3 * model.intermediate) + logits) * 2)


def _running(scenario: Scenario, model: Model) -> int:
    """Requests of one decode step: of the largest micro-batch where there are stages."""
    return -(-scenario.workload.batch // model.pipeline_parallel)


@lru_cache(maxsize=64)  # asked of a scenario when it is checked, and when it is predicted
def memory_of(scenario: Scenario, model: Model, hw: HardwareProfile) -> Memory:
    """Memory by part for `scenario` on one card of `hw`, and the KV capacity of its layout and of the others.

    Of pipeline stages, the one that needs the most; the cache holds what the stage with the smallest room holds.
    """
    stages = memory_of_stages(scenario, model, hw)
    if len(stages) == 1:
        return stages[0]
    others = tuple(min(same, key=_tokens) for same in zip(*(stage.others for stage in stages), strict=True))
    fullest = max(stages, key=lambda stage: stage.total)
    return replace(fullest, capacity=min((stage.capacity for stage in stages), key=_tokens), others=others)


def _tokens(capacity: KvCapacity) -> int:
    return capacity.kv_tokens


def memory_of_stages(scenario: Scenario, model: Model, hw: HardwareProfile) -> tuple[Memory, ...]:
    """Memory of one card of each pipeline stage."""
    if model.pipeline_parallel == 1:
        return (_memory_of_rank(scenario, model, hw),)
    return tuple(_memory_of_rank(scenario, stage_model(model, s), hw) for s in range(model.pipeline_parallel))


def _memory_of_rank(scenario: Scenario, model: Model, hw: HardwareProfile) -> Memory:
    weights = weight_bytes(scenario, model)
    activations = activation_bytes(scenario, model)
    pool = graph_pool_bytes(scenario, model)
    runtime = RUNTIME_BYTES
    config = scenario.engine.finegrained_tp_config
    groups = len({*config.sizes.values()}) if config else 0  # one communicator for each size
    buffers = HCCL_BUFFER_BYTES * ((model.tensor_parallel > 1) + (model.pipeline_parallel > 1) + groups)
    usable = int(hw.chip.hbm_visible_bytes * scenario.engine.gpu_memory_utilization)
    left = max(0, usable - weights - activations - pool - runtime - buffers)
    room = scenario.engine.kv_cache_memory_bytes or left
    kv = scenario.optimizations.kv
    mine = _capacity(scenario, model, kv, room)
    _, shared = reserved_tokens(scenario, kv)
    held = mine.request_bytes * scenario.workload.batch + shared * mine.bytes_per_token
    dtypes = ("auto",) if no_int8_cache(model) else ("auto", "int8")
    variants = tuple((layout, dtype) for dtype in dtypes for layout in ("contiguous", "paged"))
    others = tuple(
        _capacity(scenario, model, kv.model_copy(update={"layout": layout, "dtype": dtype}), room)
        for layout, dtype in variants
    )
    return Memory(
        weights=weights,
        kv_cache=held,
        activations=activations,
        graph_pool=pool,
        runtime=runtime,
        hccl_buffers=buffers,
        usable=usable,
        left=left,
        capacity=mine,
        others=others,
        kinds=kinds_of_layers(scenario, model, mine.dtype),
    )


#: What one process takes of a card next to torch's own tensors. Measured: 0.35 to 0.41 GiB are gone before an engine
#: starts (60.61 free of 60.96, 60.86 and 60.89 of 61.27) and 0.13 to 0.18 GiB more after its first step on one card
#: (vLLM-Ascend's memory line in pull request 8289 and in two other public logs of 2026); the middle of both.
RUNTIME_BYTES = int(0.53 * GIB)
#: Send and receive buffers of one communicator (the tensor-parallel group's, the stages'): twice HCCL_BUFFSIZE, 200 MB
#: by default (HCCL's documentation of that variable; HcclGetHcclBuffer gives 400 MB). Engines that raise HCCL_BUFFSIZE
#: or hold groups for experts take more: 3.1 GiB in two logs of 16 ranks, of which no split is public.
HCCL_BUFFER_BYTES = 2 * 200 << 20
#: The smallest that captured graphs take. Measured: 0.04 GiB for Qwen3-0.6B (pull request 8289). Other logs show 0.47
#: GiB for Qwen3-14B and, of an older release, 0.2 for Qwen3-0.6B and 0.68 for DeepSeek-V2-Lite, so the pool is rather
#: too small.
GRAPH_BYTES = int(0.04 * GIB)


def _capacity(scenario: Scenario, model: Model, kv: KvCache, room: int) -> KvCapacity:
    dtype = "int8" if kv.dtype == "int8" else activation_dtype(scenario, model)
    per_token = kv_bytes_per_token(scenario, model, dtype)
    per_request, shared = reserved_tokens(scenario, kv)
    size = model.kept_bytes(per_request, lambda one: layer_bytes_per_token(scenario, one, dtype))
    size += per_request * _draft_bytes_per_token(scenario, model, dtype)
    # Tokens of requests of this length: of layers with windows or states a long request takes less than its tokens say.
    tokens = room // max(1, per_token) if size == per_request * per_token else room * per_request // max(1, size)
    if kv.layout == "paged":
        blocks = tokens // kv.block_size
        tokens = blocks * kv.block_size
        requests = PagedCache.max_requests(blocks, kv.block_size, scenario.request_tokens, shared)
    else:
        requests = ContiguousCache.max_requests(tokens, per_request)
    return KvCapacity(kv.layout, dtype, per_token, tokens, per_request, requests, request_bytes=size)


def cache_problems(scenario: Scenario, memory: Memory) -> Iterator[tuple[str, str]]:
    """What is wrong with the memory that a scenario gives its KV cache, as (field, what) pairs."""
    given, mib = scenario.engine.kv_cache_memory_bytes, 1 << 20
    if given is None:
        return
    if given > memory.left:
        yield (
            "engine.kv_cache_memory_bytes",
            f"{given / mib:,.0f} MiB are more than the {memory.left / mib:,.0f} MiB that weights, activations and "
            "buffers leave",
        )
    if memory.kv_cache > given:
        fits = memory.capacity.max_concurrent_requests
        yield (
            "engine.kv_cache_memory_bytes",
            f"{given / mib:,.1f} MiB hold {fits} requests of this length, and workload.batch is "
            f"{scenario.workload.batch}",
        )


def refuse_overflow(hardware: str, memory: Memory) -> None:
    """Raise DoesNotFit, on a card of `hardware`, with the parts, the excess and the largest batch that fits."""
    if not memory.too_much:
        return
    gib = 1 << 30
    fits = memory.capacity.max_concurrent_requests
    remedy = f"at most {fits} requests of this length fit"
    if not memory.weights_fit:
        remedy = "not even one request fits: shrink the weights"
    elif not fits:
        remedy = "not even one request fits beside the weights: fewer or shorter ones, or less max_num_batched_tokens"
    raise DoesNotFit(
        f"does not fit: {memory.total / gib:.1f} GiB needed (weights {memory.weights / gib:.1f}, "
        f"KV cache {memory.kv_cache / gib:.1f}, activations {memory.activations / gib:.1f}, "
        f"graph, buffers and runtime {(memory.graph_pool + memory.runtime + memory.hccl_buffers) / gib:.1f}) "
        f"of {memory.usable / gib:.1f} GiB usable "
        f"on {hardware}: {memory.too_much / gib:.1f} GiB too much; {remedy}"
    )
