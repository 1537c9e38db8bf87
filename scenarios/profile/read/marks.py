"""Marks of steps on the host's threads: what schedulers of training and serving engines put around a step.

Marks that repeat with other numbers are one family. A capture may hold several (an engine's step lies within
torch.profiler's); the family that tiles the launches best is taken, an explicit `ProfilerStep#N` first.
Names are those of PyTorch (`torch.profiler.schedule`), vLLM (`execute_context_..._generation_...`, older
`execute_new_..._cached_...`), and SGLang (`step[DECODE bs=32]`, `step[EXTEND bs=1 toks=107]`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from scenarios.errors import did_you_mean, printable, quoted
from scenarios.profile.read.files import fail
from scenarios.profile.table import Capture
from scenarios.records import dataclass

#: Names of step marks in order of preference, and the family each belongs to.
_KNOWN = (
    (re.compile(r"ProfilerStep#[0-9]+"), "ProfilerStep"),
    (re.compile(r"execute_(?:[0-9]+_)?(?:context|new)_[0-9]+(?:\(.*\))?_(?:generation|cached)_[0-9]+.*"), "execute"),
    (re.compile(r"step\[[A-Z_]+\b.*\]", re.I), "step[...]"),
)
#: Any other annotation whose name says step or iteration, and then its number.
_NUMBERED = re.compile(r"(?:.*[^a-z])?(?:step|iter|iteration)s?[ _#:=\[(-]*[0-9]+\W*", re.I)
_OPTIMISER = re.compile(r"optimi[sz]er|lr_?scheduler|zero_grad", re.I)
_DIGITS = re.compile(r"[0-9]+")
#: Longest name that is looked at for a mark, characters.
MAX_CHARS = 500


def is_mark(name: str, wanted: str = "") -> bool:
    """Whether a host row of this name may be the mark of a step. wanted: what `--step-mark` says, "" for nothing."""
    if len(name) > MAX_CHARS:
        return False
    if wanted:
        return name == wanted or family_of(name) == family_of(wanted) or name.startswith(wanted)
    if any(pattern.fullmatch(name) for pattern, _ in _KNOWN):
        return True
    return bool(_NUMBERED.fullmatch(name)) and not _OPTIMISER.search(name)


def family_of(name: str) -> str:
    """The family of a mark: marks that repeat with other numbers are one."""
    return next((family for pattern, family in _KNOWN if pattern.fullmatch(name)), _DIGITS.sub("#", name))


def preference(family: str) -> int:
    """The place of a family in the order of preference: torch.profiler's own first, engines', then any other."""
    return next((place for place, (_, known) in enumerate(_KNOWN) if known == family), len(_KNOWN))


@dataclass(frozen=True, slots=True)
class Family:
    """Marks of one family, disjoint and in order: their rows. covered: the share of launches that lie within them."""

    name: str
    rows: tuple[int, ...]
    covered: float


def chosen(families: Sequence[Family]) -> Family | None:
    """The family whose marks are the steps: one that covers half of the launches at least, by preference; else that
    which covers the most. None where there is none."""
    good = [family for family in families if family.covered >= 0.5]
    if good:
        return min(good, key=lambda f: (preference(f.name), -f.covered, -len(f.rows), f.name))
    known = [family for family in families if preference(family.name) < len(_KNOWN)]
    return max(known, key=lambda f: (f.covered, -preference(f.name), f.name), default=None)


def step_ids(names: Sequence[str]) -> list[str]:
    """What steps are called: the number behind `ProfilerStep#`, else the mark's whole name; of several of one name the
    second gets ` (2)`."""
    seen: dict[str, int] = {}
    ids = []
    for name in names:
        short = name.removeprefix("ProfilerStep#") if _KNOWN[0][0].fullmatch(name) else printable(name, 120)
        seen[short] = seen.get(short, 0) + 1
        ids.append(short if seen[short] == 1 else f"{short} ({seen[short]})")
    return ids


def require_marks(capture: Capture, wanted: str) -> None:
    """Raise CaptureError where no host row is called what `--step-mark` says, with the nearest name that is there."""
    if not wanted or any(is_mark(text, wanted) for text in capture.texts[1:]):
        return
    near = did_you_mean(wanted, list(dict.fromkeys(text for text in capture.texts[1:] if len(text) <= MAX_CHARS)))
    fail(capture.source, f"--step-mark: no call of the host is called {quoted(wanted)}{near}")
