"""What each optimisation does to the numbers: its logits and greedy tokens against the plain program's.

The plain program (every switch off) runs in float32 by the reference operators; each switch runs on the same tokens, so
that a first difference does not make all that follows differ. `python -m device.measure.numerics [backend]` prints the
table of docs/numerics.md, over scaled-down variants of the shipped models.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from device.operators.reference import reference
from device.run.backend import Backend
from device.run.session import Options, Prompts, Session, calibrated
from device.weights.weights import RandomCheckpoint
from scenarios.build import problems_of
from scenarios.errors import ScenarioError
from scenarios.models.hf_config import load_model, model_names
from scenarios.models.model import Latent, Model
from scenarios.models.states import GatedDelta, KimiDelta, Mamba2, ShortConv
from scenarios.passes.base import set_switch
from scenarios.passes.switches import all_off, needs_of, passes_for
from scenarios.schema import Scenario

Switches = dict[str, object]

#: Variants that the list of passes does not name by itself, each with what it needs.
VARIANTS: tuple[tuple[str, Switches], ...] = (
    ("kv.scale=token", {"kv.dtype": "int8", "kv.scale": "token"}),
    ("kv.scale=head", {"kv.dtype": "int8", "kv.scale": "head"}),
    ("weights=w8a16", {"weights": "w8a16"}),
    ("weights=w4a16", {"weights": "w4a16"}),
    ("weights=w4a8", {"weights": "w4a8"}),
    ("graph=aclgraph", {"graph": "aclgraph"}),
    ("graph=npugraph_ex", {"graph": "npugraph_ex"}),
)
#: Of the small runs: prompt lengths and decode steps.
LENGTHS, STEPS = (40, 40, 33), 6
#: Keys of a window in a scaled-down layer: fewer than a prompt has.
WINDOW = 12
SIZES = {"batch": len(LENGTHS), "input_tokens": max(LENGTHS), "output_tokens": STEPS + 1}


@dataclass(frozen=True, slots=True)
class Row:
    """One switch on one model in one precision, against the plain program.

    largest: difference of two logits. relative: norm of all differences over the norm of the plain logits.
    first_other: (step, request) of the first greedy token that differs, None where all are equal. refused: why it
    cannot run, and then nothing else.
    """

    model: str
    switch: str
    precision: str
    largest: float = 0.0
    relative: float = 0.0
    first_other: tuple[int, int] | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """Greedy tokens [steps][requests] and logits [steps, requests, vocab]."""

    tokens: list[list[int]]
    logits: torch.Tensor


def scaled_down(model: Model, head_dim: int = 16) -> Model:
    """A variant of `model` of the same family and grouping that a test can run: 2 layers (3 where the first is dense, 2
    of each kind where they differ), 64 wide, eight experts. head_dim: of grouped-query attention."""
    small = _scaled_down(model, head_dim)
    kinds = tuple(_scaled_kind(one, head_dim) for one in model.kinds)
    return replace(small, kinds=kinds, order=2 * tuple(range(len(kinds))), layers=2 * len(kinds)) if kinds else small


def _scaled_kind(one: Model, head_dim: int) -> Model:
    """A layer of one kind, with a window or a state that a short prompt fills."""
    small, seen = _scaled_down(one, head_dim), one.attention
    attention = replace(seen, window=min(seen.window, WINDOW), chunk=min(seen.chunk, WINDOW))
    small = replace(small, layers=1, attention=attention, name=one.name)
    match one.state:
        case KimiDelta() as kimi:
            kimi = replace(kimi, key_heads=4, value_heads=4, key_dim=8, value_dim=8, rank=8)
            return replace(small, state=kimi, heads=4, kv_heads=4, head_dim=8)
        case GatedDelta() as state:
            state = replace(state, key_heads=2, value_heads=4, key_dim=8, value_dim=8)
            return replace(small, state=state, heads=4, kv_heads=2, head_dim=8)
        case Mamba2() as mamba:
            mamba = replace(mamba, heads=8, head_dim=8, groups=min(2, mamba.groups), state_dim=16)
            return replace(small, state=mamba, heads=8, kv_heads=8, head_dim=8)
        case ShortConv() as conv:
            return replace(small, state=replace(conv, channels=64), head_dim=16, kv_heads=4)
    return small


def _scaled_down(model: Model, head_dim: int) -> Model:
    shared = min(2, model.heads // model.kv_heads)
    latent, experts, dim = model.latent, model.experts, 8 if model.latent else head_dim
    if latent:
        latent = Latent(24 if latent.q_rank else 0, kv_rank=32, nope_dim=16, rope_dim=dim, v_dim=12)
    if experts:
        groups = min(4, experts.groups)
        experts = replace(
            experts,
            count=8,
            held=8,
            top_k=2,
            intermediate=32,
            shared=32 if experts.shared else 0,
            dense_layers=min(1, experts.dense_layers),
            groups=groups,
            kept_groups=max(1, groups // 2),
        )
    return replace(
        model,
        name=f"{model.name} scaled down",
        hidden=64,
        intermediate=96,
        layers=2 + (experts.dense_layers if experts else 0),
        heads=4,
        kv_heads=1 if latent else 4 // shared,
        head_dim=dim,
        rotary_dim=dim * model.rotated // model.head_dim,
        vocab=320,
        max_position=512,
        latent=latent,
        experts=experts,
    )


def families(head_dim: int = 16) -> list[Model]:
    """One scaled-down variant of each kind of model that ships."""
    models: dict[object, Model] = {}
    for model in map(load_model, model_names()):
        small = scaled_down(model, head_dim)
        key = replace(small, name="", rope_theta=0.0, norm_eps=1.0, rope_scaling=None)
        models.setdefault(key, small)
    return list(models.values())


def plain_scenario(model: Model) -> Scenario:
    """Every optimisation off, on the small batch: experts run one by one."""
    scenario = Scenario.model_validate({"workload": SIZES})
    return set_switch(all_off(scenario, model), "weights", model.dtype)


def switches(model: Model) -> Iterator[tuple[str, Switches]]:
    """Each optimisation alone, with the switches that it cannot do without."""
    for item in passes_for(model):
        yield f"{item.switch}={item.shown(item.on)}", {**needs_of(item), item.switch: item.on}
    for name, needed in VARIANTS:
        yield name, {**({"fusion.attention": True} if "kv.dtype" in needed else {}), **needed}


def generate(session: Session, prompts: Prompts, steps: int, forced: Sequence[Sequence[int]] | None = None) -> Run:
    """Prefill and `steps` greedy decode steps; forced: on these tokens instead of its own."""
    calibrated(session, prompts)
    tokens, logits = session.prefill(prompts)
    all_tokens, all_logits = [tokens], [logits]
    for step in range(steps):
        tokens, logits = session.decode(forced[step] if forced else tokens)
        all_tokens.append(tokens)
        all_logits.append(logits)
    return Run(all_tokens, torch.stack(all_logits))


def small_prompts(vocab: int, lengths: Sequence[int] = LENGTHS) -> list[list[int]]:
    """Seeded prompts."""
    random = torch.Generator().manual_seed(7)
    return [torch.randint(vocab, (n,), generator=random).tolist() for n in lengths]


def compare(
    model: Model,
    name: str,
    wanted: Switches,
    precision: str,
    backend: Backend,
    reference_run: Run,
    choice_is_reference: bool,
) -> Row:
    """One row: `wanted` on `model`, in fp32 or in the model's 16 bits."""
    scenario = plain_scenario(model)
    for switch, value in wanted.items():
        scenario = set_switch(scenario, switch, value)
    if problems := problems_of(scenario, model):
        return Row(model.name, name, precision, refused=problems[0][1])
    options = Options(precision == "fp32", reference if choice_is_reference else None)
    try:
        session = Session(scenario, model, backend, RandomCheckpoint(model, 0), None, options)
        run = generate(session, small_prompts(model.vocab), STEPS, reference_run.tokens)
    except ScenarioError as error:
        return Row(model.name, name, precision, refused=error.messages[0])
    difference = run.logits - reference_run.logits
    other = (
        (step, request)
        for step, (mine, plain) in enumerate(zip(run.tokens, reference_run.tokens, strict=True))
        for request, (a, b) in enumerate(zip(mine, plain, strict=True))
        if a != b
    )
    relative = (difference.norm() / reference_run.logits.norm()).item()
    return Row(model.name, name, precision, difference.abs().max().item(), relative, next(other, None))


