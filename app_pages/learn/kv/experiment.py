"""Lesson: paging changes where keys and values lie, not how many bytes a token has; INT8 changes the bytes.

The cache is the allocator that the simulator and the device use; requests come, grow and leave by a seeded draw. The
error of INT8 is computed on keys with a few strong channels, as trained models have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from app_pages.learn.cases import case
from app_pages.learn.rounding import rounded
from scenarios.serving.kv_cache import ContiguousCache, OutOfCache, PagedCache
from sim.predict.memory import memory_of
from sim.predict.ratios import StepRatio, step_ratio
from sim.predict.steps import Case

Layout = Literal["contiguous", "paged"]
Scale = Literal["channel", "token", "head"]

#: Requests that wait at most; the first in line is served first.
MAX_WAITING = 64


@dataclass(frozen=True, slots=True)
class Traffic:
    """A seeded stream of requests: lengths uniform between the smallest and the largest, tokens."""

    seed: int = 0
    requests: int = 24
    min_tokens: int = 40
    max_tokens: int = 900
    common_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """The cache at one moment. cells: of each block (or of each piece of a row, as large as a block) the requests that
    hold it and how full it is, as (owner or -1, holders, share filled), `row_cells` to a row. running, waiting:
    requests. table: where the blocks of the newest paged request lie, in the order of its tokens."""

    cells: tuple[tuple[int, int, float], ...]
    running: int
    waiting: int
    used_tokens: int
    reserved_tokens: int
    finished: int
    row_cells: int
    table: tuple[int, ...] = ()


def play(
    layout: Layout, cache_tokens: int, block_tokens: int, traffic: Traffic, max_frames: int = 200
) -> tuple[Frame, ...]:
    """Requests through a cache of `cache_tokens`: admitted while there is room, a token more each step, then gone.

    Where a paged request finds no block for its next token, the one that was admitted last gives its blocks back and
    waits until another has gone; it starts again with all tokens it had (as vLLM preempts).
    """
    return _Stream(layout, cache_tokens, block_tokens, traffic).frames(max_frames)


class _Stream:
    """Requests 0, 1, ... with a prompt and an output of drawn lengths."""

    def __init__(self, layout: Layout, cache_tokens: int, block_tokens: int, traffic: Traffic) -> None:
        random = np.random.default_rng(traffic.seed)
        smallest = max(traffic.min_tokens, traffic.common_tokens + 1)
        self.prompt = random.integers(smallest, max(smallest, traffic.max_tokens) + 1, traffic.requests).tolist()
        self.output = random.integers(
            smallest // 2 + 1, max(smallest, traffic.max_tokens // 2) + 1, traffic.requests
        ).tolist()
        self.common, self.block = traffic.common_tokens, block_tokens
        self.row_tokens = max(p + o for p, o in zip(self.prompt, self.output, strict=True))
        self.row_tokens = -(-self.row_tokens // block_tokens) * block_tokens
        self.contiguous = ContiguousCache(cache_tokens // self.row_tokens, self.row_tokens)
        self.paged = PagedCache(cache_tokens // block_tokens, block_tokens)
        self.is_paged = layout == "paged"
        self.waiting: list[int] = list(range(traffic.requests))
        self.running: list[int] = []
        self.generated = [0] * traffic.requests
        self.finished = 0
        self.held = False  # nobody is admitted after a preemption until a request has gone

    def frames(self, most: int) -> tuple[Frame, ...]:
        taken: list[Frame] = []
        while (self.waiting or self.running) and len(taken) < most:
            self._admit()
            if not self.running:  # not even one request fits
                break
            taken.append(self._frame())
            self._leave()
            for request in tuple(self.running):
                if request in self.running:
                    self._grow(request)
        return tuple(taken)

    def _admit(self) -> None:
        while self.waiting and not self.held:
            request = self.waiting[0]
            try:
                self._allocate(request)
            except OutOfCache:
                return
            self.running.append(self.waiting.pop(0))

    def _allocate(self, request: int) -> None:
        tokens = self.prompt[request] + self.generated[request]
        if not self.is_paged:
            self.contiguous.allocate(request, tokens)
            return
        like = self.running[0] if self.common and self.running else None
        self.paged.allocate(request, tokens, like, self.common if like is not None else 0)

    def _leave(self) -> None:
        for request in tuple(self.running):
            if self.generated[request] == self.output[request]:
                self._cache.free(request)
                self.running.remove(request)
                self.finished += 1
                self.held = False

    def _grow(self, request: int) -> None:
        while request in self.running:
            try:
                self._cache.append(request)
            except OutOfCache:
                last = self.running.pop()
                self._cache.free(last)
                self.waiting.insert(0, last)
                self.held = bool(self.running)
            else:
                self.generated[request] += 1
                return

    @property
    def _cache(self) -> PagedCache | ContiguousCache:
        return self.paged if self.is_paged else self.contiguous

    def _frame(self) -> Frame:
        used = sum(self._cache.tokens(r) for r in self.running)
        cells = self._paged_cells() if self.is_paged else self._row_cells()
        reserved = sum(1 for owner, _, _ in cells if owner >= 0) * self.block
        waiting = min(len(self.waiting), MAX_WAITING)
        row = 8 if self.is_paged else self.row_tokens // self.block
        return Frame(
            cells=tuple(cells),
            running=len(self.running),
            waiting=waiting,
            used_tokens=used,
            reserved_tokens=reserved,
            finished=self.finished,
            row_cells=row,
            table=tuple(self.paged.table(self.running[-1])) if self.is_paged and self.running else (),
        )

    def _paged_cells(self) -> list[tuple[int, int, float]]:
        cells = [(-1, 0, 0.0)] * self.paged.blocks
        for request in reversed(self.running):  # a shared block is drawn as its oldest holder's
            tokens = self.paged.tokens(request)
            for place, block in enumerate(self.paged.table(request)):
                filled = min(1.0, (tokens - place * self.block) / self.block)
                cells[block] = (request, self.paged.holders(block), filled)
        return cells

    def _row_cells(self) -> list[tuple[int, int, float]]:
        pieces = self.row_tokens // self.block
        cells = [(-1, 0, 0.0)] * (self.contiguous.rows * pieces)
        for request in self.running:
            tokens, row = self.contiguous.tokens(request), self.contiguous.slot(request, 0) // self.row_tokens
            for place in range(pieces):
                filled = min(1.0, max(0.0, (tokens - place * self.block) / self.block))
                cells[row * pieces + place] = (request, 1, filled)
        return cells


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a device holds. token_bytes: keys and values of one token in all layers, scales included."""

    layout: str
    dtype: str
    token_bytes: int
    kv_tokens: int
    max_requests: int


