"""What one process measures with: a model's weights on a backend, its text, the plain program's answers, two sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns

from device.experiment.alternating import alternating, warming
from device.experiment.reference_run import ReferenceRun, errors_of, plain_of, plain_session, reference_run_of
from device.experiment.sides import Prepared
from device.experiment.text import Span, Text, text_for
from device.measure.answer import reported
from device.measure.document import document
from device.measure.measure import measure
from device.measure.steady import Reference
from device.run.backend import Backend
from device.run.session import Session
from device.step.step import Group
from device.weights.weights import Checkpoint, RandomCheckpoint, Weights, checkpoint_of
from scenarios.errors import ScenarioError
from scenarios.exchange.bench import Pair, Part, Side, WarmUp
from scenarios.exchange.measured import Measured, Predicted
from scenarios.files.paths import expanded, is_dir
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.ops.program import DType
from scenarios.schema import Scenario

#: The part that a scenario's report is about, by its phase.
HEADLINE: dict[str, Part] = {"decode": "tpot", "prefill": "ttft", "mixed": "step"}


@dataclass(slots=True)
class Workbench:
    """base_folder: the folder that a relative path of the model starts from. The baseline stays prepared: most pairs
    have it on one side, and all take the weights from it that they have in common."""

    backend: Backend
    base_folder: Path
    group: Group | None = None
    _models: dict[str, tuple[Model, Checkpoint]] = field(default_factory=dict)
    _reference_runs: dict[Scenario, ReferenceRun | str] = field(default_factory=dict)
    _weights: dict[tuple[DType, bool], Weights] = field(default_factory=dict)
    _baseline: tuple[Scenario, Prepared, Side] | None = None

    def model(self, scenario: Scenario) -> tuple[Model, Checkpoint]:
        """The whole model and where its weights come from."""
        if scenario.model not in self._models:
            model = load_model(scenario.model, self.base_folder)
            checkpoint = checkpoint_of(scenario.model, self.base_folder, model, scenario.protocol.seed)
            self._models[scenario.model] = (model, checkpoint)
        return self._models[scenario.model]

    def warm_up(self, scenario: Scenario) -> WarmUp:
        """Keep `scenario` as the baseline, from its first pass on."""
        part = HEADLINE[scenario.workload.phase]
        before = Reference(self.backend)
        reference = min(before.timed().wall_ns for _ in range(5))  # the first of them are cold themselves
        prepared, side = self._prepare(scenario, scenario)
        self._baseline = (scenario, prepared, side)
        steps = len(prepared.parts[part]) if part == "tpot" else 1
        passes = [(reference, 1e6 * ran[part] / steps) for ran in (side.first_ms, side.second_ms)]
        return WarmUp(part, (*passes, *warming(prepared, part)), side)

    def profile(self, predicted: Predicted) -> Measured:
        """The baseline's reported step op by op: the mixed step, the first chunk of the prefill, or the decode step on
        the context that is reported (the last one before it where the cache ends there)."""
        assert self._baseline is not None
        scenario, prepared, _ = self._baseline
        part = HEADLINE[scenario.workload.phase]
        steps, number = prepared.parts[part], 0
        if part == "tpot":
            number = min(max(0, scenario.decode_context_tokens - prepared.span.start), len(steps) - 1)
        result = measure(steps[number].bound, steps[number].step)
        return Measured(document(result, predicted), result.timeline)

    def pair(self, a: Scenario, b: Scenario, seconds: float | None = None) -> Pair:
        """Both sides in turn; a side that is the baseline is the one that is prepared already, once. seconds: as in
        `exchange.bench.Bench`."""
        started = perf_counter_ns()
        first, a_side = self._kept(a) or self._prepare(a, a)
        second, b_side = (self._kept(b) if a != b else None) or self._prepare(b, a, first)
        left_ns = None if seconds is None else 1e9 * seconds - (perf_counter_ns() - started)
        return Pair(a_side, b_side, alternating(first, second, left_ns), first.span.steps, first.span.start)

    def _kept(self, scenario: Scenario) -> tuple[Prepared, Side] | None:
        if self._baseline is None or self._baseline[0] != scenario:
            return None
        return self._baseline[1:]

    def _prepare(self, scenario: Scenario, like: Scenario, twin: Prepared | None = None) -> tuple[Prepared, Side]:
        """`scenario` prepared and run twice. like: whose plain program it is held to. twin: the other side; what it has
        captured serves one that is equal to it."""
        model, checkpoint = self.model(scenario)
        reference_run = self._reference_run(like)
        started = perf_counter_ns()
        session = Session(scenario, model, self.backend, checkpoint, self.group)
        session.weights = self._weights.setdefault(_held_as(session), session.weights)
        if self._baseline or twin:  # the baseline's own stay; what another side needs next to them goes with it
            session.weights = session.weights.fork()
        if twin and twin.session.scenario == scenario:
            session.captures = twin.session.captures
        span = Span.of(scenario)
        tokens = reference_run.tokens if isinstance(reference_run, ReferenceRun) else self._text(like).tokens
        prepared = Prepared(session, tokens, span)
        load_ns = perf_counter_ns() - started
        ran = prepared.first_pass()
        side = Side(
            load_ms=load_ns / 1e6,
            first_ms=ran.first_ms,
            second_ms=ran.second_ms,
            weights_bytes=prepared.weights_bytes,
            kv_cache_bytes=session.cache.bytes,
            values_bytes=prepared.values_bytes,
            errors=errors_of(ran.logits, reference_run, span) if isinstance(reference_run, ReferenceRun) else None,
            held_to=reference_run.precision if isinstance(reference_run, ReferenceRun) else "",
            unchecked="" if isinstance(reference_run, ReferenceRun) else reference_run,
        )
        return prepared, side

    def _text(self, scenario: Scenario) -> Text:
        model, checkpoint = self.model(scenario)
        return text_for(scenario, model.vocab, self._folder(scenario, checkpoint))

    def _folder(self, scenario: Scenario, checkpoint: Checkpoint) -> Path | None:
        """The folder of a trained model."""
        if isinstance(checkpoint, RandomCheckpoint):
            return None
        roots = (self.base_folder / scenario.model, expanded(Path(scenario.model)))
        return next((folder for folder in roots if is_dir(folder)), None)

    def _reference_run(self, scenario: Scenario) -> ReferenceRun | str:
        """What the plain program answers to the text of `scenario`: in float32, in the model's 16 bits where that does
        not fit, or why neither can be run."""
        model, _ = self.model(scenario)
        key = plain_of(scenario, model)
        if key not in self._reference_runs:
            tried = self._tried(scenario, wide=True)
            self._reference_runs[key] = self._tried(scenario, wide=False) if isinstance(tried, str) else tried
        return self._reference_runs[key]

    def _tried(self, scenario: Scenario, wide: bool) -> ReferenceRun | str:
        model, checkpoint = self.model(scenario)
        try:
            with reported(self.backend.name):
                session = plain_session(scenario, model, self.backend, checkpoint, self.group, wide)
                if not wide:  # loaded once, for the baseline too
                    session.weights = self._weights.setdefault(_held_as(session), session.weights)
                reference_run = reference_run_of(session, self._text(scenario))
        except ScenarioError as error:
            return error.messages[0]
        return reference_run if reference_run.logits.isfinite().all() else "its logits are no numbers"


def _held_as(session: Session) -> tuple[DType, bool]:
    """What two sessions must have in common to share weights: 16 bits of one kind, pairs of dimensions in one order."""
    return session.act, session.weights.in_pairs
