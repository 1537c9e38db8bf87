"""The fields of a scenario file, but for those that `scenarios.schema` adds from the passes. Pure data, no physics.

Every field has a unit in its name or its description, and a default. A switch of an optimisation is described by its
pass; it has a line here only where other rooms read it by its type, or where files have long shown it in this place.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from scenarios.finegrained_settings import FinegrainedTp
from scenarios.fleet_settings import DisaggregatedPrefill, KvPool, Router
from scenarios.speculation_settings import SpeculativeConfig
from scenarios.traffic_settings import MAX_TOKENS, Part, Slo, Tokens, Traffic

Graph = Literal["eager", "aclgraph", "npugraph_ex", "ge_graph"]
#: Whose code issues the kernels (`scenarios.lowering.stacks`).
NamedStack = Literal["torch", "torchair", "vllm_ascend"]
Stack = Literal["auto", NamedStack]
Weights = Literal["bf16", "fp16", "w8a16", "w8a8", "w4a16", "w4a8"]
Phase = Literal["decode", "prefill", "mixed"]

#: Upper limits that refuse a slipped zero, not a real deployment.
MAX_BATCH = 65_536

Batch = Annotated[int, Field(ge=1, le=MAX_BATCH, strict=True, json_schema_extra={"unit": "requests"})]
Degree = Annotated[int, Field(ge=1, le=4096, strict=True)]
Switch = Annotated[bool, Field(strict=True)]


class Workload(Part):
    """The requests."""

    quiet: ClassVar[frozenset[str]] = frozenset({"traffic"})
    phase: Phase = "decode"
    """Which step the report takes apart: a steady decode step, a prefill chunk, or a mixed batch of both."""
    batch: Batch = 1
    """Requests that run together, per data-parallel replica."""
    input_tokens: Tokens = 1024
    """Prompt length of each request, tokens."""
    output_tokens: Tokens = 128
    """Tokens generated for each request."""
    context_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS, strict=True)] | None = None
    """Tokens in the KV cache of each request before the reported step. Default: decode takes the middle of the
    generation (input_tokens + output_tokens // 2), prefill takes 0."""
    expert_skew: Annotated[float, Field(ge=0, le=4)] = 0.0
    """How unequally popular the experts of a layer are: parameter of their log-normal popularity. 0: all alike (even so
    some get more tokens than others); a model with experts only."""
    sampling: Literal["greedy", "top_k_top_p"] = "greedy"
    """How the next token is chosen: arg-max, or sort, top-k/top-p filter and softmax."""
    traffic: Traffic | None = None
    """Requests in time: `whatif run` then also serves them and prints what `vllm bench serve` would."""


class Engine(Part):
    """The serving engine, spelled as vLLM spells it."""

    quiet: ClassVar[frozenset[str]] = frozenset(
        {
            "profile",
            "cudagraph_mode",
            "async_scheduling",
            "scheduling_policy",
            "preemption",
            "scheduler_reserve_full_isl",
            "prefill_first",
            "allow_long_max_model_len",
            "speculative_config",
            "finegrained_tp_config",
            "router",
            "disaggregated_prefill",
            "kv_pool",
            "kv_cache_memory_bytes",
        }
    )
    stack: Stack = "auto"
    """Whose code issues the kernels: torch, call by call or compiled as it stands; a TorchAir graph for a static cache;
    vLLM-Ascend. They run different kernels for the same operation. auto: by the graph mode, torchair only over a
    contiguous cache."""
    tensor_parallel_size: Degree = 1
    """Ranks that share each layer."""
    pipeline_parallel_size: Degree = 1
    """Stages that share the depth of the model, each of tensor_parallel_size ranks; as many batches are in flight."""
    data_parallel_size: Degree = 1
    """Replicas that share the requests."""
    enable_expert_parallel: Switch = False
    """Spread whole experts over the ranks instead of slicing each."""
    hccl_op_expansion_mode: Literal["auto", "AIV", "AI_CPU", "HOST"] = "auto"
    """HCCL_OP_EXPANSION_MODE: who moves the bytes of a collective: vector cores, copies that the AI CPU launches, or
    copies that the host launches. auto: vector cores wherever HCCL lets them, as inference engines set it."""
    all2all_backend: Literal["alltoall", "allgather_reducescatter"] = "alltoall"
    """How tokens reach experts that other ranks hold: sent to them, or every rank sees all tokens and sums are reduced
    (as vLLM-Ascend does on A2 below 16 cards). Matters with enable_expert_parallel."""
    sequence_parallel: Switch = False
    """Reduce-scatter and all-gather in place of all-reduce."""
    max_num_seqs: Batch = 256
    """Largest number of requests in one step."""
    max_num_batched_tokens: Tokens = 8192
    """Largest number of tokens in one step; longer prefills are cut into chunks of this size."""
    max_model_len: Tokens | None = None
    """Longest request, prompt and output, tokens. Default: input_tokens + output_tokens."""
    allow_long_max_model_len: Switch | None = None
    """Whether requests may be longer than the positions that the model was trained on (VLLM_ALLOW_LONG_MAX_MODEL_LEN;
    the text that comes out may be of no use). Default: false, such a scenario is refused."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of HBM that weights, activations and the KV cache may take together (vLLM's name, also on an NPU)."""
    cudagraph_capture_sizes: Annotated[tuple[Batch, ...], Field(max_length=512)] | None = None
    """Batch sizes captured in aclgraph and npugraph_ex mode (vLLM's name). A batch between two is padded to the next,
    one above the largest runs eager. Default: 1, 2, 4 and every multiple of 8 up to max_num_seqs."""
    profile: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Host costs of the serving engine around each step: a shipped engine profile (healthy, starved, vllm_ascend_0_18,
    ...), or a YAML file such as `whatif calibrate --bench` writes (matters with workload.traffic). Default: unknown."""
    task_queue_enable: Annotated[int, Field(ge=0, le=2, strict=True)] = 1
    """TASK_QUEUE_ENABLE: 0 one host thread; 1 a second thread launches; 2 it also does the workspace work."""
    cudagraph_mode: Literal["FULL_DECODE_ONLY", "FULL_AND_PIECEWISE", "PIECEWISE", "NONE"] | None = None
    """Which steps aclgraph replays (vLLM's name): decode steps whole; those, and steps with prefills layer by layer
    with attention between; all steps layer by layer; none. Default: FULL_DECODE_ONLY."""
    async_scheduling: Switch | None = None
    """Whether the scheduler prepares a step while the device runs the one before (matters with workload.traffic).
    Default: true."""
    scheduling_policy: Literal["fcfs", "priority"] | None = None
    """Who is served first: who came first, or who has the smallest priority number (matters with workload.traffic).
    Default: fcfs."""
    preemption: Literal["recompute", "swap"] | None = None
    """What becomes of a request that loses its KV blocks: computed again, or copied to the host and back (matters with
    workload.traffic). Default: recompute."""
    scheduler_reserve_full_isl: Switch | None = None
    """Whether a waiting request is let in only where the KV cache has room for all tokens that must be computed, not
    for its first chunk alone (vLLM's name and default since 0.19; matters with workload.traffic). Default: what the
    engine profile says, else true."""
    prefill_first: Switch | None = None
    """Whether waiting prompts are prefilled whole, in steps of their own in which nothing decodes, as vLLM-Ascend's
    ascend_scheduler_config (until 0.11) and MindIE do; max_num_batched_tokens is of such a step then (matters with
    workload.traffic). Default: what the engine profile says, else false."""
    kv_cache_memory_bytes: (
        Annotated[int, Field(ge=1, le=1 << 48, strict=True, json_schema_extra={"unit": "bytes"})] | None
    ) = None
    """Memory of the KV cache on each card, bytes (vLLM's name). Default: what gpu_memory_utilization leaves."""
    speculative_config: SpeculativeConfig | None = None
    """Speculative decoding (vLLM's name). Default: none."""
    finegrained_tp_config: FinegrainedTp | None = None
    """Weights that replicas with shared experts hold in slices (vLLM-Ascend's name). Default: none."""
    router: Router | None = None
    """Who serves a request where there are several instances: in turn, the one with the smallest load, or the one whose
    cache knows most of its prompt (matters with workload.traffic). Default: round_robin."""
    disaggregated_prefill: DisaggregatedPrefill | None = None
    """Prefill instances of their own, whose KV is sent to the engine (matters with workload.traffic). Default: none."""
    kv_pool: KvPool | None = None
    """KV beyond the cache, which prompts that start alike are loaded from (matters with workload.traffic and
    kv.prefix_sharing). Default: none."""

    def positions(self, trained: int, longest: int) -> int:
        """Positions that a request may take of a model trained on `trained` of them, where the longest asks for
        `longest`."""
        return max(trained, longest) if self.allow_long_max_model_len else trained

    @property
    def query_tokens(self) -> int:
        """New tokens of each request in a decode step: one, and those that speculation drafts."""
        return self.speculative_config.query_tokens if self.speculative_config else 1


class Fusion(Part):
    """Which groups of operations run as one fused kernel."""

    rms_norm: Switch = True
    add_rms_norm: Switch = True
    rope: Switch = True
    swiglu: Switch = True
    attention: Switch = True
    qkv: Switch = True
    gate_up: Switch = True
    qkv_norm_rope_cache: Switch = False
    moe_routing: Switch = True
    grouped_matmul: Switch = True
    moe_dispatch: Switch = True
    matmul_all_reduce: Switch = False
    add_rms_norm_quant: Switch = False
    swiglu_quant: Switch = False
    ffn: Switch = False


class KvCache(Part):
    """Where keys and values lie and how they are stored."""

    layout: Literal["contiguous", "paged"] = "paged"
    block_size: Annotated[
        int, Field(ge=16, le=1024, multiple_of=16, strict=True, json_schema_extra={"unit": "tokens"})
    ] = 128
    """Tokens in one block of a paged cache."""
    prefix_sharing: Switch = False
    """Requests with one prompt prefix share its blocks (paged only)."""
    shared_prefix_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS, strict=True)] = 0
    """Prompt tokens that all requests have in common; matters with prefix_sharing."""
    dtype: Literal["auto", "bf16", "fp16", "int8"] = "auto"
    scale: Literal["channel", "token", "head"] = "channel"
    """What one INT8 scale covers; matters with dtype int8."""


class Overlap(Part):
    """What may run alongside what."""

    streams: Annotated[int, Field(ge=1, le=2, strict=True)] = 1
    micro_batches: Annotated[int, Field(ge=1, le=8, strict=True)] = 1
    comm_chunks: Annotated[int, Field(ge=1, le=64, strict=True)] = 1
    prefetch: Switch = False
    prefetch_layers: Annotated[int, Field(ge=0, le=2, strict=True, json_schema_extra={"unit": "layers"})] | None = None
    """How many layers ahead weights are prefetched; 0: within the layer. Default: as the stack does it."""
    shared_expert_stream: Switch = False


class Optimizations(Part):
    """The switches, each measurable alone."""

    fusion: Fusion = Fusion()
    graph: Graph = "eager"
    graph_prefill: Switch = False
    """Compile prefill steps too, each for its exact shape (ge_graph only)."""
    kv: KvCache = KvCache()
    weights: Weights = "bf16"
    weight_format: Literal["nd", "nz"] = "nd"
    overlap: Overlap = Overlap()


class Protocol(Part):
    """How a run is carried out."""

    seed: Annotated[int, Field(ge=0, lt=2**32, strict=True)] = 0
    """Seed of the host jitter."""
    synchronize: Literal["step", "layer", "op"] = "step"
    """Where the host waits for the device: at the end of a step, after each layer, or after each op."""


class Settings(Part):
    """One scenario file."""

    quiet: ClassVar[frozenset[str]] = frozenset({"slo"})
    description: Annotated[str, Field(max_length=2000)] = ""
    """What the scenario shows, for people."""
    model: Annotated[str, Field(min_length=1, max_length=4096)] = "Qwen3-8B"
    """A shipped model's name (`whatif list models`), or a folder with a Hugging Face config.json, or such a file."""
    hardware: Annotated[str, Field(min_length=1, max_length=4096)] = "atlas_a2_910b2"
    """A shipped profile's name (`whatif list hardware`), or a hardware YAML file."""
    workload: Workload = Workload()
    engine: Engine = Engine()
    optimizations: Optimizations = Optimizations()
    protocol: Protocol = Protocol()
    slo: Slo | None = None
    """What a request must meet to count as goodput (matters with workload.traffic)."""

    @property
    def request_tokens(self) -> int:
        """Tokens of one request at its end: prompt and output, or the context of the reported step and its new
        tokens."""
        workload = self.workload
        query = workload.input_tokens if workload.phase == "prefill" else self.engine.query_tokens
        return max(workload.input_tokens + workload.output_tokens, (workload.context_tokens or 0) + query)

    @property
    def longest_request_tokens(self) -> int:
        """Tokens that the cache must hold for one request: max_model_len, or what a request of the scenario needs."""
        return self.engine.max_model_len or self.request_tokens

    @property
    def decode_context_tokens(self) -> int:
        """Tokens in the cache of each request before the reported decode step."""
        if self.workload.context_tokens is not None:
            return self.workload.context_tokens
        return self.workload.input_tokens + self.workload.output_tokens // 2
