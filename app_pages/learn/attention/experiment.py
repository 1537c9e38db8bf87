"""Lesson: attention with online softmax never holds the matrix of scores; tiles of keys pass through a core's buffer.

    m' = max(m, max(s)),  l' = l e^(m - m') + sum(e^(s - m')),  o' = o e^(m - m') + e^(s - m') V

for each tile of scores s, and o / l at the end (Milakov and Gimelshein 2018; Dao et al. 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from app_pages.learn.cases import ops_sensitivity, program, ratio_of, step_of_tokens
from app_pages.learn.rounding import Precision, relative_error, rounded
from app_pages.parts import own
from scenarios.ops.catalogue import kind_of, work_of
from scenarios.ops.program import Op
from sim.hardware.profile import load_hardware
from sim.predict.ratios import StepRatio
from sim.predict.uncertainty import Sensitivity

UNFUSED = "optimizations.fusion.attention=false"


@dataclass(frozen=True, slots=True)
class Form:
    """Attention of one layer, in one kernel or in several. peak_bytes: the largest tensor between its kernels.
    depends_on: its device time, and what that depends on."""

    fused: bool
    kernels: int
    moved_bytes: int
    flops: int
    peak_bytes: int
    depends_on: Sensitivity

    @property
    def device_us(self) -> float:
        return self.depends_on.step_ns / 1000


@dataclass(frozen=True, slots=True)
class Room:
    """What must be on chip at once, against what is there. scores_bytes: the whole matrix of one head in float32;
    tile_bytes: scores, keys and values of one tile of `tile` keys alongside `rows` queries."""

    ub_bytes: int
    l1_bytes: int
    scores_bytes: int
    tile_bytes: int

    @property
    def whole_fits(self) -> bool:
        return self.scores_bytes <= self.ub_bytes


def forms(model: str, hardware: str, tokens: int) -> tuple[Form, Form]:
    """(unfused, fused) attention of a prompt of `tokens` tokens. Raises ScenarioError for unknown names."""
    return _form(model, hardware, tokens, fused=False), _form(model, hardware, tokens, fused=True)


def _form(model: str, hardware: str, tokens: int, fused: bool) -> Form:
    case = step_of_tokens(model, hardware, tokens, "optimizations.kv.layout=contiguous", *([] if fused else [UNFUSED]))
    ops = [op for op in program(case).block("layers").ops if _of_attention(op)]
    works = [work_of(op) for op in ops]
    return Form(
        fused=fused,
        kernels=len(ops),
        moved_bytes=sum(w.gm_bytes for w in works),
        flops=sum(w.cube_flops for w in works),
        peak_bytes=max((op.out.bytes for op in ops[:-1]), default=0),
        depends_on=ops_sensitivity(ops, case.hardware),
    )


def ratio(unfused: Form, fused: Form, hardware: str) -> StepRatio:
    """Device time of the one over that of the other, with its interval."""
    return ratio_of(unfused.depends_on, fused.depends_on, load_hardware(own.resolved(hardware)))


def _of_attention(op: Op) -> bool:
    return kind_of(op).family == "attention" or op.name.startswith("attn.")


def room(hardware: str, tokens: int, rows: int, tile: int, head_dim: int = 128) -> Room:
    """What whole scores and one tile of them need on chip, bytes."""
    chip = step_of_tokens("Qwen3-8B", hardware, 16).hardware.chip
    scores = rows * tile * 4
    keys_values = 2 * tile * head_dim * 2
    return Room(chip.ub_bytes, chip.l1_bytes, tokens * tokens * 4, scores + keys_values)


@dataclass(frozen=True, slots=True)
class Tile:
    """State after one tile of keys, of the query that is shown: running maximum and sum, and by how much what was there
    before has been scaled. error: of the output so far divided by the sum so far, against the end result."""

    first_key: int
    keys: int
    maximum: float
    total: float
    rescale: float
    error: float


@dataclass(frozen=True, slots=True)
class Online:
    """One head's attention in tiles. error: against float64; whole_error: the same of softmax over all keys at once, in
    the same precision."""

    tiles: tuple[Tile, ...]
    error: float
    whole_error: float
    rescaled: int


def online(keys: int, tile: int, precision: Precision, seed: int = 0, head_dim: int = 128, rows: int = 16) -> Online:
    """`rows` queries of one head over `keys` keys, tile by tile: computed, not assumed. Inputs are in `precision`,
    scores and sums in float32, probabilities rounded before they meet V, as fused kernels do."""
    random = np.random.default_rng(seed)
    q = rounded(random.normal(size=(rows, head_dim)), precision)
    k = rounded(random.normal(size=(keys, head_dim)), precision)
    v = rounded(random.normal(size=(keys, head_dim)), precision)
    scale = np.float32(head_dim**-0.5)
    exact = _exact(q, k, v, float(scale))
    maximum = np.full((rows, 1), -np.inf, np.float32)
    total, out = np.zeros((rows, 1), np.float32), np.zeros((rows, head_dim), np.float32)
    tiles, rescaled = [], 0
    for first in range(0, keys, tile):
        scores = (q @ k[first : first + tile].T) * scale
        new = np.maximum(maximum, scores.max(-1, keepdims=True))
        keep, weights = np.exp(maximum - new), np.exp(scores - new)
        total = total * keep + weights.sum(-1, keepdims=True, dtype=np.float32)
        out = out * keep + rounded(weights, precision) @ v[first : first + tile]
        rescaled += int(np.count_nonzero(keep[:, 0] < 1)) if first else 0
        maximum = new
        tiles.append(
            Tile(
                first,
                scores.shape[1],
                float(new[0, 0]),
                float(total[0, 0]),
                float(keep[0, 0]),
                relative_error(out[:1] / total[:1], exact[:1]),
            )
        )
    assert len(tiles) == ceil(keys / tile)
    attended = rounded(out / total, precision)
    return Online(
        tuple(tiles), relative_error(attended, exact), _whole_error(q, k, v, scale, precision, exact), rescaled
    )


def _whole_error(
    q: npt.NDArray[np.float32],
    k: npt.NDArray[np.float32],
    v: npt.NDArray[np.float32],
    scale: np.float32,
    precision: Precision,
    exact: npt.NDArray[np.float64],
) -> float:
    """Unfused: scores are written in `precision`, softmax runs in float32 and is written in `precision` again."""
    scores = rounded(rounded(q @ k.T, precision) * scale, precision)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = rounded(weights / weights.sum(-1, keepdims=True, dtype=np.float32), precision)
    return relative_error(rounded(weights @ v, precision), exact)


def _exact(
    q: npt.NDArray[np.float32], k: npt.NDArray[np.float32], v: npt.NDArray[np.float32], scale: float
) -> npt.NDArray[np.float64]:
    scores = q.astype(np.float64) @ k.astype(np.float64).T * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    attended: npt.NDArray[np.float64] = weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64)
    return attended
