"""Which small Programs are timed: one layer, over sizes, batches, lengths and switches.

The sizes are not those of shipped models, and no two trials share all of them, so that what a parameter stands for (a
call, a row, an element, a byte) moves apart from the others. Forms that must be compiled cost seconds each: few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from scenarios.models.model import Model
from scenarios.schema import Scenario

#: Tensor-parallel ranks that meet for collectives, and the bytes of their tensors.
RANKS, LINK_BYTES = 2, (1 << 8, 1 << 12, 1 << 15, 1 << 18, 1 << 21)
#: Bytes that a copy reads, over the levels of a CPU's caches or into a device's memory.
COPY_BYTES = tuple(1 << n for n in range(12, 28))
#: The same on a device next to its host: up to sizes that show its bandwidth.
FAR_LINK_BYTES, FAR_COPY_BYTES = tuple(1 << n for n in range(11, 28, 2)), tuple(1 << n for n in range(16, 31))


@dataclass(frozen=True, slots=True)
class Trial:
    """One Program: the reported step of `scenario` with `model`. cost: about how much it takes, in trials that compile
    nothing. ragged: each request has a token less in the cache than the one before it, as in an engine."""

    name: str
    model: Model
    scenario: Scenario
    cost: int = 1
    ragged: bool = False


def link_bytes(device: str) -> tuple[int, ...]:
    """Sizes of collectives, by kind of device."""
    return LINK_BYTES if device == "cpu" else FAR_LINK_BYTES


def _model(
    hidden: int, intermediate: int, heads: int, kv_heads: int, head_dim: int, vocab: int, max_position: int = 4096
) -> Model:
    return Model(
        name=f"calibration-{hidden}",
        model_type="llama",
        hidden=hidden,
        intermediate=intermediate,
        layers=1,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        max_position=max_position,
        norm_eps=1e-6,
        rope_theta=10_000.0,
        tied_embeddings=False,
        qk_norm=False,
        qkv_bias=False,
        dtype="bf16",
    )


XS, S, M = _model(96, 288, 4, 2, 24, 900), _model(192, 520, 6, 3, 32, 2200), _model(320, 896, 5, 5, 64, 3000)
L, XL = _model(512, 1376, 8, 2, 64, 6400), _model(896, 2304, 14, 7, 64, 9600)

#: (model, batch, tokens in the cache) of decode steps; (model, prompts, their length) of prefills.
DECODES = (
    (XS, 1, 40), (XS, 6, 330), (XS, 24, 90), (S, 2, 70), (S, 5, 210), (S, 12, 610), (M, 1, 480), (M, 3, 96), (M, 9, 33),
    (L, 1, 1100), (L, 2, 150), (L, 7, 260), (L, 32, 48), (XL, 1, 200), (XL, 4, 60), (XL, 18, 130),
)  # fmt: skip
#: Those that are timed with ragged batches, too: what a CPU's attention takes for each request that is unlike others.
RAGGED = (1, 2, 5, 8, 12, 15)
PREFILLS = ((XS, 1, 50), (XS, 3, 190), (S, 2, 75), (S, 4, 160), (M, 1, 260), (L, 2, 90), (XL, 1, 48), (XL, 1, 220))

#: torch's own fused kernels, and those that are compiled where there is a compiler.
FUSED = {"rms_norm": True, "attention": True}
PACKED = {**FUSED, "qkv": True, "gate_up": True}
COMPILED = {**PACKED, "add_rms_norm": True, "rope": True, "swiglu": True}


#: The same for a device next to its host: heads of 128, rows of many cores, products whose weights no L2 holds.
A, B = (
    _model(1152, 3328, 9, 3, 128, 12_800, max_position=40_960),
    _model(2304, 6400, 18, 6, 128, 32_000, max_position=40_960),
)
C, D = (
    _model(3328, 9216, 26, 2, 128, 64_000, max_position=40_960),
    _model(6144, 18_432, 48, 8, 128, 128_000, max_position=40_960),
)
FAR_DECODES = (
    (D, 1, 600), (B, 1, 15_000), (C, 16, 2_100), (D, 64, 1_300), (A, 1, 130), (B, 4, 1_100), (D, 8, 4_000),
    (C, 1, 4_000), (A, 96, 500), (B, 32, 700), (C, 2, 9_000), (D, 24, 250),
)  # fmt: skip
FAR_PREFILLS = ((D, 1, 2_000), (B, 1, 512), (C, 4, 1_000), (A, 1, 4_000), (D, 1, 300), (B, 8, 256))
FAR_FUSED = {**FUSED, "qkv": True, "gate_up": True, "add_rms_norm": True, "rope": True, "swiglu": True}
BLOCKS = {"layout": "paged", "block_size": 128}


def trials(device: str = "cpu") -> tuple[Trial, ...]:
    """All trials, those from which most is learnt first: a budget may cut the list short."""
    return _cpu_trials() if device == "cpu" else _far_trials()


def _far_trials() -> tuple[Trial, ...]:
    """One decode and one prefill of each regime, then the same captured (its kernels, and what a replay costs its
    host), then the host's calls one by one, and last what some switches change."""
    trials = [_decode("fused", *case, fusion=FAR_FUSED, kv=BLOCKS) for case in FAR_DECODES]
    trials += [_prefill("fused", *case, fusion=FAR_FUSED, kv=BLOCKS) for case in FAR_PREFILLS]
    captured: dict[str, Any] = {"fusion": FAR_FUSED, "kv": BLOCKS, "graph": "aclgraph"}
    trials += [_decode("captured", *case, cost=2, **captured) for case in FAR_DECODES[::2]]
    trials += [_decode("plain", *case, fusion={}, kv=BLOCKS) for case in FAR_DECODES[::3]]
    for weights in ("w8a8", "w8a16", "w4a16"):
        trials += [_decode(weights, *case, fusion=FAR_FUSED, kv=BLOCKS, weights=weights) for case in FAR_DECODES[:6]]
        trials += [_prefill(weights, *case, fusion=FAR_FUSED, kv=BLOCKS, weights=weights) for case in FAR_PREFILLS[:3]]
    trials += [_decode("nz", *case, fusion=FAR_FUSED, kv=BLOCKS, weight_format="nz") for case in FAR_DECODES[:4]]
    for layout in ({"layout": "contiguous"}, {**BLOCKS, "dtype": "int8"}):
        name = ".".join(str(value) for value in layout.values())
        trials += [_decode(name, *case, fusion=FAR_FUSED, kv=layout) for case in FAR_DECODES[1:5]]
    trials += [
        _decode("sampled", *case, fusion=FAR_FUSED, kv=BLOCKS, sampling="top_k_top_p") for case in FAR_DECODES[3:5]
    ]
    return tuple(trials)


