"""The fields of a scenario file that say how requests come in time, and which latencies they must meet."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
)

#: Upper limits that refuse a slipped zero, not a real deployment.
MAX_TOKENS = 16_777_216
MAX_REQUESTS = 10_000_000

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS, strict=True, json_schema_extra={"unit": "tokens"})]
Requests = Annotated[int, Field(ge=1, le=MAX_REQUESTS, strict=True, json_schema_extra={"unit": "requests"})]
Positive = Annotated[float, Field(gt=0, le=1e9)]


class Part(BaseModel):
    """A strict, immutable part of a scenario: unknown keys are errors. `quiet` fields are written only where set, so
    that a file that does not know them gives the same results as before there were any."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    quiet: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if value is not None or key not in self.quiet}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        from scenarios.field_texts import field_texts

        written = handler(core_schema)
        properties = handler.resolve_ref_schema(written)["properties"]
        for name, text in field_texts(cls).items():
            properties[name].setdefault("description", text)
        return written


class Lengths(Part):
    """How long prompts or outputs are."""

    distribution: Literal["fixed", "uniform", "lognormal"] = "fixed"
    """fixed: `tokens`. uniform: `low` to `high`. lognormal: median `tokens`, log standard deviation `sigma`."""
    tokens: Tokens | None = None
    """The length (fixed) or the median (lognormal)."""
    low: Tokens | None = None
    """The shortest (uniform; a lower limit of lognormal)."""
    high: Tokens | None = None
    """The longest (uniform; an upper limit of lognormal)."""
    sigma: Annotated[float, Field(gt=0, le=5)] | None = None
    """Standard deviation of the logarithm (lognormal)."""


class TraceFile(Part):
    """A file of requests."""

    file: Annotated[str, Field(min_length=1, max_length=4096)]
    """Next to the scenario file, or the name of a shipped sample (azure.csv, mooncake.jsonl, burstgpt.csv,
    sharegpt.json)."""
    form: Literal["azure", "mooncake", "burstgpt", "sharegpt"]
    """azure: Azure LLM inference CSV. mooncake: JSONL with prefix hashes. burstgpt: BurstGPT CSV. sharegpt: JSON of
    conversations; lengths only."""
    speed: Positive = 1.0
    """Time runs this much faster than in the file."""


class Traffic(Part):
    """Requests in time, for all data-parallel replicas together."""

    arrival: Literal["constant", "poisson", "gamma", "closed", "burst", "trace"] = "poisson"
    """constant, poisson and gamma: `rate` requests/s. closed: `concurrency` requests are always in flight. burst: all
    at once. trace: at the times of `trace`."""
    rate: Positive | None = None
    """Mean arrival rate, requests/s."""
    burstiness: Positive = 1.0
    """Shape of gamma arrivals (vllm bench's name): below 1 burstier than Poisson, above 1 more regular."""
    concurrency: Requests | None = None
    """Requests that the client keeps in flight at most."""
    requests: Requests | None = None
    """Number of requests. Default: as many as `duration_s` has, all that the trace holds, or 1000."""
    duration_s: Positive | None = None
    """Requests are sent for this long, s."""
    warmup_requests: Annotated[int, Field(ge=0, le=MAX_REQUESTS, strict=True)] = 0
    """First requests that no metric counts."""
    input: Lengths | None = None
    """Prompt lengths. Default: workload.input_tokens, or those of the trace."""
    output: Lengths | None = None
    """Output lengths. Default: workload.output_tokens, or those of the trace."""
    trace: TraceFile | None = None
    """A file of requests: their lengths, and with arrival trace their times."""
    prefix_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS, strict=True)] = 0
    """First tokens of each prompt that it shares with the other requests of its group; part of the prompt length."""
    prefix_groups: Requests = 1
    """Different shared prefixes; each request draws one."""
    urgent_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of requests of priority 0, which are served before the others' 1 (engine.scheduling_policy priority)."""
    turns: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1
    """Turns of a conversation: each prompt holds the turns before it, which come on top of its length."""
    think_time_s: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Between the end of one turn and the next, s."""


class Slo(Part):
    """What a request must meet to count as goodput. Milliseconds."""

    ttft_ms: Positive | None = None
    """Time to first token, from arrival."""
    tpot_ms: Positive | None = None
    """Time per output token after the first."""
    e2el_ms: Positive | None = None
    """End-to-end latency."""
