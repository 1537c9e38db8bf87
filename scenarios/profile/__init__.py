"""Imported profiles: what other profilers measured, as columns, and as the timelines that predictions have."""

from scenarios.profile.spans import timeline_of
from scenarios.profile.steps import step_time_of, step_times_of
from scenarios.profile.table import (
    COLUMN_TYPES,
    NO_ROW,
    Events,
    Facts,
    HostApi,
    Kind,
    Lane,
    Profile,
    ProfileSet,
    ReportedStep,
    Step,
)

__all__ = [
    "COLUMN_TYPES",
    "NO_ROW",
    "Events",
    "Facts",
    "HostApi",
    "Kind",
    "Lane",
    "Profile",
    "ProfileSet",
    "ReportedStep",
    "Step",
    "step_time_of",
    "step_times_of",
    "timeline_of",
]
