"""What the study on a CPU runs: models, batches and lengths that no calibration has run, each with and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Sizes of the models; none is of the calibration (`device/microbench/plan.py`).
MODELS: dict[str, dict[str, int]] = {
    "256 wide, 4 layers": {"hidden": 256, "intermediate": 704, "layers": 4, "heads": 8, "kv_heads": 4, "vocab": 4096},
    "384 wide, 3 layers": {"hidden": 384, "intermediate": 1024, "layers": 3, "heads": 6, "kv_heads": 2, "vocab": 5000},
    "640 wide, 2 layers": {"hidden": 640, "intermediate": 1792, "layers": 2, "heads": 10, "kv_heads": 2, "vocab": 8000},
}

#: Every optimisation off: what a variant is laid on.
PLAIN = (
    "engine.task_queue_enable=0",
    "protocol.synchronize=op",
    "optimizations.graph=eager",
    *(
        f"optimizations.fusion.{name}=false"
        for name in ("rms_norm", "add_rms_norm", "rope", "swiglu", "attention", "qkv", "gate_up")
    ),
    "optimizations.kv.layout=contiguous",
)


def _on(*names: str) -> tuple[str, ...]:
    return tuple(f"optimizations.fusion.{name}=true" for name in names)


PACKED = _on("rms_norm", "attention", "qkv", "gate_up")
ALL = (*PACKED, *_on("add_rms_norm", "rope", "swiglu"))


@dataclass(frozen=True, slots=True)
class Variant:
    """One optimisation: its settings, and those of the scenario that it is compared with, both on PLAIN."""

    name: str
    settings: tuple[str, ...]
    against: tuple[str, ...] = ()
    is_compiled: bool = False


#: Of decode steps; prefills take those that change them.
VARIANTS: tuple[Variant, ...] = (
    Variant("fusion.rms_norm", _on("rms_norm")),
    Variant("fusion.attention", _on("attention")),
    Variant("fusion.qkv", (*PACKED,), _on("rms_norm", "attention", "gate_up")),
    Variant("fusion.gate_up", (*PACKED,), _on("rms_norm", "attention", "qkv")),
    Variant("kv.layout=paged", (*PACKED, "optimizations.kv.layout=paged", "optimizations.kv.block_size=32"), PACKED),
    Variant("kv.dtype=int8", (*PACKED, "optimizations.kv.dtype=int8"), PACKED),
    Variant("weights=w8a8", (*PACKED, "optimizations.weights=w8a8"), PACKED),
    Variant("weights=w8a16", (*PACKED, "optimizations.weights=w8a16"), PACKED),
    Variant("fusion.add_rms_norm, rope, swiglu", ALL, PACKED, is_compiled=True),
    Variant("graph=ge_graph", (*PACKED, "optimizations.graph=ge_graph"), PACKED, is_compiled=True),
)
#: Two ranks on one machine: no gain is claimed, the step is predicted.
TWO_RANKS = (*PACKED, "engine.tensor_parallel_size=2")


@dataclass(frozen=True, slots=True)
class Base:
    """A step of one model."""

    model: str
    phase: str
    batch: int
    tokens: int

    @property
    def name(self) -> str:
        return f"{self.model}: {self.phase} of {self.batch} x {self.tokens}"

    @property
    def settings(self) -> tuple[str, ...]:
        return (
            f"workload.phase={self.phase}",
            f"workload.batch={self.batch}",
            f"workload.input_tokens={self.tokens}",
            "workload.output_tokens=16",
        )


BASES = (
    Base("256 wide, 4 layers", "decode", 4, 128),
    Base("384 wide, 3 layers", "decode", 8, 310),
    Base("640 wide, 2 layers", "decode", 3, 700),
    Base("256 wide, 4 layers", "prefill", 3, 110),
    Base("384 wide, 3 layers", "prefill", 2, 150),
    Base("640 wide, 2 layers", "prefill", 1, 180),
)
#: A study of seconds, for a test: its numbers are few and no bound is tight.
SMALL_BASES = (Base("256 wide, 4 layers", "decode", 2, 60), Base("256 wide, 4 layers", "prefill", 1, 64))
SMALL_VARIANTS = (VARIANTS[0], VARIANTS[6])


@dataclass(frozen=True, slots=True)
class Run:
    """One scenario to predict and to measure."""

    base: Base
    settings: tuple[str, ...]


def runs(bases: tuple[Base, ...], variants: tuple[Variant, ...], ranks: bool) -> Iterator[Run]:
    """Each scenario once, those that must be compiled last; steps on two ranks for decodes."""
    compiled = {variant.settings for variant in variants if variant.is_compiled}
    wanted: dict[Run, None] = {}
    for base in bases:
        wanted[Run(base, ())] = None
        for variant in _of(base, variants):
            wanted[Run(base, variant.against)] = wanted[Run(base, variant.settings)] = None
        if ranks and base.phase == "decode":
            wanted[Run(base, TWO_RANKS)] = None
    yield from sorted(wanted, key=lambda run: run.settings in compiled)


def pairs(base: Base, variants: tuple[Variant, ...]) -> Iterator[tuple[Variant, Run, Run]]:
    """(variant, the step without, the step with)."""
    for variant in _of(base, variants):
        yield variant, Run(base, variant.against), Run(base, variant.settings)


def _of(base: Base, variants: tuple[Variant, ...]) -> Iterator[Variant]:
    """Graphs are for decodes: prefills run eagerly in every mode."""
    return (v for v in variants if base.phase == "decode" or not v.name.startswith("graph"))


def write_models(folder: Path) -> dict[str, Path]:
    """A folder with a Hugging Face config for each model."""
    paths = {}
    for number, (name, size) in enumerate(MODELS.items()):
        path = folder / f"model-{number}"
        path.mkdir()
        heads = size["heads"]
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "attention_bias": False,
            "hidden_size": size["hidden"],
            "intermediate_size": size["intermediate"],
            "num_hidden_layers": size["layers"],
            "num_attention_heads": heads,
            "num_key_value_heads": size["kv_heads"],
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": size["vocab"],
        }
        (path / "config.json").write_text(json.dumps(config))
        paths[name] = path
    return paths
