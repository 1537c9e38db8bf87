"""Which torch_npu goes with which torch and CANN, and which calls each has.

From the wheels' own registries and the compatibility table of Ascend's PyTorch adapter (COMPATIBILITY.en.md); what a
later wheel changes in a call that the adapters make is handled where the call is made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """One torch_npu that the adapters are written for. cann: the release it is documented with, None where none is."""

    torch_npu: str
    torch: str
    cann: str | None


SUPPORTED = (
    Pair("2.8.0.post4", "2.8.0", "9.0.0"),
    Pair("2.10.0.post4", "2.10.0", "9.1.0"),
    Pair("2.13.0", "2.13.0", None),
)

#: Calls that a supported wheel may lack, with the first one that has them; all others are in all of them.
SINCE = {"npu_qkv_rms_norm_rope_cache": "2.8.0.post4"}


def pair_of(torch_npu: str) -> Pair | None:
    """The supported pair of an installed torch_npu, None where it is none of them."""
    return next((pair for pair in SUPPORTED if pair.torch_npu == torch_npu), None)


def release(version: str) -> str:
    """`2.10.0` of `2.10.0.post4+git1234`."""
    found = re.match(r"\d+\.\d+\.\d+", version)
    return found.group() if found else version


def wrong_pairing(torch: str, torch_npu: str) -> str | None:
    """What is wrong with this torch beside this torch_npu, and what to install; None where nothing is.

    A wheel of torch_npu is built against one release of torch and fails, or worse, with another.
    """
    if release(torch) == release(torch_npu):
        return None
    known = ", ".join(f"torch {pair.torch} with torch_npu {pair.torch_npu}" for pair in SUPPORTED)
    wanted = release(torch_npu)
    return f"torch_npu {torch_npu} wants torch {wanted}, installed is {torch}; pip install torch=={wanted} ({known})"


def order(version: str) -> tuple[int, ...]:
    """A key to compare versions by: 2.8.0 < 2.8.0.post4 < 2.10.0."""
    release_part, _, post = version.partition("+")[0].partition(".post")
    numbers = [int(n) for n in re.findall(r"\d+", release_part)]
    return (*numbers[:3], int(post) if post.isdigit() else 0)


def lacks_call(name: str, torch_npu: str) -> str | None:
    """The first version that has the call `name`, where `torch_npu` is older; None where it has it."""
    since = SINCE.get(name)
    return since if since is not None and order(torch_npu) < order(since) else None
