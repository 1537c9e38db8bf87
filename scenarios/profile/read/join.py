"""What the tables of torch_npu know, written into the rows of its trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from scenarios.errors import printable
from scenarios.profile.read.build import FactTable, Texts
from scenarios.profile.read.kernel_details import KernelDetails, op_type_of
from scenarios.profile.read.torch_npu_files import Communicated
from scenarios.profile.table import FACTS, Events, Kind

#: From this share of the kernels in kernel_details.csv found in the trace on, the table says what a kernel is.
MATCHED = 0.9
#: communication.json keeps a start as a double, a quarter of a microsecond; a row further away is another collective.
SAME_START_NS = 10_000


def joined(
    events: Events, details: KernelDetails | None, texts: Texts, facts: FactTable, in_part: bool = False
) -> tuple[Events, list[str], list[str]]:
    """The events with what kernel_details.csv knows of them, notes on what does not fit, and what is lost.

    in_part: whether the events are of a part of the trace only; the table is of all of it.

    Rows are matched by start and name. Where the table is missing, op types follow from the names.
    """
    device = events.rows(Kind.KERNEL, Kind.COLLECTIVE, Kind.TASK)
    if details is None:
        said = ["kernel_details.csv is missing: no shapes and no data types"]
        return with_types(events, texts, facts, op_type_of), said, []
    starts, names = details.starts(), details.column("name")
    order = np.lexsort((names, starts))
    at = _find(starts[order], names[order], events.start_ns[device], events.name[device])
    matched, rows = device[at >= 0], order[at[at >= 0]]
    _types_of_names(events, device[at < 0], texts, facts, op_type_of)
    _merge(events, matched, details.facts(facts, texts)[rows], facts)
    collective = details.column("collective") != 0
    kernels, expected = matched[~collective[rows]], ~collective
    if in_part and len(device):
        first, last = events.start_ns[device[0]], events.start_ns[device[-1]]
        expected &= (starts >= first) & (starts <= last)
    listed = int(expected.sum())
    notes, lost = [], []
    if len(kernels) < listed:
        lost.append(f"{listed - len(kernels):,} of {listed:,} kernels of kernel_details.csv are not in the trace")
    if listed and len(kernels) >= MATCHED * listed:
        events.kind[kernels] = Kind.KERNEL
        others = np.setdiff1d(events.rows(Kind.KERNEL), kernels)
        events.kind[others] = Kind.TASK
        if len(others):
            notes.append(f"{len(others):,} tasks of cores are no kernels to kernel_details.csv and count as neither")
    if listed and 0 < len(kernels) < MATCHED * listed and len(events.rows(Kind.KERNEL)) > listed:
        lost.append("most kernels of the trace are not in kernel_details.csv: the two are not of one run")
    return replace(events, facts=facts.facts()), notes, lost


def _merge(events: Events, rows: Any, told: Any, facts: FactTable) -> None:
    """Give `rows` the facts numbered `told`; where they know nothing the row's own stay."""
    known = list(facts)
    pairs, which = np.unique(np.stack([events.fact[rows], told]), axis=1, return_inverse=True)
    merged = []
    for own, new in pairs.T.tolist():
        fact = tuple(b or a for a, b in zip(known[own], known[new], strict=True))
        merged.append(facts[fact])
    events.fact[rows] = np.asarray(merged, dtype=np.int32)[which.reshape(-1)]


def with_types(events: Events, texts: Texts, facts: FactTable, type_of: Callable[[str], str]) -> Events:
    """The events with op types from the names of kernels and collectives."""
    _types_of_names(events, events.rows(Kind.KERNEL, Kind.COLLECTIVE, Kind.TASK), texts, facts, type_of)
    return replace(events, facts=facts.facts())


def _types_of_names(events: Events, rows: Any, texts: Texts, facts: FactTable, type_of: Callable[[str], str]) -> None:
    """Op types from the names, for `rows` whose facts have none."""
    if not len(rows):
        return
    known, words = list(facts), texts.tuple()
    pairs, which = np.unique(np.stack([events.fact[rows], events.name[rows]]), axis=1, return_inverse=True)
    named = []
    for own, name in pairs.T.tolist():
        fact = known[own]
        named.append(facts[(fact[0] or texts[type_of(words[name])], *fact[1:])])
    events.fact[rows] = np.asarray(named, dtype=np.int32)[which.reshape(-1)]


def _find(starts: Any, names: Any, want_starts: Any, want_names: Any) -> Any:
    """The place of each (start, name) among sorted ones, -1 where it is not."""
    matched = np.full(len(want_starts), -1, dtype=np.int64)
    if not len(starts):
        return matched
    at = np.searchsorted(starts, want_starts)
    for _ in range(8):  # kernels that start in one nanosecond: on as many streams at most
        here = np.minimum(at, len(starts) - 1)
        same = (matched < 0) & (starts[here] == want_starts) & (names[here] == want_names)
        matched[same] = here[same]
        at = at + 1
    return matched


def communicate(
    events: Events, communicated: tuple[Communicated, ...], texts: Texts, facts: FactTable
) -> tuple[Events, dict[int, int], list[str]]:
    """Groups into the rows of collectives; what communication.json says each waited, by row; and what of it the rows
    do not have."""
    rows = events.rows(Kind.COLLECTIVE)
    by_name: dict[int, list[int]] = {}
    for row in rows.tolist():
        by_name.setdefault(int(events.name[row]), []).append(row)
    waits: dict[int, int] = {}
    known, place = list(facts), FACTS.index("group")
    own = {row: known[int(events.fact[row])] for row in rows.tolist()}
    missing = []
    for said in communicated:
        there = [row for row in by_name.get(texts.get(said.name, -1), []) if row not in waits]
        row = min(there, key=lambda r: abs(int(events.start_ns[r]) - said.start_ns), default=-1)
        if row < 0 or abs(int(events.start_ns[row]) - said.start_ns) > SAME_START_NS:
            missing.append(said.name)
            continue
        fact = list(own[row])
        fact[place] = texts[said.group]
        events.fact[row] = facts[tuple(fact)]
        waits[row] = said.wait_ns
    lost = []
    if missing:
        lost.append(
            f"{len(missing):,} of {len(communicated):,} collectives of communication.json are not among those of the "
            f"profile, the first {printable(missing[0])}"
        )
    return replace(events, facts=facts.facts()), waits, lost
