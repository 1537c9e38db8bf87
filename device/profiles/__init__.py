"""Profiles that other profilers wrote, read into `scenarios.profile`; nothing here imports torch."""

from device.profiles.files import LIMITS, ProfileError
from device.profiles.read import read_profiles

__all__ = ["LIMITS", "ProfileError", "read_profiles"]