def _cpu_trials() -> tuple[Trial, ...]:
    trials = [_decode("fused", *case, fusion=FUSED) for case in DECODES]
    trials += [_prefill("fused", *case, fusion=FUSED) for case in PREFILLS]
    for switches in ({"layout": "paged"}, {"layout": "contiguous"}):
        name = f"ragged {switches['layout']}"
        trials += [replace(_decode(name, *DECODES[place], fusion=FUSED, kv=switches), ragged=True) for place in RAGGED]
    for case in (DECODES[4], DECODES[12], DECODES[14]):
        trials.append(_decode("graph", *case, fusion=PACKED, graph="ge_graph", cost=16))
    trials += [_decode("compiled", *case, fusion=COMPILED, cost=8) for case in (DECODES[3], DECODES[7], DECODES[12])]
    trials += [_prefill("compiled", *case, fusion=COMPILED, cost=8) for case in (PREFILLS[3], PREFILLS[7])]
    for weights in ("w8a8", "w8a16"):
        trials += [_decode(weights, *case, fusion=PACKED, weights=weights) for case in DECODES[1::2]]
        trials += [_prefill(weights, *case, fusion=PACKED, weights=weights) for case in PREFILLS[::2]]
    for switches in _CACHES:
        name = ".".join(str(value) for value in switches.values())
        trials += [_decode(name, *DECODES[place], fusion=PACKED, kv=switches) for place in (0, 2, 5, 9, 11, 14)]
        trials += [_prefill(name, *PREFILLS[place], fusion=PACKED, kv=switches) for place in (0, 3, 4, 7)]
    trials += [_decode("plain", *case, fusion={}) for case in DECODES[::2]]
    trials += [_prefill("plain", *case, fusion={}) for case in PREFILLS[1::2]]
    trials += [_decode("w4a16", *case, fusion=PACKED, weights="w4a16") for case in DECODES[4::6]]
    trials += [_decode("sampled", *case, fusion=FUSED, sampling="top_k_top_p") for case in (DECODES[3], DECODES[13])]
    return tuple(trials)


_CACHES: tuple[dict[str, Any], ...] = (
    {"layout": "paged"},
    {"layout": "contiguous", "dtype": "int8", "scale": "channel"},
    {"layout": "contiguous", "dtype": "int8", "scale": "head"},
    {"layout": "paged", "dtype": "int8", "scale": "token"},
)


def _decode(name: str, model: Model, batch: int, context: int, cost: int = 1, **switches: Any) -> Trial:
    workload = {"batch": batch, "input_tokens": context, "output_tokens": 8, "context_tokens": context}
    return _trial(f"decode {name} {model.hidden} {batch}x{context}", model, workload, cost, switches)


def _prefill(name: str, model: Model, batch: int, tokens: int, cost: int = 1, **switches: Any) -> Trial:
    workload = {"phase": "prefill", "batch": batch, "input_tokens": tokens, "output_tokens": 8}
    return _trial(f"prefill {name} {model.hidden} {batch}x{tokens}", model, workload, cost, switches)


def _trial(name: str, model: Model, workload: dict[str, Any], cost: int, switches: dict[str, Any]) -> Trial:
    if sampling := switches.pop("sampling", None):
        workload["sampling"] = sampling
    off = dict.fromkeys(
        (
            "rms_norm",
            "add_rms_norm",
            "rope",
            "swiglu",
            "attention",
            "qkv",
            "gate_up",
            "moe_routing",
            "grouped_matmul",
            "moe_dispatch",
        ),
        False,
    )
    fusion = off | {"moe_routing": True, "grouped_matmul": True, "moe_dispatch": True} | switches.pop("fusion")
    kv = {"layout": "contiguous", "block_size": 32} | switches.pop("kv", {})
    return Trial(
        name,
        replace(model, name=f"{model.name}"),
        Scenario.model_validate(
            {
                "workload": workload,
                "engine": {"task_queue_enable": 0},
                "optimizations": {"graph": "eager", **switches, "fusion": fusion, "kv": kv},
            }
        ),
        cost,
    )
