"""The profiles of a path, whatever wrote them: one rank or all ranks of a run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from device.profiles.files import fail
from device.profiles.find import Source, sources
from device.profiles.torch_npu import read_torch_npu
from scenarios.profile.table import Profile, ProfileSet


def read_profiles(path: str | Path) -> ProfileSet:
    """The profiles of `path`: a folder of one rank, a folder of several ranks, or a file.

    Raises ProfileError, one line, for a path that holds no profile, for ranks that are there twice, and for ranks of
    different kinds.
    """
    found = sources(Path(path))
    profiles = sorted((_read(source) for source in found), key=lambda profile: profile.rank)
    for one, other in pairwise(profiles):
        if one.rank == other.rank:
            fail(path, f"rank {one.rank} is there twice: {one.source} and {other.source}")
        if one.kind != other.kind:
            fail(path, f"mixes profiles of {one.kind} ({one.source}) and of {other.kind} ({other.source})")
    return ProfileSet(tuple(profiles))


def _read(source: Source) -> Profile:
    return read_torch_npu(source.path)
