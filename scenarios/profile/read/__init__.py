"""Profiles that other profilers wrote, read into `scenarios.profile`; nothing here imports torch."""

from scenarios.profile.read.files import LIMITS, ProfileError
from scenarios.profile.read.read import read_profiles

__all__ = ["LIMITS", "ProfileError", "read_profiles"]
