"""What runs together in one step: the decode step, the prefill chunks, a mixed batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from scenarios.ops.program import Batch, Group
from scenarios.settings import Engine
from scenarios.settings import Settings as Scenario


def decode_batch(scenario: Scenario) -> Batch:
    """One new token for each request, and those that speculation drafted, on the scenario's context."""
    query = scenario.engine.query_tokens
    return Batch("decode", (Group(scenario.workload.batch, query, scenario.decode_context_tokens),))


def prefill_batches(scenario: Scenario) -> list[Batch]:
    """The steps in which all requests, arriving together, are prefilled: chunks of at most max_num_batched_tokens.

    Requests are taken in order; a request that does not fit is cut and goes on in the next chunk (chunked prefill).
    With prefix sharing the first request computes the common prefix and the others start behind it.
    """
    chunks: list[Batch] = []
    groups: list[Group] = []
    room = budget = scenario.engine.max_num_batched_tokens
    for count, start, prompt in _prompts(scenario):
        left, done = count, 0  # requests not finished; tokens already prefilled of the one in hand
        while left:
            if done == 0 and room >= prompt:
                whole = min(left, room // prompt)
                groups.append(Group(whole, prompt, start))
                left, room = left - whole, room - whole * prompt
            elif room:
                take = min(room, prompt - done)
                groups.append(Group(1, take, start + done))
                done, room = done + take, room - take
                if done == prompt:
                    done, left = 0, left - 1
            if room == 0:
                chunks.append(Batch("prefill", tuple(groups)))
                groups, room = [], budget
    if groups:
        chunks.append(Batch("prefill", tuple(groups)))
    return chunks


def _prompts(scenario: Scenario) -> list[tuple[int, int, int]]:
    """(requests, tokens already cached, tokens to prefill) in order of service."""
    workload, kv = scenario.workload, scenario.optimizations.kv
    before = (workload.context_tokens or 0) if workload.phase == "prefill" else 0
    if not kv.prefix_sharing or workload.batch == 1:
        return [(workload.batch, before, workload.input_tokens)]
    shared = kv.shared_prefix_tokens - kv.shared_prefix_tokens % kv.block_size
    # The last prompt token is always computed: it yields the first output.
    shared = min(shared, workload.input_tokens - 1)
    return [(1, before, workload.input_tokens), (workload.batch - 1, before + shared, workload.input_tokens - shared)]


def largest_chunk_tokens(scenario: Scenario) -> int:
    """Tokens of the largest prefill step, found without listing the steps: there may be billions before memory is
    checked."""
    return min(scenario.engine.max_num_batched_tokens, prefill_tokens(scenario))


def prefill_tokens(scenario: Scenario) -> int:
    """Prompt tokens that are computed, of all requests; `prefill_batches` packs them without a gap."""
    return sum(count * prompt for count, _, prompt in _prompts(scenario))


def finished_requests(scenario: Scenario, chunk: Batch) -> int:
    """Requests whose prefill ends in `chunk`."""
    ends = {start + prompt for _, start, prompt in _prompts(scenario)}
    return sum(g.count for g in chunk.groups if g.kv_len in ends)


def mixed_batch(scenario: Scenario) -> Batch:
    """All requests but one decode while one more is prefilled with what is left of the token budget."""
    decoding, query = scenario.workload.batch - 1, scenario.engine.query_tokens
    chunk = min(scenario.engine.max_num_batched_tokens - decoding * query, scenario.workload.input_tokens)
    return Batch("mixed", (Group(decoding, query, scenario.decode_context_tokens), Group(1, max(1, chunk), 0)))


def micro_batches(batch: Batch, stages: int) -> tuple[Batch, ...]:
    """A decode or mixed batch as it is in flight in a pipeline: in as many parts as stages, and none of them empty.

    Requests are shared out as evenly as can be (vLLM keeps as many batches in flight as there are stages; which request
    is in which depends on when it came). A prefill goes with the first part.
    """
    count = min(stages, batch.requests)
    parts: list[list[Group]] = [[] for _ in range(count)]
    at = 0
    for group in sorted(batch.groups, key=lambda g: -g.query):
        share, rest = divmod(group.count, count)
        for turn in range(count):
            size = share + (turn < rest)
            if size:
                parts[(at + turn) % count].append(replace(group, count=size))
        at = (at + rest) % count
    shortest = min(group.query for group in batch.groups)
    return tuple(Batch(_phase(part, shortest), tuple(part)) for part in parts)


def _phase(groups: list[Group], decode_query: int) -> Literal["decode", "mixed", "prefill"]:
    decoding = sum(group.query == decode_query for group in groups)
    return "decode" if decoding == len(groups) else "mixed" if decoding else "prefill"


def reported_batch(scenario: Scenario) -> Batch:
    """The step that the scenario's report takes apart."""
    match scenario.workload.phase:
        case "decode":
            return decode_batch(scenario)
        case "prefill":
            return prefill_batches(scenario)[0]
        case "mixed":
            return mixed_batch(scenario)


def capture_sizes(engine: Engine) -> tuple[int, ...]:
    """Tokens of decode steps that aclgraph and npugraph_ex capture: those given, or 1, 2, 4 and the multiples of 8 up
    to all of max_num_seqs. With speculation a graph is for whole requests: sizes are rounded up to their tokens."""
    query = engine.query_tokens
    most = engine.max_num_seqs * query
    sizes = engine.cudagraph_capture_sizes
    if sizes is None:
        sizes = tuple(n for n in (1, 2, 4, *range(8, most + 1, 8)) if n <= most) or (1,)
    return sizes if query == 1 else tuple(sorted({-(-size // query) * query for size in sizes}))


def captured_size(scenario: Scenario, tokens: int) -> int | None:
    """The captured size that serves a decode step of `tokens`: the next one up, or None where it must run eager."""
    return next((size for size in capture_sizes(scenario.engine) if size >= tokens), None)
