"""What a serving engine's host adds to the steps of a device."""

from __future__ import annotations

from scenarios.records import dataclass


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """Host nanoseconds next to the device's step.

    per_step_ns: of each step (schedule, inputs, metadata, launch). per_request_ns: of each running request in it
    (sampling, output processing, detokenising). per_chunk_ns: of each prefill chunk in it. hidden_share: share of these
    that asynchronous scheduling does while the device runs, as far as the device's step is long enough. admission_ns:
    from the arrival of a request to when the scheduler sees it, and from its first token to the client (HTTP,
    tokenising); it delays that request alone. swap_bytes_per_ns: copies of KV between host and device, in GB/s.
    device_scale, dispatch_scale: this deployment's device steps, and its host's time for each launch, over what the
    hardware profile says. issue_decode_ns, issue_mixed_ns: what the same thread pays to issue a decode step, or one
    with prefills, op by op or in pieces (`sim.serving.player.issuing`): it does so while the device works, but not
    while it prepares a step. 0 where a graph is replayed whole. issue_pieces_ns: a step with prefills of at most
    `pieces_tokens` in all, `query_tokens` of each request that decodes among them, which is replayed in pieces.
    """

    per_step_ns: int = 0
    per_request_ns: int = 0
    per_chunk_ns: int = 0
    hidden_share: float = 0.0
    admission_ns: int = 0
    swap_bytes_per_ns: float = 24.0
    device_scale: float = 1.0
    dispatch_scale: float = 1.0
    issue_decode_ns: int = 0
    issue_mixed_ns: int = 0
    issue_pieces_ns: int = 0
    pieces_tokens: int = 0
    query_tokens: int = 1

    @property
    def plans_ahead(self) -> bool:
        """Whether a step is planned while the one before it runs: who comes in that time waits for the step after.

        As vLLM's engine core does with asynchronous scheduling: it queues two batches, so that it plans a step as soon
        as the one before has started (`step_with_batch_queue`).
        """
        return self.hidden_share >= 0.5

    def host_ns(self, requests: int, chunks: int = 0) -> int:
        """Host time of a step with `requests` running requests, `chunks` of them prefills."""
        return self.per_step_ns + self.per_request_ns * requests + self.per_chunk_ns * chunks

    def step_ns(self, device_ns: float, requests: int, chunks: int = 0, prompt_tokens: int = 0) -> float:
        """From the start of one step to the start of the next, ns; the hardware profile puts it at `device_ns`:

        max(device, hidden + issue) + visible,   hidden = hidden_share x host,   visible = host - hidden
        """
        host = self.host_ns(requests, chunks)
        hidden = self.hidden_share * host
        return (
            max(self.device_scale * device_ns, hidden + self.issue_ns(requests - chunks, chunks, prompt_tokens))
            + host
            - hidden
        )

    def issue_ns(self, decoding: float, chunks: float, prompt_tokens: float = 0) -> int:
        """What issuing a step takes: `decoding` requests, and `chunks` of prompts, of so many tokens in all."""
        if not chunks:
            return self.issue_decode_ns
        tokens = decoding * self.query_tokens + prompt_tokens
        return self.issue_pieces_ns if tokens <= self.pieces_tokens else self.issue_mixed_ns