def reference_run_of(model: Model, backend: Backend) -> Run:
    """The plain program in float32 by the reference operators."""
    options = Options(True, reference)
    session = Session(plain_scenario(model), model, backend, RandomCheckpoint(model, 0), None, options)
    return generate(session, small_prompts(model.vocab), STEPS)


def error_table(models: Iterable[Model], backend: Backend, choice_is_reference: bool = False) -> Iterator[Row]:
    """All switches on `models`, in float32 and in the model's own 16 bits; `none` is the plain program itself."""
    for model in models:
        reference_run = reference_run_of(model, backend)
        for name, wanted in (("none", {}), *switches(model)):
            for precision in ("fp32", model.dtype):
                yield compare(
                    model=model,
                    name=name,
                    wanted=wanted,
                    precision=precision,
                    backend=backend,
                    reference_run=reference_run,
                    choice_is_reference=choice_is_reference,
                )


def markdown(rows: Iterable[Row]) -> Iterator[str]:
    """The rows as lines of a Markdown table."""
    yield "| model | optimisation | precision | largest error | relative error | greedy tokens |"
    yield "|---|---|---|---:|---:|---|"
    for row in rows:
        if row.refused:
            yield f"| {row.model} | {row.switch} | {row.precision} | | | refused: {row.refused} |"
            continue
        tokens = "equal"
        if row.first_other is not None:
            step, request = row.first_other
            tokens = f"first other at step {step} of request {request}"
        numbers = f"{row.largest:.1e} | {row.relative:.1e}"
        yield f"| {row.model} | {row.switch} | {row.precision} | {numbers} | {tokens} |"


def main() -> int:
    """Print the table for the CPU of this machine, or for the backend that is named; 2 where that is not there."""
    from device.backends import choose

    torch.set_num_threads(1)
    name = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    head_dim = {"npu": 128, "cuda": 64}.get(name, 16)  # NPUs rotate heads of 64 and 128 only; GPUs are made for 64
    try:
        for line in markdown(error_table(families(head_dim), choose(name))):
            print(line)
    except ScenarioError as error:
        print("\n".join(error.messages), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
