"""Fit the three numbers of every vector kernel: start, per core, per element, each kind shrunk to its family's law.

    us = start + per core x cores x code + max(per element x elements of the fullest core, bytes / rate)

Cores, elements, code and rate are known before the fit (`sim.kernel.vector`). The logarithms of a kind's numbers are
drawn towards those of its family, and a family's towards one law of all, so that a kind with one row moves its family's
law a little and one with many rows has its own. Where a compiler made the kernels for their shapes (TorchAir's static
graphs), the start is drawn to 1.0 us instead: no tiling is read. Found by turns: each kind given its family, each
family given its kinds. Spreads of the priors and the residual were taken from the rows of two stacks together, and
moving them by half or double moves no median error by more than two points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.ops.work import FlatShape, RowsShape
from scenarios.records import dataclass
from sim.fitting import robust
from sim.fitting.kernels import FOLDS, Sample
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.tiling.chip import tiling_chip
from sim.kernel.vector import code_share, moving_ns
from sim.kernel.vector_tiling import counted_elements, program_of, spread_of
from sim.predict.uncertainty import Z90

Vector = NDArray[np.float64]
EFFECTS = ("start_us", "core_us", "element_ns")

#: Standard deviations of log start, log per core and log per element: of kinds around their family, of families around
#: the law of all.
KIND_SIGMAS = (0.35, 0.5, 0.7)
FAMILY_SIGMAS = (0.5, 0.7, 2.0)
#: The law of all: start us, us a core.
START_US, CORE_US = 1.5, 0.10
#: Start of kernels that a graph compiler made for their shapes: 0.46 us of launch and half a microsecond.
STATIC_START_US, STATIC_SIGMA = 1.0, 0.25
#: A row is known this well (relative), and counts less where it is off by more than ROBUST.
ROW_SIGMA, ROBUST = 0.08, 0.10
ROUNDS = 6

#: Nanoseconds an element where no kind of the family is known.
ELEMENT_NS = {
    "cache": 0.6, "rope": 0.5, "row": 0.2, "pick": 0.3, "elementwise": 0.1, "broadcast": 0.2, "copy": 0.06,
    "transpose": 0.1,
}  # fmt: skip

_KINDS = {
    "elementwise": "elementwise elementwise_heavy cast compare integer fill swish_mul sigmoid gelu mish reduce",
    "broadcast": "broadcast broadcast_row masked_fill masked_broadcast expand",
    "row": "row_wise rms_norm rms_norm_short add_rms_norm add_rms_norm_rows add_rms_norm_dynamic_quant swiglu "
    "dynamic_quant dynamic_quant_odd static_quant",
    "pick": "moe_gating_top_k softmax top_k_top_p argmax sort",
    "rope": "rope interleave_rope triton_rope triton_qkv_norm_rope",
    "cache": "scatter kv_cache_write kv_norm_rope_cache qkv_norm_rope_cache",
    "copy": "copy kv_cache_read gather index range slice split concat as_strided moe_init_routing",
    "transpose": "transpose trans_data",
}
#: The family of each kind of vector kernel.
FAMILY = {kind: family for family, kinds in _KINDS.items() for kind in kinds.split()}
#: Kinds that only a graph compiler issues.
STATIC = ("scatter", "swish_mul", "split")


@dataclass(frozen=True, slots=True)
class VectorRow:
    """One measured kernel: cores (times what its code costs), elements of the fullest core, us that moving its bytes
    takes. shape: what it is held out with."""

    kind: str
    shape: str
    stack: str
    model: str
    cores: float
    elements: float
    moving_us: float
    us: float


@dataclass(frozen=True, slots=True)
class Laws:
    """Logarithms of (start us, us a core, us an element) of the kinds that have rows, and of every family."""

    kinds: Mapping[str, Vector]
    families: Mapping[str, Vector]

    def numbers(self, kind: str) -> tuple[float, float, float]:
        """(start us, us a core, ns an element) of a kind; its family's where it has no rows."""
        start, core, element = np.exp(self.kinds[kind] if kind in self.kinds else self.families[FAMILY[kind]])
        if kind in STATIC and kind not in self.kinds:
            start = STATIC_START_US
        return float(start), float(core), float(1000 * element)

    def us(self, row: VectorRow) -> float:
        """The predicted time of `row`."""
        start, core, element_ns = self.numbers(row.kind)
        return start + core * row.cores + max(element_ns / 1000 * row.elements, row.moving_us)

    def spreads(self, rows: Sequence[VectorRow]) -> dict[str, Vector]:
        """Standard deviations of each kind's logarithms, at their best values; those around the family without rows."""
        kinds = {kind: _Kind.of([row for row in rows if row.kind == kind]) for kind in self.kinds}
        own = {kind: item.spread(self.kinds[kind], np.array(KIND_SIGMAS)) for kind, item in kinds.items()}
        return {kind: own.get(kind, np.array(KIND_SIGMAS)) for kind in FAMILY}


