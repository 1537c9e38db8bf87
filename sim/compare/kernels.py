"""The kernels of two timelines, paired: by op type and shapes, then by op type, then by family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scenarios.records import dataclass
from scenarios.timeline import Span, Timeline
from sim.compare.align import Pairs, align
from sim.compare.classes import ATTENTION, COLLECTIVE, MATMUL, NORM, family_of, is_kernel, op_type_of, operation_of

#: Kernels of these families are the same work under another name: MatMulV2 and MatMulV3.
_RENAMED = (MATMUL, ATTENTION, NORM)
#: So many unpaired kernels in a row are still one replacement; more are just missing.
LONGEST_REPLACED = 64


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel or whole collective: what it is, where it ran and for how long. shapes: of its inputs, empty where the
    timeline has none."""

    op_type: str
    shapes: str
    family: str
    lane: str
    duration_ns: int

    @property
    def what(self) -> tuple[str, str]:
        return self.op_type, self.shapes

    def is_like(self, other: Kernel) -> bool:
        """Whether op types are alike, and shapes where both have them."""
        return self.op_type == other.op_type and (self.shapes == other.shapes or not self.shapes or not other.shapes)


@dataclass(frozen=True, slots=True)
class Replaced:
    """Kernels in a row on one stream of A where B has others in the same place; either may be empty."""

    a: tuple[Kernel, ...]
    b: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Paired:
    """All kernels of both: each is in one pair, or in one replacement.

    lanes: which lane of A is which of B. moved: how many pairs lie on lanes that are not each other's, or at places
    that are not.
    """

    pairs: tuple[tuple[Kernel, Kernel], ...]
    replaced: tuple[Replaced, ...]
    lanes: tuple[tuple[str, str], ...]
    moved: int


def kernels_of(timeline: Timeline) -> dict[str, list[Kernel]]:
    """The kernels of each lane, in order of start."""
    lanes: dict[str, list[Kernel]] = {}
    for span in sorted(filter(is_kernel, timeline.spans), key=lambda s: (s.start_ns, s.end_ns)):
        lane = f"{span.process} {span.thread}" if span.process != span.thread else span.process
        lanes.setdefault(lane, []).append(
            Kernel(op_type_of(span), shapes_of(span), family_of(span), lane, span.duration_ns)
        )
    return lanes


def shapes_of(span: Span) -> str:
    """Input shapes as the profiler prints them, `8,4096;4096`, without its quotation marks; empty where unknown."""
    shapes = next((str(value) for key, value in span.args if key == "Input Shapes"), "")
    return "" if shapes == "N/A" else shapes.strip('"')


def pair(a: Timeline, b: Timeline) -> Paired:
    """Pair the kernels of two timelines lane by lane; what is left over on lanes that changed, across lanes."""
    of_a, of_b = kernels_of(a), kernels_of(b)
    lanes = _lanes(of_a, of_b)
    pairs: list[tuple[Kernel, Kernel]] = []
    gaps: list[Replaced] = []
    lane_of_gap: list[int] = []
    for number, (lane_a, lane_b) in enumerate(lanes):
        here_a, here_b = of_a.get(lane_a, []), of_b.get(lane_b, [])
        aligned = _aligned(here_a, here_b)
        pairs += [(here_a[i], here_b[j]) for i, j in aligned]
        gaps += _gaps(here_a, here_b, aligned)
        lane_of_gap += [number] * (len(gaps) - len(lane_of_gap))
    moved, replaced = _across(gaps, lane_of_gap)
    return Paired((*pairs, *moved), tuple(replaced), tuple(lanes), len(moved))


def _lanes(of_a: dict[str, list[Kernel]], of_b: dict[str, list[Kernel]]) -> list[tuple[str, str]]:
    """Which lane is which: those with most in common first; a lane without a partner goes with an empty one."""
    counts_a = {lane: Counter(k.op_type for k in kernels) for lane, kernels in of_a.items()}
    counts_b = {lane: Counter(k.op_type for k in kernels) for lane, kernels in of_b.items()}
    common = [
        (-sum((counts_a[a] & counts_b[b]).values()), i, j, a, b) for i, a in enumerate(of_a) for j, b in enumerate(of_b)
    ]
    free_a, free_b = dict.fromkeys(of_a), dict.fromkeys(of_b)
    lanes = []
    for shared, _, _, a, b in sorted(common):
        if shared and a in free_a and b in free_b:
            lanes.append((a, b))
            del free_a[a], free_b[b]
    # One stream each with nothing in common is still one stream each.
    for a, b in zip(list(free_a), list(free_b), strict=False):
        if len(free_a) == len(free_b) == 1:
            lanes.append((a, b))
            free_a, free_b = {}, {}
    return [*lanes, *((a, "") for a in free_a), *(("", b) for b in free_b)]


