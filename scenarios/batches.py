"""What runs together in one step: the decode step, the prefill chunks, a mixed batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from scenarios.ops.program import Batch, Group
from scenarios.settings import Engine
from scenarios.settings import Settings as Scenario


def decode_batch(scenario: Scenario) -> Batch:
    """One new token for each request, on the scenario's context."""
    return Batch("decode", (Group(scenario.workload.batch, 1, scenario.decode_context_tokens),))


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
    decoding = scenario.workload.batch - 1
    chunk = min(scenario.engine.max_num_batched_tokens - decoding, scenario.workload.input_tokens)
    return Batch("mixed", (Group(decoding, 1, scenario.decode_context_tokens), Group(1, chunk, 0)))


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
    return tuple(Batch(_phase(part), tuple(part)) for part in parts)


def _phase(groups: list[Group]) -> Literal["decode", "mixed", "prefill"]:
    decoding = sum(group.query == 1 for group in groups)
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
    """Batch sizes that aclgraph and npugraph_ex capture: those given, or 1, 2, 4 and the multiples of 8 up to
    max_num_seqs."""
    if engine.cudagraph_capture_sizes is not None:
        return engine.cudagraph_capture_sizes
    most = engine.max_num_seqs
    return tuple(n for n in (1, 2, 4, *range(8, most + 1, 8)) if n <= most) or (1,)


def captured_size(scenario: Scenario, requests: int) -> int | None:
    """The captured batch size that serves `requests`: the next one up, or None where the batch must run eager."""
    return next((size for size in capture_sizes(scenario.engine) if size >= requests), None)
