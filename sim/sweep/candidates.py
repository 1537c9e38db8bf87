"""What `whatif plan` chooses between: how cards share the model, its weights and cache, how it is issued, the batch.

A choice becomes a scenario by settings that a user could give with `--set`. What the user did set is not searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from scenarios.errors import ScenarioError
from scenarios.finegrained_settings import FinegrainedTp
from scenarios.lowering.parallel import shard_of
from scenarios.lowering.stages import split_depth
from scenarios.models.model import Model
from scenarios.passes.base import set_switch
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim.hardware.profile import HardwareProfile
from sim.predict.steps import Case

#: Requests per replica that are tried.
BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
#: The graph mode that a vLLM-Ascend of today runs: TorchAir's whole graphs are gone since 0.12 (its release notes).
#: Eager is tried on the best choices only.
GRAPH = "aclgraph"
#: Switches that are tried on the best choices only, one after the other, with the value that is tried.
REFINEMENTS: tuple[tuple[str, object], ...] = (
    ("graph", "eager"),
    ("engine.cudagraph_mode", "FULL_AND_PIECEWISE"),
    ("engine.sequence_parallel", True),
    ("overlap.prefetch", True),
    ("overlap.shared_expert_stream", True),
    ("fusion.matmul_all_reduce", True),
    ("weight_format", "nz"),
)
#: Products that replicas with shared experts may hold in slices, tried last: the sets that vLLM-Ascend starts with on
#: instances which also prefill. The output projection is for decode instances alone.
SHARED_PRODUCTS = (("lmhead",), ("lmhead", "mlp"), ("mlp",))
#: Replicas that share a product: the largest divisor of all of them up to this, a server's half.
SHARERS = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to deploy the model, but for its batch. extras: settings of REFINEMENTS."""

    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: bool
    weights: str
    kv_dtype: str
    graph: str
    speculation: bool
    extras: tuple[tuple[str, object], ...] = ()

    @property
    def cards(self) -> int:
        """Of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def name(self) -> str:
        """`TP8 DP2 w8a8 aclgraph`, for people."""
        parts = [f"TP{self.tensor_parallel}"]
        parts += [f"PP{self.pipeline_parallel}"] if self.pipeline_parallel > 1 else []
        parts += [f"DP{self.data_parallel}"] if self.data_parallel > 1 else []
        parts += ["EP"] if self.expert_parallel else []
        extras = dict(self.extras)
        parts += [self.weights, str(extras.pop("graph", self.graph))]
        parts += ["KV int8"] if self.kv_dtype == "int8" else []
        parts += ["speculative"] if self.speculation else []
        parts += [_shown(key, value) for key, value in extras.items()]
        return " ".join(parts)


def _shown(key: str, value: object) -> str:
    """A setting of a choice's name."""
    if isinstance(value, FinegrainedTp):
        return " ".join(f"{name.partition('_')[0]} TP{size}" for name, size in value.sizes.items())
    return key.rpartition(".")[2] if value is True else str(value)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Fields that the user has set, as dotted paths."""

    keys: frozenset[str]

    def names(self, key: str) -> bool:
        """Whether the user has set this field, or one in it."""
        return any(one == key or one.startswith(f"{key}.") for one in self.keys)

    def options(self, key: str, own: object, others: Sequence[object]) -> tuple[Any, ...]:
        """The values to try of a field: its own alone where the user has set it."""
        return (own,) if key in self.keys else tuple(dict.fromkeys((own, *others)))


def batches(scenario: Scenario, fixed: Fixed) -> tuple[int, ...]:
    """The requests per replica that are tried, the smallest first."""
    for key, own in (
        ("workload.batch", scenario.workload.batch),
        ("engine.max_num_seqs", scenario.engine.max_num_seqs),
    ):
        if key in fixed.keys:
            return (own,)
    return BATCHES


def choices(scenario: Scenario, model: Model, cards: int, fixed: Fixed) -> Iterator[Choice]:
    """Every choice on `cards` cards, divided evenly."""
    engine, optimizations = scenario.engine, scenario.optimizations
    degrees = [degree for degree in range(1, cards + 1) if cards % degree == 0]
    stages = [1, *(degree for degree in degrees if 1 < degree <= 8)]
    one_row = model.latent or any(one.shared_kv for one in model.kinds)
    caches = ("auto",) if one_row else ("auto", "int8")
    graph = optimizations.graph if "optimizations.graph" in fixed.keys else GRAPH
    tensors = (engine.tensor_parallel_size,) if "engine.tensor_parallel_size" in fixed.keys else tuple(degrees)
    depths = (engine.pipeline_parallel_size,) if "engine.pipeline_parallel_size" in fixed.keys else tuple(stages)
    for tensor, pipeline in product(tensors, depths):
        if cards % (tensor * pipeline):
            continue
        replicas = cards // (tensor * pipeline)
        if "engine.data_parallel_size" in fixed.keys and replicas != engine.data_parallel_size:
            continue
        expert = fixed.options("engine.enable_expert_parallel", engine.enable_expert_parallel, (True, False))
        for spread, weights, kv, drafts in product(
            expert if model.experts and tensor * replicas > 1 else (False,),
            fixed.options("optimizations.weights", optimizations.weights, ("w8a8",)),
            fixed.options("optimizations.kv.dtype", optimizations.kv.dtype, caches),
            (True, False) if engine.speculative_config else (False,),
        ):
            yield Choice(
                tensor,
                pipeline,
                replicas,
                expert_parallel=bool(spread),
                weights=str(weights),
                kv_dtype=str(kv),
                graph=str(graph),
                speculation=drafts,
            )


def scenario_of(base: Scenario, choice: Choice, batch: int) -> Scenario:
    """The scenario of a choice with `batch` requests per replica; as many may run at most."""
    engine = base.engine.model_copy(
        update={
            "tensor_parallel_size": choice.tensor_parallel,
            "pipeline_parallel_size": choice.pipeline_parallel,
            "data_parallel_size": choice.data_parallel,
            "enable_expert_parallel": choice.expert_parallel,
            "max_num_seqs": batch,
            "cudagraph_capture_sizes": None,
            "stack": "auto" if choice.graph == "ge_graph" else "vllm_ascend",  # what the command starts
            **({} if choice.speculation else {"speculative_config": None}),
            **{key.removeprefix("engine."): value for key, value in choice.extras if key.startswith("engine.")},
        }
    )
    workload = base.workload.model_copy(update={"batch": batch, "phase": "decode", "context_tokens": None})
    scenario: Any = base.model_copy(update={"engine": engine, "workload": workload})
    switches = [("weights", choice.weights), ("kv.dtype", choice.kv_dtype), ("graph", choice.graph)]
    for switch, value in (*switches, *(extra for extra in choice.extras if not extra[0].startswith("engine."))):
        scenario = set_switch(scenario, switch, value)
    for switch in ("fusion.add_rms_norm_quant", "fusion.swiglu_quant"):
        if choice.weights not in ("w8a8", "w4a8"):
            scenario = set_switch(scenario, switch, False)
    return scenario  # type: ignore[no-any-return]


class Models:
    """The model as each choice splits it, made once."""

    def __init__(self, whole: Model, base: Scenario, hardware: HardwareProfile) -> None:
        self.whole, self._base, self._hardware = whole, base, hardware
        self._known: dict[tuple[int, int, int, bool], Model | str] = {}

    def case(self, choice: Choice, batch: int) -> Case | str:
        """The case of a choice, or why the model cannot be split so."""
        key = choice.tensor_parallel, choice.pipeline_parallel, choice.data_parallel, choice.expert_parallel
        scenario = scenario_of(self._base, choice, batch)
        if key not in self._known:
            try:
                model = shard_of(scenario.engine, self.whole, choice.tensor_parallel, choice.data_parallel)
                self._known[key] = split_depth(model, choice.pipeline_parallel)
            except ScenarioError as error:
                self._known[key] = error.messages[0].partition(": ")[2] or error.messages[0]
        model_or_reason = self._known[key]
        if isinstance(model_or_reason, str):
            return model_or_reason
        return Case(scenario, model_or_reason, self._hardware)


def refinements(choice: Choice, model: Model) -> Iterator[tuple[str, object]]:
    """The settings that are tried on `choice`, one after the other; of one field, a later one replaces an earlier."""
    yield from REFINEMENTS
    replicas = choice.data_parallel
    size = max((n for n in range(2, SHARERS + 1) if replicas % n == 0), default=1)
    if model.experts and choice.expert_parallel and choice.cards == 1 and size > 1:
        for products in SHARED_PRODUCTS:
            sizes = {f"{product}_tensor_parallel_size": size for product in products}
            yield "engine.finegrained_tp_config", FinegrainedTp(**sizes)


def refined(choice: Choice, extra: tuple[str, object]) -> Choice:
    """`choice` with one more of REFINEMENTS."""
    return replace(choice, extras=(*choice.extras, extra))
