"""What a pass is, and the few tools that rewriting needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from scenarios.models.model import Model
from scenarios.ops.program import Batch, DType, Op, Program
from scenarios.records import dataclass
from scenarios.settings import Settings, Switch


@dataclass(frozen=True, slots=True)
class Context:
    """What a rewrite may look at next to the program. act: type of the activations. part: the program of a part of the
    batch, rewritten as far as this one, for a rewrite that cuts the batch."""

    scenario: Settings
    model: Model
    act: DType
    part: Callable[[Batch], Program] | None = None


def never(_: Context) -> str | None:
    """The rewrite always applies."""
    return None


#: A text in English and in Chinese.
Words = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One optimisation: a rewrite Program -> Program behind one switch, and all that is said of it anywhere.

    switch: path of its switch below `optimizations`. off: the values that leave the program alone, the first is the one
    a what-if goes back to. on: the value a what-if tries. type, default: of the scenario's field, where
    `scenarios.settings` does not declare it. rewrite: applied where the switch is not off. needs: other switches and
    the values they must have. refuse: any further reason why the rewrite cannot apply, or None. idle: why the switch
    has nothing to say about a model, or None; it then stays at its default. for_capacity: what it is for is room, so a
    slower step does not speak against it.

    For people: title: in reports. rewrites, saves, costs: in lists. claim: what it shows. name: where it stands alone;
    {value} is the value meant. label: on its widget, below the heading of its group. help: what its field is, in the
    JSON Schema and next to the widget.
    """

    switch: str
    title: str
    off: tuple[object, ...] = (False,)
    on: object = True
    type: Any = Switch
    default: object = False
    rewrite: Callable[[Program, Context], Program]
    needs: tuple[tuple[str, tuple[object, ...]], ...] = ()
    refuse: Callable[[Context], str | None] = never
    idle: Callable[[Model], str | None] = lambda _: None
    for_capacity: bool = False
    rewrites: str
    saves: str
    costs: str
    claim: str
    name: Words
    label: Words
    help: Words

    def value(self, scenario: Settings) -> object:
        """The switch's value in `scenario`."""
        return switch_value(scenario, self.switch)

    def missing(self, scenario: Settings) -> tuple[tuple[str, object], ...]:
        """The switches that must be set first, each with the value to set."""
        return tuple((s, values[0]) for s, values in self.needs if switch_value(scenario, s) not in values)

    def is_on(self, scenario: Settings) -> bool:
        return self.value(scenario) not in self.off

    @staticmethod
    def shown(value: object) -> str:
        """A value as a scenario file spells it."""
        return str(value).lower()


def switch_value(scenario: Settings, switch: str) -> object:
    """The value of a switch below `optimizations`."""
    value: object = scenario.optimizations
    for part in switch.split("."):
        value = getattr(value, part)
    return value


def set_switch(scenario: Settings, switch: str, value: object) -> Settings:
    """`scenario` with one switch below `optimizations` set."""
    head, _, rest = switch.partition(".")
    optimizations = scenario.optimizations
    if rest:
        part = getattr(optimizations, head).model_copy(update={rest: value})
        optimizations = optimizations.model_copy(update={head: part})
    else:
        optimizations = optimizations.model_copy(update={head: value})
    return scenario.model_copy(update={"optimizations": optimizations})


Rewrite = Callable[[tuple[Op, ...]], tuple[Op, ...]]


def each_block(program: Program, applied: str, rewrite: Rewrite) -> Program:
    """`program` with `rewrite` applied to the ops of every block."""
    return program.rewritten(lambda block: rewrite(block.ops), applied)


def in_block(program: Program, name: str, applied: str, rewrite: Rewrite) -> Program:
    """`program` with `rewrite` applied to the block called `name`."""
    blocks = tuple(replace(b, ops=rewrite(b.ops)) if b.name == name else b for b in program.blocks)
    return program.with_blocks(blocks, applied)


def in_layers(program: Program, applied: str, rewrite: Rewrite) -> Program:
    """`program` with `rewrite` applied to the decoder's layers."""
    return program.rewritten(lambda block: rewrite(block.ops), applied, lambda block: block.is_layer)


def of_kind(ops: Iterable[Op], *kinds: str) -> list[Op]:
    """Those of `ops` that a pattern of a pass names."""
    return [op for op in ops if op.kind in kinds]


def replace_runs(
    ops: tuple[Op, ...], kinds: Sequence[str], make: Callable[[tuple[Op, ...]], Sequence[Op] | None]
) -> tuple[Op, ...]:
    """Replace each run of consecutive ops of these `kinds` by what `make` returns (None leaves the run alone). Where
    none is replaced, `ops` itself comes back."""
    first, width = kinds[0], len(kinds)
    starts = [i for i, op in enumerate(ops) if op.kind == first]  # most ops start no run: they are not looked at twice
    if not starts:
        return ops
    out: list[Op] = []
    at = 0  # ops taken so far
    for i in starts:
        if i < at:
            continue
        run = ops[i : i + width]
        if len(run) < width or any(op.kind != kind for op, kind in zip(run, kinds, strict=True)):
            continue
        ops_instead = make(run)
        if ops_instead is None:
            continue
        if run[0].expert >= 0:  # what replaces an expert's ops is that expert's
            ops_instead = [replace(op, expert=run[0].expert) for op in ops_instead]
        out += (*ops[at:i], *ops_instead)
        at = i + width
    return (*out, *ops[at:]) if at else ops
