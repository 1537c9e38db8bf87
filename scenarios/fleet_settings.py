"""The fields of a scenario file for several engines: a router, prefill instances of their own, a pool of KV."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from scenarios.traffic_settings import MAX_TOKENS, Part, Positive

Router = Literal["round_robin", "least_loaded", "prefix_aware"]
Count = Annotated[int, Field(ge=1, le=4096, strict=True)]


class DisaggregatedPrefill(Part):
    """Instances that prefill and send their KV on; the engine's own sizes are those of a decode instance, of which
    there are data_parallel_size."""

    instances: Count = 1
    """Prefill instances."""
    tensor_parallel_size: Count | None = None
    """Ranks of one of them. Default: as a decode instance."""
    max_num_seqs: Annotated[int, Field(ge=1, le=65_536, strict=True)] | None = None
    """Default: as a decode instance."""
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS, strict=True)] | None = None
    """Default: as a decode instance."""
    transfer: Literal["layerwise", "whole"] = "layerwise"
    """Whether the KV of a layer is sent when it is computed, or all of it when the prompt is."""
    link_gbps: Positive = 25.0
    """What a card sends or receives, GB/s. Default: the 200 Gb/s of the RoCE port of each NPU (spec)."""
    latency_us: Annotated[float, Field(ge=0, le=1e9)] = 500.0
    """Of one transfer, µs (assumed: the handshake of two engines)."""


class KvPool(Part):
    """Room for KV beyond the cache, in host memory or on a store, of one replica."""

    capacity_gib: Positive
    """GiB, of all ranks of a replica together."""
    load_gbps: Positive = 20.0
    """What a card loads from it, GB/s (assumed: copies from the host's memory; a store over the network has less)."""
    layerwise: Annotated[bool, Field(strict=True)] = True
    """Whether loading runs behind the layers that compute, or before the step."""
