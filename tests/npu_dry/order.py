"""What streams leave open: from the calls of the runtime alone, which op may outrun which.

A clock of each stream says which ops are over before its next call; an event carries the clock of its record to who
waits for it. Values are followed by name, as the runner keeps them: a reader must come behind its writer, a writer
behind all readers of what it replaces, and so must whatever is issued later on the stream whose memory is then free.
"""

from __future__ import annotations

from typing import Any

from tests.npu_dry.issued import operators_of

Calls = list[dict[str, Any]]


def broken(ops: Calls, calls: Calls) -> list[str]:
    """Pairs of ops that nothing orders, in words. ops: of one step, with what they read and write."""
    before = _before(ops, calls)
    broken: list[str] = []
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    streams: dict[int, list[int]] = {}
    for place, op in enumerate(ops):
        streams.setdefault(op["stream"], []).append(place)
    for place, op in enumerate(ops):
        for name in op["reads"]:
            if name in writer and writer[name] not in before[place]:
                broken.append(f"{op['name']} may read {name} before {ops[writer[name]]['name']} has written it")
            readers.setdefault(name, []).append(place)
        for name in op["writes"]:
            if name not in writer:
                writer[name] = place
                readers[name] = []
                continue
            for reader in set(readers[name]) - {place}:
                later = [at for at in streams[ops[writer[name]]["stream"]] if at > place]
                if any(reader not in before[at] for at in later):
                    broken.append(f"the memory of {name} may be taken while {ops[reader]['name']} reads it")
            writer[name], readers[name] = place, []
    return broken


def _before(ops: Calls, calls: Calls) -> list[set[int]]:
    """Of each op the places of all ops that are over when it starts."""
    owners = [place for place, op in enumerate(ops) for _ in (operators_of(op) or ["cmo"])]
    issued = [at for at, call in enumerate(calls) if call["k"] in ISSUED][: len(owners)]
    assert len(issued) == len(owners)
    owner = dict(zip(issued, owners, strict=True))
    over = over_before(calls)
    before: list[set[int]] = [set() for _ in ops]
    for at, place in owner.items():
        before[place] |= {owner[other] for other in over[at] if other in owner}
    return before


#: What a stream is given to do.
ISSUED = ("op", "cmo", "hccl")


def over_before(calls: Calls) -> dict[int, set[int]]:
    """Of each call that a stream is given the places of all such calls that are over when it starts."""
    clocks: dict[int, set[int]] = {}
    events: dict[int, set[int]] = {}
    over: dict[int, set[int]] = {}
    for at, call in enumerate(calls):
        clock = clocks.setdefault(call.get("stream", -1), set())
        if call["k"] == "event_record":
            events[call["event"]] = set(clock)
        elif call["k"] == "event_wait":
            clock |= events.get(call["event"], set())
        elif call["k"] in ISSUED:
            over[at] = set(clock)
            clock.add(at)
    return over
