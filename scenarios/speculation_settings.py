"""The fields of `engine.speculative_config`, spelled as vLLM spells them, and the arithmetic of what is accepted.

A draft of k tokens is verified in one step of k + 1 tokens a request. Those before the first that is refused are kept,
and the verifying step gives one token more, so a step yields

    1 + the sum over positions i of P(i),    P(i): share of drafts in which the first i tokens are all accepted

With one chance a for each next token, P(i) = a^i and the sum is the geometric (1 - a^(k + 1)) / (1 - a).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from scenarios.traffic_settings import Part

Method = Literal["mtp", "eagle3", "ngram", "suffix"]
#: Chance of each next drafted token where a scenario gives none: value, low, high, and where it is from.
USUAL_ACCEPTANCE: dict[Method, tuple[float, float, float, str]] = {
    "mtp": (0.7, 0.6, 0.9, "measured: DeepSeek-R1 on CloudMatrix384, one MTP token (arXiv 2506.12708)"),
    "eagle3": (0.65, 0.45, 0.8, "assumed: between 0.7 of MTP and what a draft model reaches (vLLM-Ascend PR 6766)"),
    "ngram": (0.3, 0.05, 0.6, "assumed: depends on how much an answer repeats its prompt"),
    "suffix": (0.5, 0.2, 0.8, "assumed: depends on how much answers repeat each other"),
}
#: Methods that draft with a forward pass of a model of their own; the others look tokens up on the host.
FORWARD: tuple[Method, ...] = ("mtp", "eagle3")
Share = Annotated[float, Field(ge=0, le=1)]
#: A draft and its verifying token take the decode path of attention up to 16 tokens a request.
MAX_DRAFT = 15


class SpeculativeConfig(Part):
    """Speculative decoding."""

    method: Method
    """mtp: the model's own multi-token prediction layers. eagle3: a draft layer on three of the model's hidden states.
    ngram, suffix: tokens that followed the same ones before, looked up on the host."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=MAX_DRAFT, strict=True, json_schema_extra={"unit": "tokens"})]
    """Tokens drafted for each request in each step."""
    acceptance: Share | Annotated[tuple[Share, ...], Field(min_length=1, max_length=MAX_DRAFT)] | None = None
    """One number: the chance that a drafted token is accepted when those before it were. A list: for each position the
    share of drafts in which it is accepted, as vLLM logs it. Default: mtp 0.7, eagle3 0.65, suffix 0.5, ngram 0.3."""
    enforce_eager: Annotated[bool, Field(strict=True)] = False
    """Draft forwards are issued op by op, whatever the graph mode."""

    @property
    def query_tokens(self) -> int:
        """Tokens of one request in a verifying step."""
        return self.num_speculative_tokens + 1

    @property
    def accepted(self) -> tuple[float, ...]:
        """For each position the share of drafts in which it is accepted."""
        return self._accepted(0)

    def _accepted(self, end: int) -> tuple[float, ...]:
        """`accepted` at the value (0), the low (1) or the high (2) end of what is usual."""
        given = self.acceptance
        if isinstance(given, tuple):
            return given
        usual = USUAL_ACCEPTANCE[self.method]
        chance = (usual[0], usual[1], usual[2])[end] if given is None else given
        return tuple(chance**place for place in range(1, self.query_tokens))

    @property
    def acceptance_source(self) -> str:
        """Where `accepted` is from."""
        return "given" if self.acceptance is not None else USUAL_ACCEPTANCE[self.method][3]

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a verifying step yields for one request, on average."""
        return 1 + sum(self.accepted)

    @property
    def tokens_per_step_ends(self) -> tuple[float, float]:
        """(low, high) of `tokens_per_step`: equal where the acceptance is given."""
        return 1 + sum(self._accepted(1)), 1 + sum(self._accepted(2))

    @property
    def forward(self) -> bool:
        """Whether drafts are forward passes on the device."""
        return self.method in FORWARD