def fit_laws(rows: Sequence[VectorRow], priors: Mapping[str, Vector] | None = None) -> Laws:
    """The laws of `rows`. priors: logarithms by kind that take the place of the families (another chip's laws)."""
    by_kind: dict[str, list[VectorRow]] = {}
    for row in rows:
        by_kind.setdefault(row.kind, []).append(row)
    data = {kind: _Kind.of(items) for kind, items in sorted(by_kind.items())}
    general = {f: np.log([START_US, CORE_US, ns / 1000]) for f, ns in ELEMENT_NS.items()}
    families = dict(general)
    kinds = {kind: _centre(kind, families, priors)[0] for kind in data}
    for _ in range(1 if priors else ROUNDS):
        for kind, item in data.items():
            centre, sigmas = _centre(kind, families, priors)
            kinds[kind] = item.solved(kinds[kind], centre, sigmas)
        for family, law in general.items():
            mine = [p for kind, p in kinds.items() if FAMILY[kind] == family]
            families[family] = _joined(mine, law)
    return Laws(kinds, families)


def _centre(kind: str, families: Mapping[str, Vector], priors: Mapping[str, Vector] | None) -> tuple[Vector, Vector]:
    """What a kind's numbers are drawn to, and how weakly."""
    centre, sigmas = np.array(families[FAMILY[kind]]), np.array(KIND_SIGMAS)
    if priors:
        return np.array(priors[kind]), np.array(KIND_SIGMAS)
    if kind in STATIC:
        centre[0], sigmas[0] = np.log(STATIC_START_US), STATIC_SIGMA
    return centre, sigmas


def _joined(kinds: Sequence[Vector], general: Vector) -> Vector:
    """A family's law: the mean of its kinds and the general law, by their weights."""
    each, own = 1 / np.square(KIND_SIGMAS), 1 / np.square(FAMILY_SIGMAS)
    total = np.sum(kinds, axis=0) * each if kinds else 0.0
    return np.asarray((total + general * own) / (each * len(kinds) + own))


@dataclass(frozen=True, slots=True)
class _Kind:
    """The rows of one kind as columns; weights: rows of one shape count as the root of their number."""

    cores: Vector
    elements: Vector
    moving: Vector
    measured: Vector
    weights: Vector

    @classmethod
    def of(cls, rows: Sequence[VectorRow]) -> _Kind:
        count: dict[tuple[str, str], int] = {}
        for row in rows:
            count[row.shape, row.stack] = count.get((row.shape, row.stack), 0) + 1
        return cls(
            np.array([row.cores for row in rows]),
            np.array([row.elements for row in rows]),
            np.array([row.moving_us for row in rows]),
            np.log([row.us for row in rows]),
            np.array([count[row.shape, row.stack] ** -0.5 for row in rows]),
        )

    def solved(self, start: Vector, centre: Vector, sigmas: Vector) -> Vector:
        """The numbers that fit best, from `start`."""

        def residuals(x: Vector) -> Vector:
            return self._residuals(x, centre, sigmas)

        solver: Any = robust.scipy()
        fits = [solver.least_squares(residuals, x0, max_nfev=60) for x0 in (start, centre)]
        best = min(fits, key=lambda fit: fit.cost)
        return np.asarray(best.x)

    def spread(self, best: Vector, sigmas: Vector) -> Vector:
        """Standard deviations of the logarithms: the inverse of the curvature at `best`."""
        step = 1e-4
        slopes = [
            self._residuals(best + d, best, sigmas) - self._residuals(best - d, best, sigmas) for d in step * np.eye(3)
        ]
        slope = np.array(slopes).T / (2 * step)
        return np.asarray(np.sqrt(np.diag(np.linalg.inv(slope.T @ slope))))

    def _residuals(self, x: Vector, centre: Vector, sigmas: Vector) -> Vector:
        start, core, element = np.exp(x)
        us = start + core * self.cores + np.maximum(element * self.elements, self.moving)
        off = (np.log(us) - self.measured) / ROW_SIGMA * self.weights
        bend = ROBUST / ROW_SIGMA
        off = np.sign(off) * bend * np.sqrt(2 * (np.sqrt(1 + (off / bend) ** 2) - 1))
        return np.concatenate([off, (x - centre) / sigmas])


