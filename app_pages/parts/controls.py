"""The switches and sliders of the lab: one row for each field of a scenario that has a widget, grouped as the reader
looks for them. What a field may be is read off the schema, and every value goes through it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scenarios.field_texts import field_texts
from scenarios.models.hf_config import model_names
from scenarios.passes import PASSES, Pass
from scenarios.schema import Fusion, Scenario
from sim.hardware.profile import hardware_names

Widget = Literal["toggle", "choice", "list", "steps"]

POWERS = tuple(1 << n for n in range(9))
BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
LENGTHS = tuple(1 << n for n in range(4, 18))


@dataclass(frozen=True, slots=True)
class Control:
    """One widget. field: the dotted field that it sets. options: what it offers besides the value that it has."""

    field: str
    widget: Widget
    options: tuple[Any, ...] = ()

    @property
    def key(self) -> str:
        """The widget's key in the session."""
        return f"lab:{self.field}"

    def offered(self, value: object) -> list[Any]:
        """The options, `value` among them: in order where they are numbers."""
        if value in self.options:
            return list(self.options)
        if self.widget == "steps":
            return sorted({*self.options, value})
        return [value, *self.options]


def _place(field: str) -> tuple[type[BaseModel], str]:
    """The class that a dotted field stands in, and its name there."""
    part: type[BaseModel] = Scenario
    *path, last = field.split(".")
    for name in path:
        annotation = part.model_fields[name].annotation
        assert isinstance(annotation, type)
        part = annotation
    return part, last


def field_of(field: str) -> FieldInfo:
    """What the schema knows of a dotted field."""
    part, name = _place(field)
    return part.model_fields[name]


def text_of(field: str) -> str:
    """What a dotted field is, in the words of the schema; empty where it has none."""
    part, name = _place(field)
    return field_texts(part).get(name, "")


def _literal(field: str) -> tuple[Any, ...]:
    """The words that the schema allows in a dotted field."""
    return get_args(field_of(field).annotation)


def _choice(field: str) -> Control:
    return Control(field, "choice", _literal(field))


def _toggle(field: str) -> Control:
    return Control(field, "toggle")


def _steps(field: str, options: Sequence[int]) -> Control:
    return Control(field, "steps", tuple(options))


def _switch(item: Pass) -> Control:
    """The widget of an optimisation's switch that has no place of its own below."""
    field = f"optimizations.{item.switch}"
    if _literal(field):
        return _choice(field)
    return _toggle(field) if isinstance(item.on, bool) else Control(field, "steps", (*item.off, item.on))


def _following(groups: Mapping[str, tuple[Control, ...]]) -> dict[str, tuple[Control, ...]]:
    """`groups` with the switches of the passes that they lack, each last in its group."""
    named = {control.field for controls in groups.values() for control in controls}
    filled = dict(groups)
    for item in PASSES:
        if f"optimizations.{item.switch}" not in named:
            group = item.switch.partition(".")[0]
            group = group if group in filled else "issue"
            filled[group] = (*filled[group], _switch(item))
    return filled


_PLACED: dict[str, tuple[Control, ...]] = {
    "workload": (
        Control("model", "list", tuple(model_names())),
        Control("hardware", "list", tuple(hardware_names())),
        _choice("workload.phase"),
        _steps("workload.batch", BATCHES),
        _steps("workload.input_tokens", LENGTHS),
        _steps("workload.output_tokens", LENGTHS[:10]),
    ),
    "issue": (
        _choice("optimizations.graph"),
        _toggle("optimizations.graph_prefill"),
        Control("engine.task_queue_enable", "choice", (0, 1, 2)),
        _choice("protocol.synchronize"),
    ),
    "fusion": tuple(_toggle(f"optimizations.fusion.{name}") for name in Fusion.model_fields),
    "kv": (
        _choice("optimizations.kv.layout"),
        _choice("optimizations.kv.dtype"),
        _choice("optimizations.kv.scale"),
        _steps("optimizations.kv.block_size", (16, 32, 64, 128, 256, 512, 1024)),
        _toggle("optimizations.kv.prefix_sharing"),
        _steps("optimizations.kv.shared_prefix_tokens", (0, *LENGTHS)),
    ),
    "weights": (
        Control("optimizations.weights", "list", _literal("optimizations.weights")),
        _choice("optimizations.weight_format"),
    ),
    "parallel": (
        _steps("engine.tensor_parallel_size", POWERS[:6]),
        _steps("engine.pipeline_parallel_size", POWERS[:4]),
        _steps("engine.data_parallel_size", POWERS[:6]),
        _toggle("engine.enable_expert_parallel"),
        _toggle("engine.sequence_parallel"),
        _choice("engine.hccl_op_expansion_mode"),
        Control("engine.all2all_backend", "list", _literal("engine.all2all_backend")),
    ),
    "overlap": (
        _steps("optimizations.overlap.streams", (1, 2)),
        _steps("optimizations.overlap.micro_batches", (1, 2, 4, 8)),
        _steps("optimizations.overlap.comm_chunks", (1, 2, 4, 8, 16)),
    ),
    "scheduler": (
        _steps("engine.max_num_seqs", (*POWERS, 512, 1024)),
        _steps("engine.max_num_batched_tokens", LENGTHS[4:]),
        _choice("workload.sampling"),
        _toggle("engine.allow_long_max_model_len"),
    ),
}

#: Groups in the order of the side bar. The first is always open.
GROUPS = _following(_PLACED)
CONTROLS: tuple[Control, ...] = tuple(control for group in GROUPS.values() for control in group)
