"""One colour for each class of work, wherever it is drawn; every kind and family has its class."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest

from app_pages.parts.palette import BAD, BY_FAMILY, CLASSES, FAMILIES, GOOD, class_of
from scenarios.ops.catalogue import CATALOGUE
from sim.accuracy import families


def test_every_kind_has_a_class() -> None:
    assert {class_of(kind) for kind in CATALOGUE} <= set(CLASSES)
    assert set(BY_FAMILY.values()) <= set(CLASSES)
    assert tuple(FAMILIES) == families.FAMILIES


@pytest.mark.parametrize(
    ("kind", "process", "name"),
    [
        ("matmul", "Ascend Hardware", "matmul"),
        ("ffn", "Ascend Hardware", "matmul"),
        ("attention", "Ascend Hardware", "attention"),
        ("softmax", "Ascend Hardware", "attention"),
        ("add_rms_norm", "Ascend Hardware", "norm"),
        ("swiglu", "Ascend Hardware", "vector"),
        ("kv_cache_write", "Ascend Hardware", "cache"),
        ("moe_dispatch", "Ascend Hardware", "experts"),
        ("all_reduce", "Communication", "communication"),
        ("transfer", "Communication", "communication"),
        ("wait", "Communication", "wait"),
        ("matmul", "Python", "host"),
        ("matmul", "CANN", "launch"),
        ("synchronize", "Python", "wait"),
        ("replay", "CANN", "graph"),
        ("prepare_cpu", "AI CPU", "ai_cpu"),
    ],
)
def test_the_class_of_a_span(kind: str, process: str, name: str) -> None:
    assert class_of(kind, process) == name


#: What is left of linear red, green and blue with no long, middle or short cones (Machado, Oliveira, Fernandes 2009).
SIGHT = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}
TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.9505, 1.0, 1.089)
#: A difference of 2.3 is just noticed; two patches that are apart need several times that.
APART = 10.0


def times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def seen(colour: str, sight: str) -> tuple[float, float, float]:
    """CIE Lab of a colour as someone with that sight has it."""
    srgb = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in srgb]
    left = [min(1.0, max(0.0, c)) for c in times(SIGHT[sight], linear)]
    xyz = [value / white for value, white in zip(times(TO_XYZ, left), WHITE, strict=True)]
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("sight", SIGHT)
def test_classes_that_lie_beside_each_other_on_a_stream_are_told_apart(sight: str) -> None:
    solid = [CLASSES[name] for name in ("matmul", "attention", "norm", "vector", "cache", "experts")]
    for one, other in itertools.combinations(solid, 2):
        assert math.dist(seen(one, sight), seen(other, sight)) > APART, (one, other)


@pytest.mark.parametrize("sight", SIGHT)
def test_gain_and_loss_are_told_apart(sight: str) -> None:
    assert math.dist(seen(GOOD, sight), seen(BAD, sight)) > 2 * APART
