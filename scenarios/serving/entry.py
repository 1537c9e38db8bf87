"""A request inside the scheduler."""

from __future__ import annotations

from scenarios.serving.requests import Request


class Entry:
    """A request and how far it is.

    target: tokens that must be in the cache before it decodes (its prompt, after a preemption also what it produced).
    computed: how many of them are. produced: output tokens, up to the step in which it joined the decoding ones.
    joined, ends, due: decode steps of the scheduler, when it joined, when it ends, and modulo the block size when it
    needs a block. steps: decode steps that its output still
    takes, where drafts are verified. swapped: tokens of its KV that lie on the host. hit_tokens: found in the cache
    when let in, and loaded_tokens in the pool beyond it.
    For the driver, in its own units, -1 where unknown: arrived, started, first, last (tokens received), paused (when
    one that had answered lost its blocks, until its next token).
    """

    __slots__ = (
        "arrived", "computed", "decoding", "due", "ends", "first", "hit_tokens", "id", "joined", "last",
        "loaded_tokens", "names", "paused", "preemptions", "produced", "request", "started", "steps",
        "swapped", "target",
    )  # fmt: skip

    def __init__(self, request: Request) -> None:
        self.request, self.id = request, request.id
        self.target = request.input_tokens - request.prefilled
        self.computed = self.produced = self.joined = self.ends = self.due = self.steps = 0
        self.swapped = self.hit_tokens = self.loaded_tokens = self.preemptions = 0
        self.decoding = False
        self.arrived = self.started = self.first = self.last = self.paused = -1
        self.names: list[tuple[int, int]] | None = None

    @property
    def held(self) -> int:
        """Tokens in the cache at the start of its first decode step."""
        return self.target

    @property
    def comes_ready(self) -> bool:
        """Whether another instance has computed its prompt, and it lost nothing since."""
        return self.request.prefilled and not self.preemptions
