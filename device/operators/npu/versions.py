"""Which torch_npu goes with which torch and CANN, and which calls each has.

CANN: the version mapping table of Ascend's PyTorch adapter (COMPATIBILITY.en.md of its repository). Calls: the schemas
that each wheel registers, which tests/npu_dry/schemas.json keeps; the tests hold every call against every wheel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: A line of releases of Ascend's adapter: the second half of a branch's name, v2.8.0-7.3.0. Wheels of one line differ
#: by the torch that they are for; what they have of SINCE is the same.
Line = tuple[int, int]
#: Of a wheel whose branch the table does not name yet.
NEWEST: Line = (99, 0)


@dataclass(frozen=True, slots=True)
class Wheel:
    """One torch_npu that the adapters are held against. cann: the release that it is documented with, None where none
    is."""

    torch_npu: str
    line: Line
    cann: str | None

    @property
    def torch(self) -> str:
        """The release of torch that it was built for."""
        return release(self.torch_npu)

    @property
    def install(self) -> str:
        """What to type, in a checkout of this project."""
        return f"pip install . safetensors torch=={self.torch} torch-npu=={self.torch_npu}"


WHEELS = (
    Wheel("2.7.1", (7, 2), "8.3.RC1"),
    Wheel("2.8.0", (7, 2), "8.3.RC1"),
    Wheel("2.7.1.post2", (7, 3), "8.5.0"),
    Wheel("2.8.0.post2", (7, 3), "8.5.0"),
    Wheel("2.9.0", (7, 3), "8.5.0"),
    Wheel("2.7.1.post4", (26, 0), "9.0.0"),
    Wheel("2.8.0.post4", (26, 0), "9.0.0"),
    Wheel("2.9.0.post2", (26, 0), "9.0.0"),
    Wheel("2.7.1.post8", (26, 1), "9.1.0"),
    Wheel("2.9.0.post6", (26, 1), "9.1.0"),
    Wheel("2.10.0.post4", (26, 1), "9.1.0"),
    Wheel("2.11.0", (26, 1), "9.1.0"),
    Wheel("2.12.0", (26, 1), "9.1.0"),
    Wheel("2.13.0", NEWEST, None),
)

#: What a wheel may lack, with the first line that has it.
QKV_IN_ONE = "npu_qkv_rms_norm_rope_cache"
GATHER = "npu_gather_pa_kv_cache"
#: Before, npu_scatter_pa_kv_cache takes no cache_mode and asks CANN for blocks in FRACTAL_NZ.
PLAIN_BLOCKS = "npu_scatter_pa_kv_cache(cache_mode)"
#: Before, a captured npu_fused_infer_attention_score_v2 keeps the lengths of its capture.
V2_IN_CAPTURE = "new lengths for a captured npu_fused_infer_attention_score_v2"
NPUGRAPH_EX = "npugraph_ex"
SINCE: dict[str, Line] = {
    QKV_IN_ONE: (26, 0),
    GATHER: (26, 0),
    PLAIN_BLOCKS: (26, 0),
    V2_IN_CAPTURE: (7, 3),
    NPUGRAPH_EX: (7, 3),
}


def wheel_of(torch_npu: str) -> Wheel | None:
    """The wheel of an installed version, None where the adapters were held against none of that version."""
    return next((wheel for wheel in WHEELS if wheel.torch_npu == torch_npu.partition("+")[0]), None)


def minor(version: str) -> tuple[int, int]:
    """(8, 3) of 8.3.RC1 and of 8.3.0: what CANN keeps together."""
    first, second = [int(n) for n in re.findall(r"\d+", version)[:2]]
    return first, second


def wheel_for(cann: str, torch: str | None = None) -> Wheel | None:
    """The wheel that is documented with a release of CANN, or with the nearest before it: the one for `torch` where
    there is one, else the newest. None where CANN is older than all."""
    known = [wheel for wheel in WHEELS if wheel.cann is not None and minor(wheel.cann) <= minor(cann)]
    if not known:
        return None
    nearest = max(minor(str(wheel.cann)) for wheel in known)
    fitting = [wheel for wheel in known if minor(str(wheel.cann)) == nearest]
    same = [wheel for wheel in fitting if torch is not None and wheel.torch == release(torch)]
    return (same or fitting)[-1]


def line_of(torch_npu: str) -> Line:
    """The line that a version was cut from; of an unknown one that of the nearest older wheel for the same torch, else
    the first or last of all."""
    same = sorted((w for w in WHEELS if w.torch == release(torch_npu)), key=lambda w: order(w.torch_npu))
    older = [wheel.line for wheel in same if order(wheel.torch_npu) <= order(torch_npu)]
    if same:
        return older[-1] if older else same[0].line
    return NEWEST if order(torch_npu) > max(order(wheel.torch_npu) for wheel in WHEELS) else WHEELS[0].line


def has(what: str, torch_npu: str) -> bool:
    """Whether a version has something of SINCE."""
    return line_of(torch_npu) >= SINCE[what]


def lacks(what: str, torch_npu: str) -> str | None:
    """`torch_npu 2.9.0 has no X, 2.9.0.post2 (CANN 9.0.0) has`, the wheel for the same torch where there is one; None
    where nothing is lacking."""
    if has(what, torch_npu):
        return None
    known = [wheel for wheel in WHEELS if wheel.line >= SINCE[what]]
    same = [wheel for wheel in known if wheel.torch == release(torch_npu)]
    first = (same or known)[0]
    return f"torch_npu {torch_npu} has no {what}, {first.torch_npu} (CANN {first.cann}) has"


def release(version: str) -> str:
    """`2.10.0` of `2.10.0.post4+git1234`."""
    match = re.match(r"\d+\.\d+\.\d+", version)
    return match.group() if match else version


def order(version: str) -> tuple[int, ...]:
    """A key to compare versions by: 2.8.0 < 2.8.0.post4 < 2.10.0."""
    release_part, _, post = version.partition("+")[0].partition(".post")
    numbers = [int(n) for n in re.findall(r"\d+", release_part)]
    return (*numbers[:3], int(post) if post.isdigit() else 0)


def wrong_pairing(torch: str, torch_npu: str) -> str | None:
    """What is wrong with this torch next to this torch_npu, and what to install; None where nothing is.

    A wheel of torch_npu is built against one release of torch and fails, or worse, with another.
    """
    wanted = release(torch_npu)
    if release(torch) == wanted:
        return None
    others = [wheel for wheel in WHEELS if wheel.torch == release(torch)]
    other = f", or torch-npu=={others[-1].torch_npu} for this torch" if others else ""
    return f"torch_npu {torch_npu} wants torch {wanted}, installed is {torch}; pip install torch=={wanted}{other}"