def law_numbers(laws: Laws, spreads: Mapping[str, Vector]) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """(value, 90 % interval) of the numbers of every kind, by their dotted names in a profile."""
    values: dict[str, float] = {}
    spans: dict[str, tuple[float, float]] = {}
    for kind in FAMILY:
        for effect, value, sigma in zip(EFFECTS, laws.numbers(kind), spreads[kind], strict=True):
            name, factor = f"programs.{kind}.{effect}", float(np.exp(Z90 * sigma))
            values[name], spans[name] = value, (value / factor, value * factor)
    return values, spans


def unseen(
    rows: Sequence[VectorRow], by: str, priors: Mapping[str, Vector] | None = None
) -> list[tuple[VectorRow, float]]:
    """(row, ln predicted / measured), each predicted by laws that have not seen its shape, model or stack.

    by: the field of VectorRow that is held out: shapes in FOLDS groups, models and stacks one by one.
    """
    groups = sorted({getattr(row, by) for row in rows})
    folds = min(FOLDS, len(groups)) if by == "shape" else len(groups)
    result = []
    for fold in range(folds):
        out = set(groups[fold::folds])
        laws = fit_laws([row for row in rows if getattr(row, by) not in out], priors)
        left = [row for row in rows if getattr(row, by) in out]
        result += [(row, float(np.log(laws.us(row) / row.us))) for row in left]
    return result


def vector_rows(samples: Sequence[Sample], bases: Mapping[str, HardwareProfile]) -> list[VectorRow]:
    """The samples of vector kernels, laid out on their hardware."""
    rows = []
    for sample in samples:
        work, hw = sample.work, bases[sample.hardware]
        if work.unit != "vector" or not isinstance(work.shape, FlatShape | RowsShape):
            continue
        chip = tiling_chip(hw.chip)
        kind = program_of(work, chip)
        spread = spread_of(kind, work, chip, hw.programs.get(kind) or KernelParams())
        code = code_share(sample.code, hw)
        moving_us = moving_ns(work, hw, spread.busy, sample.resident or sample.stack == "alone") / 1000
        rows.append(
            VectorRow(
                kind,
                sample.shape,
                stack=sample.stack,
                model=sample.model,
                cores=spread.started * code,
                elements=counted_elements(kind, work, spread, chip),
                moving_us=moving_us,
                us=sample.us,
            )
        )
    return rows


def laws_table(rows: Sequence[VectorRow]) -> str:
    """Errors by stack: of the rows that the laws are fitted to, and with shapes, models and stacks held out."""
    laws = fit_laws(rows)
    fitted = [(row, float(np.log(laws.us(row) / row.us))) for row in rows]
    ways = {"fitted": fitted, **{f"{by} held out": unseen(rows, by) for by in ("shape", "model", "stack")}}
    lines = [f"{'vector kernels':52} {'rows':>5} {'median':>7} {'P90':>7}"]
    for way, pairs in ways.items():
        for stack in sorted({row.stack for row in rows}):
            errors = np.abs(np.expm1([error for row, error in pairs if row.stack == stack]))
            median, p90 = np.percentile(errors, (50, 90))
            lines.append(f"{way:16} {stack[:35]:35} {len(errors):5} {median:7.1%} {p90:7.1%}")
    return "\n".join(lines)
