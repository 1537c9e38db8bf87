"""What a device hands to whoever lays it next to a prediction: plain data and a timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scenarios.exchange.served import Deployed, ServedRun
from scenarios.loader import Loaded
from scenarios.records import dataclass
from scenarios.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Measured:
    """document: the `measured` part of a `run` document. timeline: one measured step, labelled so."""

    document: dict[str, Any]
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a measurement is laid next to: the step's length, and the time of each op by its place in the Program, ns.

    reference_ns: what the reference kernel (`device.measure.steady`) took when the hardware profile was measured; 0
    where it does not say.
    """

    step_ns: int
    ops_ns: Mapping[int, int]
    reference_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Measure:
    """Measures a scenario on a device. device: its kind, as a hardware profile names it. run: the reported step. serve:
    the requests of its traffic. profile: the folder that a profiler's files go to, if any. bench: the file that the
    served load goes to, in the form of vLLM bench, if any."""

    device: str
    run: Callable[[Loaded, Predicted], Measured]
    serve: Callable[[Loaded, Deployed], ServedRun]
    profile: Path | None = None
    bench: Path | None = None
