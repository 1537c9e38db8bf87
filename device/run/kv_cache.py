"""The KV cache as tensors: where the allocator of scenarios/serving says, in 16 bits or INT8 with scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from device.operators.quant import INT8_MAX, SMALLEST_SCALE
from scenarios.models.model import Model
from scenarios.ops.program import DType
from scenarios.schema import Scenario
from scenarios.serving.kv_cache import Cache, ContiguousCache, PagedCache, blocks_of

Tensors = list[torch.Tensor]


class KvTensors:
    """Keys, values and scales of all layers, for `scenario.workload.batch` requests of the longest length.

    Contiguous: [rows, tokens, kv heads, dim]. Paged: [blocks, block size, kv heads, dim]. Of latent attention: latent
    rows and their rotated parts, each as of one head. Scales of INT8: a constant [kv heads, 1, dim] of each layer
    (scale channel), or [tokens of the cache, 1 or kv heads] (token, head).
    spare: one more row or block, to which the padding of a captured batch is written.
    """

    def __init__(
        self,
        scenario: Scenario,
        shard: Model,
        act: DType,
        dtypes: Mapping[DType, torch.dtype],
        device: torch.device,
        spare: bool = False,
    ) -> None:
        kv, requests, longest = scenario.optimizations.kv, scenario.workload.batch, scenario.longest_request_tokens
        self.scale = kv.scale if kv.dtype == "int8" else None
        self.block_size = kv.block_size if kv.layout == "paged" else 0
        self.allocator: Cache
        if self.block_size:
            self.blocks_per_request = blocks_of(longest, kv.block_size)
            self.allocator = PagedCache(requests * self.blocks_per_request, kv.block_size)
            places, size = self.allocator.blocks, kv.block_size
        else:
            self.allocator = ContiguousCache(requests, longest)
            places, size = requests, longest
        self.spare_slot = places * size
        places += spare
        held = torch.int8 if self.scale else dtypes[act]
        self.tensors: dict[str, Tensors] = {
            name: [torch.zeros((places, size, *row), dtype=held, device=device) for _ in range(shard.layers)]
            for name, row in _rows(shard).items()
        }
        if self.scale:
            channel = self.scale == "channel"
            heads = shard.kv_heads if self.scale == "head" else 1
            shape_of_scale = (shard.kv_heads, 1, shard.head_dim) if channel else (places * size, heads)
            fill = torch.ones if channel else torch.zeros
            for name in ("k_scale", "v_scale"):
                self.tensors[name] = [
                    fill(shape_of_scale, dtype=dtypes[act] if channel else torch.float32, device=device)
                    for _ in range(shard.layers)
                ]

    @property
    def bytes(self) -> int:
        """Bytes of keys, values and scales of all layers."""
        return sum(t.numel() * t.element_size() for tensors in self.tensors.values() for t in tensors)

    @property
    def taken_tokens(self) -> int:
        """Tokens of the cache that no other request can have: whole rows, or whole blocks."""
        if isinstance(self.allocator, PagedCache):
            return (self.allocator.blocks - self.allocator.free_blocks) * self.block_size
        return (self.allocator.rows - self.allocator.free_rows) * self.allocator.row_tokens

    @property
    def wasted_tokens(self) -> int:
        """Of these, the tokens that hold nothing."""
        return self.allocator.wasted_tokens

    def get(self, name: str, layer: int) -> torch.Tensor:
        """The tensor `name` of one layer."""
        return self.tensors[name][layer]

    def slots(self, requests: Sequence[int], contexts: Sequence[int], queries: Sequence[int]) -> list[int]:
        """The places of the new tokens, counted in tokens over the whole cache, request by request."""
        return [
            self.allocator.slot(r, position)
            for r, context, query in zip(requests, contexts, queries, strict=True)
            for position in range(context, context + query)
        ]

    def block_table(self, requests: Sequence[int]) -> list[list[int]]:
        """The block tables of `requests`, filled up with block 0 to the longest length."""
        assert isinstance(self.allocator, PagedCache)
        tables = [self.allocator.table(r) for r in requests]
        return [[*table, *[0] * (self.blocks_per_request - len(table))] for table in tables]

    def rows(self, requests: Sequence[int]) -> tuple[int, ...]:
        """The rows of `requests` in a contiguous cache; their numbers where it is paged."""
        if isinstance(self.allocator, ContiguousCache):
            return tuple(self.allocator.slot(r, 0) // self.allocator.row_tokens for r in requests)
        return tuple(requests)

    def set_channel_scales(self, keys: Tensors, values: Tensors) -> None:
        """Take the scales of the channels from a 16-bit cache that a calibration run has filled: the largest magnitude
        of each."""
        for name, caches in (("k_scale", keys), ("v_scale", values)):
            for scale, cache in zip(self.tensors[name], caches, strict=True):
                most = cache.float().abs().amax((0, 1)).unsqueeze(1)
                scale.copy_((most / INT8_MAX).clamp_min(SMALLEST_SCALE))


def _rows(shard: Model) -> dict[str, tuple[int, int]]:
    """What one layer keeps of a token, [heads, dim] of each cache."""
    if latent := shard.latent:
        rows = {"latent_cache": (1, latent.kv_rank), "rope_cache": (1, latent.rope_dim)}
        return rows | ({"index_cache": (1, latent.index.dim)} if latent.index else {})
    row = (shard.kv_heads, shard.head_dim)
    return {"k_cache": row, "v_cache": row}
