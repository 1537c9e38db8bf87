"""Imported captures: what other profilers measured, as columns, and as the timelines that predictions have."""

from scenarios.profile.spans import timeline_of
from scenarios.profile.steps import step_time_of, step_times_of
from scenarios.profile.table import (
    COLUMN_TYPES,
    NO_ROW,
    Capture,
    CaptureSet,
    Events,
    Facts,
    HostApi,
    Kind,
    Lane,
    ReportedStep,
    Step,
)

__all__ = [
    "COLUMN_TYPES",
    "NO_ROW",
    "Capture",
    "CaptureSet",
    "Events",
    "Facts",
    "HostApi",
    "Kind",
    "Lane",
    "ReportedStep",
    "Step",
    "step_time_of",
    "step_times_of",
    "timeline_of",
]
