"""The KV cache as tensors: where the allocator of scenarios/serving says, in 16 bits or INT8 with scales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from device.operators.quant import INT8_MAX, SMALLEST_SCALE
from scenarios.models.model import Model
from scenarios.models.states import GatedDelta, ShortConv
from scenarios.ops.program import DType
from scenarios.schema import Scenario
from scenarios.serving.admission import KvCache
from scenarios.serving.kv_cache import ContiguousCache, PagedCache, blocks_of

Tensors = list[torch.Tensor]
#: What layers keep of a request: shape and type of each tensor, by name.
States = dict[str, tuple[tuple[int, ...], DType]]


class KvTensors:
    """Keys, values and scales of all layers, where `allocator` places them; without one, for `scenario.workload.batch`
    requests of the longest length.

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
        allocator: KvCache | None = None,
    ) -> None:
        kv = scenario.optimizations.kv
        self.scale = kv.scale if kv.dtype == "int8" else None
        self.allocator = allocator or _allocator(scenario)
        if isinstance(self.allocator, ContiguousCache):
            self.block_size, places, size = 0, self.allocator.rows, self.allocator.row_tokens
        else:
            self.block_size = size = self.allocator.block_size
            self.blocks_per_request = blocks_of(scenario.longest_request_tokens, size)
            places = self.allocator.blocks
        self._place_tokens, self.spare_slot = size, places * size
        places += spare
        held = torch.int8 if self.scale else dtypes[act]
        self.tensors: dict[str, Tensors] = {}
        layers = [shard.at(layer) for layer in range(shard.layers)]
        for name in dict.fromkeys(name for one in layers for name in _rows(one)):
            self.tensors[name] = [
                torch.zeros((places, size, *_rows(one).get(name, (0,))), dtype=held, device=device) for one in layers
            ]
        self._lend(layers)

        def states_of(one: Model) -> States:
            return _states(one, act) | _compressed(one, act, scenario.longest_request_tokens)

        for name in dict.fromkeys(name for one in layers for name in states_of(one)):
            states = [states_of(one).get(name, ((0,), act)) for one in layers]
            self.tensors[name] = [
                torch.zeros((scenario.workload.batch, *shape), dtype=dtypes[dtype], device=device)
                for shape, dtype in states
            ]
        if self.scale:
            channel = self.scale == "channel"
            fill = torch.ones if channel else torch.zeros
            scale_of = dtypes[act] if channel else torch.float32
            for name in ("k_scale", "v_scale"):
                self.tensors[name] = [
                    fill(self._scale_shape(one, places * size), dtype=scale_of, device=device) for one in layers
                ]

    def _scale_shape(self, one: Model, tokens: int) -> tuple[int, ...]:
        """Of the scales of K or V of one layer."""
        if self.scale == "channel":
            return one.kv_heads, 1, one.head_dim
        return tokens, one.kv_heads if self.scale == "head" else 1

    def _lend(self, layers: Sequence[Model]) -> None:
        """Layers without keys and values of their own see those of the last layer of their kind that has some."""
        for tensors in self.tensors.values():
            last: dict[str, torch.Tensor] = {}
            for layer, one in enumerate(layers):
                if one.attention.borrows:
                    tensors[layer] = last[_lender(one)]
                else:
                    last[_lender(one)] = tensors[layer]

    @property
    def bytes(self) -> int:
        """Bytes of keys, values and scales of all layers."""
        return sum(t.numel() * t.element_size() for tensors in self.tensors.values() for t in tensors)

    @property
    def taken_tokens(self) -> int:
        """Tokens of the cache that no other request can have: whole rows, or whole blocks."""
        if isinstance(self.allocator, ContiguousCache):
            return (self.allocator.rows - self.allocator.free_rows) * self.allocator.row_tokens
        return (self.allocator.blocks - self.allocator.free_blocks) * self.block_size

    @property
    def wasted_tokens(self) -> int:
        """Of these, the tokens that hold nothing."""
        return self.allocator.wasted_tokens

    def get(self, name: str, layer: int) -> torch.Tensor:
        """The tensor `name` of one layer."""
        return self.tensors[name][layer]

    def slots(self, requests: Sequence[int], contexts: Sequence[int], queries: Sequence[int]) -> list[int]:
        """The places of the new tokens in a contiguous cache, counted in tokens over all of it, request by request."""
        return [
            start + position
            for start, context, query in zip(map(self._row_start, requests), contexts, queries, strict=True)
            for position in range(context, context + query)
        ]

    def _row_start(self, request: int) -> int:
        """Where the row of `request` starts, counted in tokens over the whole cache."""
        return self.allocator.slot(request, 0)

    def block_table(self, requests: Sequence[int]) -> list[list[int]]:
        """The block tables of `requests`, filled up with block 0 to the longest length."""
        assert not isinstance(self.allocator, ContiguousCache)
        tables = [self.allocator.table(r) for r in requests]
        return [[*table, *[0] * (self.blocks_per_request - len(table))] for table in tables]

    def rows(self, requests: Sequence[int]) -> tuple[int, ...]:
        """The rows of `requests` in a contiguous cache; their numbers where it is paged."""
        if isinstance(self.allocator, ContiguousCache):
            return tuple(self._row_start(r) // self.allocator.row_tokens for r in requests)
        return tuple(requests)

    def places(self, request: int) -> list[int]:
        """The blocks of `request` in order, or its row."""
        if isinstance(self.allocator, ContiguousCache):
            return list(self.rows((request,)))
        return list(self.allocator.table(request))

    def taken_out(self, places: Sequence[int]) -> Tensors:
        """What lies in these blocks or rows, on the host."""
        return [tensor[list(places)].cpu() for tensor in self._by_place()]

    def put_back(self, places: Sequence[int], contents: Tensors) -> None:
        """What `taken_out` gave, into as many blocks or rows, or more."""
        for tensor, saved in zip(self._by_place(), contents, strict=True):
            tensor[list(places[: len(saved)])] = saved.to(tensor.device)

    def _by_place(self) -> Iterator[torch.Tensor]:
        """All tensors that hold something of each token, [blocks or rows, their tokens, ...]."""
        size = self._place_tokens
        for name, tensors in self.tensors.items():
            if name.endswith("_scale") and self.scale == "channel":
                continue
            for tensor in tensors:
                yield tensor.view(-1, size, tensor.shape[-1]) if name.endswith("_scale") else tensor

    def set_channel_scales(self, keys: Tensors, values: Tensors) -> None:
        """Take the scales of the channels from a 16-bit cache that a calibration run has filled: the largest magnitude
        of each."""
        for name, caches in (("k_scale", keys), ("v_scale", values)):
            for scale, cache in zip(self.tensors[name], caches, strict=True):
                most = cache.float().abs().amax((0, 1)).unsqueeze(1)
                scale.copy_((most / INT8_MAX).clamp_min(SMALLEST_SCALE))


def _allocator(scenario: Scenario) -> KvCache:
    """An empty cache for `scenario.workload.batch` requests of the longest length."""
    kv, requests, longest = scenario.optimizations.kv, scenario.workload.batch, scenario.longest_request_tokens
    if kv.layout == "contiguous":
        return ContiguousCache(requests, longest)
    return PagedCache(requests * blocks_of(longest, kv.block_size), kv.block_size)


def _lender(one: Model) -> str:
    """Layers that see the same keys can lend each other theirs."""
    return f"{one.attention.window} {one.attention.chunk}"


def _rows(one: Model) -> dict[str, tuple[int, int]]:
    """What a layer keeps of a token, [heads, dim] of each cache."""
    if not one.has_cache:
        return {}
    if latent := one.latent:
        rows = {"latent_cache": (1, latent.kv_rank), "rope_cache": (1, latent.rope_dim)}
        return rows | ({"index_cache": (1, latent.own_index.dim)} if latent.own_index else {})
    if one.shared_kv:
        return {"window_cache": (1, one.head_dim)}
    return {"k_cache": (one.kv_heads, one.head_dim), "v_cache": (one.kv_heads, one.value_dim)}


def _compressed(one: Model, act: DType, longest: int) -> States:
    """Compressed rows of a request of at most `longest` tokens, and what the compressors hold of its last ones."""
    shared = one.shared_kv
    if shared is None or not shared.ratio:
        return {}
    rows, wide = max(1, shared.rows(longest)), 2 * shared.parts
    kept: States = {
        "compressed_cache": ((rows, one.head_dim), act),
        "compressed_state": ((shared.depth, wide * one.head_dim), "fp32"),
    }
    if index := shared.index:
        kept["index_keys"] = ((rows, index.dim), "int8")
        kept["index_scales"] = ((rows, 1), "fp16")
        kept["index_state"] = ((shared.depth, wide * index.dim), "fp32")
    return kept


def _states(one: Model, act: DType) -> States:
    """What a layer keeps of a request whatever its length: shape and type of each."""
    state = one.state
    if state is None:
        return {}
    kept: States = {"conv_state": ((state.kernel - 1, state.channels), act)}
    if not isinstance(state, ShortConv):
        name = "delta_state" if isinstance(state, GatedDelta) else "ssm_state"
        kept[name] = (state.matrix, "fp32" if state.dtype == "fp32" else act)
    return kept
