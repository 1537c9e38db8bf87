"""Captures that other profilers wrote, read into `scenarios.profile`; nothing here imports torch."""

from scenarios.profile.read.files import LIMITS, CaptureError
from scenarios.profile.read.read import read_captures

__all__ = ["LIMITS", "CaptureError", "read_captures"]