def capacities(model: str, hardware: str, input_tokens: int, output_tokens: int) -> tuple[Capacity, ...]:
    """Contiguous and paged caches, 16 bits and INT8. Raises ScenarioError where the model does not fit."""
    rows = []
    for layout in ("contiguous", "paged"):
        for dtype in ("auto", "int8"):
            deployment = case(
                f"model={model}",
                f"hardware={hardware}",
                f"optimizations.kv.layout={layout}",
                f"optimizations.kv.dtype={dtype}",
                f"workload.input_tokens={input_tokens}",
                f"workload.output_tokens={output_tokens}",
                f"engine.max_model_len={4 * (input_tokens + output_tokens)}",
            )
            held = memory_of(deployment.scenario, deployment.model, deployment.hardware).capacity
            rows.append(Capacity(layout, dtype, held.bytes_per_token, held.kv_tokens, held.max_concurrent_requests))
    return tuple(rows)


def paged_case(model: str, hardware: str, layout: str = "paged") -> Case:
    """A decode step of eight requests in a graph, with a cache of that layout."""
    return case(
        f"model={model}",
        f"hardware={hardware}",
        f"optimizations.kv.layout={layout}",
        "optimizations.graph=aclgraph",
        "workload.batch=8",
    )


def paging_ratio(model: str, hardware: str) -> StepRatio:
    """Contiguous step over paged step: above 1, paging would make a step faster."""
    return step_ratio(paged_case(model, hardware, "contiguous"), paged_case(model, hardware))


@dataclass(frozen=True, slots=True)
class Quantised:
    """Real error of INT8 keys with one kind of scale: of the values (relative to the strongest), of the attention's
    output (relative to its strongest), and bytes of a token and head with its scales."""

    scale: Scale
    value_error: float
    output_error: float
    token_bytes: float


def quantised(tokens: int, head_dim: int, outlier: float, seed: int = 0) -> tuple[Quantised, ...]:
    """Keys and values of one head in INT8, scales of channels, tokens and the whole head, against float64.

    outlier: how much stronger every 32nd channel of the keys is than the rest.
    """
    random = np.random.default_rng(seed)
    strength = np.where(np.arange(head_dim) % 32 == 0, outlier, 1.0)
    k = rounded(random.normal(size=(tokens, head_dim)) * strength, "bf16").astype(np.float64)
    v = rounded(random.normal(size=(tokens, head_dim)), "bf16").astype(np.float64)
    q = random.normal(size=(16, head_dim)) / strength
    exact = _attend(q, k, v)
    rows = []
    for scale in ("channel", "token", "head"):
        keys, values = _int8(k, scale), _int8(v, scale)
        error = float(np.max(np.abs(keys - k)) / np.max(np.abs(k)))
        out = float(np.max(np.abs(_attend(q, keys, values) - exact)) / np.max(np.abs(exact)))
        scales = {"channel": head_dim / tokens, "token": 1.0, "head": 1 / tokens}[scale]
        rows.append(Quantised(scale, error, out, 2 * (head_dim + 4 * scales)))
    return tuple(rows)


def _int8(x: npt.NDArray[np.float64], scale: str) -> npt.NDArray[np.float64]:
    """To the nearest of 255 steps of one scale over channels, over a token's values, or over everything, and back."""
    axis = {"channel": 0, "token": 1, "head": None}[scale]
    step = np.max(np.abs(x), axis=axis, keepdims=True) / 127
    back: npt.NDArray[np.float64] = np.clip(np.rint(x / step), -127, 127) * step
    return back


def _attend(
    q: npt.NDArray[np.float64], k: npt.NDArray[np.float64], v: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    scores = q @ k.T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out: npt.NDArray[np.float64] = weights / weights.sum(-1, keepdims=True) @ v
    return out
