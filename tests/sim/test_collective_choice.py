"""What HCCL chooses, at the edges of its thresholds."""

from __future__ import annotations

import pytest

from sim.collective.choose import CollectiveError
from sim.collective.price import price_collective
from sim.hardware import load_hardware

A2 = load_hardware("atlas_a2_910b2")
A3 = load_hardware("atlas_a3_die")
KIB, MIB = 1024, 1024**2


def chosen(*args: object, **named: object) -> tuple[str, str]:
    time = price_collective(*args, **named)  # type: ignore[arg-type]
    return time.mode, time.algorithm


@pytest.mark.parametrize(
    ("op", "share", "ranks"),
    [("all_gather", 512 * KIB, 8), ("reduce_scatter", MIB, 16), ("all_reduce", MIB, 8), ("all_to_all", 512 * KIB, 16)],
)
def test_vector_cores_up_to_a_share_on_a3(op: str, share: int, ranks: int) -> None:
    assert chosen(op, share * ranks, ranks, A3) == ("AIV", "mesh")
    above = ("AI_CPU", "mesh" if op == "all_to_all" else "ring")
    assert chosen(op, share * ranks + ranks, ranks, A3) == above
    # A whole graph keeps them up to 4 MiB a share.
    assert chosen(op, 4 * MIB * ranks, ranks, A3, graph=True)[0] == "AIV"
    assert chosen(op, 4 * MIB * ranks + ranks, ranks, A3, graph=True)[0] == "AI_CPU"


def test_small_all_reduces_take_one_shot() -> None:
    assert chosen("all_reduce", 64 * KIB, 8, A3) == ("AIV", "one_shot")
    assert chosen("all_reduce", 64 * KIB + 1, 8, A3) == ("AIV", "mesh")
    assert chosen("all_reduce", 256 * KIB, 8, A2, mode="HOST") == ("HOST", "one_shot")
    assert chosen("all_reduce", 256 * KIB + 1, 8, A2, mode="HOST") == ("HOST", "mesh")


def test_expansion_modes() -> None:
    assert chosen("all_reduce", 4096, 8, A3, mode="AI_CPU") == ("AI_CPU", "ring")
    assert chosen("all_reduce", 4096, 8, A3, mode="AIV")[0] == "AIV"
    # Above the threshold AIV falls back to the family's default.
    assert chosen("all_reduce", 64 * MIB, 8, A3, mode="AIV")[0] == "AI_CPU"
    assert chosen("broadcast", 4096, 8, A2)[0] == "HOST"


def test_vector_cores_taken() -> None:
    assert price_collective("all_gather", 8192, 8, A3).vector_cores == 8
    assert price_collective("all_gather", 8192, 16, A3).vector_cores == 16
    assert price_collective("all_to_all", 65536, 128, A3).vector_cores == 48
    assert price_collective("all_gather", 8192, 2, A2).vector_cores == 16
    assert price_collective("all_reduce", 8192, 2, A2).vector_cores == 24
    assert price_collective("all_reduce", 8192, 2, A3, mode="AI_CPU").vector_cores == 0


def test_between_servers() -> None:
    assert chosen("all_reduce", 8 * MIB, 64, A3) == ("AIV", "mesh")
    assert chosen("all_reduce", 8 * MIB + 64, 64, A3) == ("AI_CPU", "nhr")
    assert chosen("all_reduce", 64 * MIB, 64, A3) == ("AI_CPU", "hierarchical:nhr")
    assert chosen("all_gather", 32 * KIB * 64, 64, A3) == ("AIV", "mesh")
    # Two servers need one step with any algorithm; more are cheaper in a logarithm of steps.
    assert chosen("all_reduce", 64 * MIB, 16, A2) == ("HOST", "hierarchical:ring")
    assert chosen("all_reduce", 64 * MIB, 64, A2)[1] in ("hierarchical:nhr", "hierarchical:rhd")
    assert chosen("all_to_all", 64 * MIB, 16, A2) == ("HOST", "pairwise")


def test_a_forced_algorithm() -> None:
    assert chosen("all_reduce", 64 * MIB, 16, A3, algorithm="nhr") == ("AI_CPU", "nhr")
    # HCCL_ALGO leaves the level inside a server alone: what is forced is the one between servers.
    assert chosen("all_reduce", 64 * MIB, 16, A2, algorithm="pipeline") == ("HOST", "hierarchical:pipeline")
    assert chosen("all_gather", 4096, 8, A3, algorithm="ring") == ("AI_CPU", "ring")


@pytest.mark.parametrize(
    ("op", "ranks", "named", "message"),
    [
        ("allreduce", 8, {}, "Did you mean 'all_reduce'"),
        ("all_reduce", 8, {"mode": "AICPU"}, "Did you mean 'AI_CPU'"),
        ("all_reduce", 8, {"algorithm": "tree"}, "Known: auto, one_shot, mesh, ring, rhd, nhr, pipeline"),
        ("all_reduce", 8, {"algorithm": "pipeline"}, "needs ranks of several servers"),
        ("all_reduce", 64, {"algorithm": "mesh", "mode": "AI_CPU"}, "needs ranks of one server"),
        ("all_reduce", 8, {"semantics": "shard"}, "has no shards"),
        ("all_reduce", 0, {}, "1 or more"),
    ],
)
def test_what_there_is_not(op: str, ranks: int, named: dict[str, str], message: str) -> None:
    with pytest.raises(CollectiveError, match=message):
        price_collective(op, 65536, ranks, A3, **named)  # type: ignore[arg-type]