def _aligned(a: Sequence[Kernel], b: Sequence[Kernel]) -> Pairs:
    """Pairs of one lane: the same work with the same shapes; between those what is alike in less and less.

    Of three products where the other side has one, none is that one: unlike shapes pair only where the two sides have
    equally many in that place. Pairs found make places smaller, so there are several rounds.
    """
    types = [k.op_type for k in a], [k.op_type for k in b]
    works = [_work(k) for k in a], [_work(k) for k in b]
    pairs = align([(_work(k), k.shapes) for k in a], [(_work(k), k.shapes) for k in b], unequal=False)
    for in_a, in_b in (types, works, types, works):
        pairs = _between(pairs, in_a, in_b)
    return _between(pairs, *types, beyond=LONGEST_REPLACED)


def _work(kernel: Kernel) -> str:
    if kernel.family == COLLECTIVE:
        return operation_of(kernel.op_type)
    return kernel.family if kernel.family in _RENAMED else kernel.op_type


def _between(pairs: Pairs, a: Sequence[str], b: Sequence[str], beyond: int = 0) -> Pairs:
    """`pairs`, and in each place between two of them those with keys that are there equally often on both sides.

    beyond: only places longer than that, and there all keys.
    """
    all_pairs = list(pairs)
    for (i, j), (next_i, next_j) in _steps(pairs, len(a), len(b)):
        here_a, here_b = a[i + 1 : next_i], b[j + 1 : next_j]
        if not here_a or not here_b:
            continue
        if beyond:
            inner = align(here_a, here_b) if max(len(here_a), len(here_b)) > beyond else []
        else:
            counts, others = Counter(here_a), Counter(here_b)
            even = {key for key, count in counts.items() if others[key] == count}
            at_a = [x for x, key in enumerate(here_a) if key in even]
            at_b = [y for y, key in enumerate(here_b) if key in even]
            inner = [(at_a[x], at_b[y]) for x, y in align([here_a[x] for x in at_a], [here_b[y] for y in at_b])]
        all_pairs += [(i + 1 + x, j + 1 + y) for x, y in inner]
    return sorted(all_pairs)


def _steps(pairs: Pairs, length_a: int, length_b: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return list(zip([(-1, -1), *pairs], [*pairs, (length_a, length_b)], strict=True))


def _gaps(a: Sequence[Kernel], b: Sequence[Kernel], pairs: Pairs) -> list[Replaced]:
    gaps = []
    for (i, j), (next_i, next_j) in _steps(pairs, len(a), len(b)):
        if next_i - i > 1 or next_j - j > 1:
            gaps.append(Replaced(tuple(a[i + 1 : next_i]), tuple(b[j + 1 : next_j])))
    return gaps


def _across(gaps: Sequence[Replaced], lanes: Sequence[int]) -> tuple[list[tuple[Kernel, Kernel]], list[Replaced]]:
    """Pairs of kernels that went to another lane or place, and what is left of the gaps, long ones split into kernels.

    lanes: the pair of lanes of each gap. Within one, only what stands alone goes with what stands alone: in the place
    of others a kernel is part of a replacement.
    """
    waiting: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for number in reversed(range(len(gaps))):
        for place in reversed(range(len(gaps[number].b))):
            waiting.setdefault(gaps[number].b[place].what, []).append((number, place))
    moved: list[tuple[Kernel, Kernel]] = []
    gone_a: set[tuple[int, int]] = set()
    gone_b: set[tuple[int, int]] = set()
    for number, gap in enumerate(gaps):
        for place, kernel in enumerate(gap.a):
            places = waiting.get(kernel.what)
            if not places:
                continue
            other, at = places[-1]
            alone = not gap.b and not gaps[other].a
            if lanes[other] == lanes[number] and not alone:
                continue
            places.pop()
            moved.append((kernel, gaps[other].b[at]))
            gone_a.add((number, place))
            gone_b.add((other, at))
    left = []
    for number, gap in enumerate(gaps):
        a = tuple(k for place, k in enumerate(gap.a) if (number, place) not in gone_a)
        b = tuple(k for place, k in enumerate(gap.b) if (number, place) not in gone_b)
        if not a or not b or max(len(a), len(b)) > LONGEST_REPLACED:
            left += [*(Replaced((k,), ()) for k in a), *(Replaced((), (k,)) for k in b)]
        else:
            left.append(Replaced(a, b))
    return moved, left
