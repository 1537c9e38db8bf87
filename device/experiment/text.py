"""What a side is run on: how many tokens lie where, and which tokens they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from device.run.workload import seeded_prompts
from scenarios.errors import ScenarioError, printable
from scenarios.schema import Scenario

#: Decode steps of a growing cache that are timed as one.
DECODE_STEPS = 8


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of each request. before: in the cache before the prefill starts. prompt: after it. start: in the cache
    before the first decode step. steps: decode steps. The decode steps lie around the scenario's decode context."""

    before: int
    prompt: int
    start: int
    steps: int

    @classmethod
    def of(cls, scenario: Scenario) -> Span:
        workload, longest = scenario.workload, scenario.longest_request_tokens
        before = (workload.context_tokens or 0) if workload.phase == "prefill" else 0
        prompt = min(before + workload.input_tokens, longest)
        steps = max(1, min(DECODE_STEPS, longest - 1))
        start = max(1, min(scenario.decode_context_tokens - steps // 2, longest - steps))
        return cls(before, prompt, start, steps)

    @property
    def tokens(self) -> int:
        """Tokens of a request at its end."""
        return max(self.prompt, self.start + self.steps)


@dataclass(frozen=True, slots=True)
class Text:
    """tokens: of each request, `Span.tokens` of them. is_given: real text; where it is not, the plain program samples
    what comes behind the first decoded token."""

    tokens: list[list[int]]
    is_given: bool


def text_for(scenario: Scenario, vocab: int, folder: Path | None) -> Text:
    """Text in the model's own tokens where its folder has a tokenizer.json and `tokenizers` is installed; else seeded
    random tokens. The text is Python's own documentation."""
    span, requests = Span.of(scenario), scenario.workload.batch
    lengths = [span.tokens] * requests
    ids = _documentation(folder, sum(lengths)) if folder is not None else []
    if len(ids) < sum(lengths) or scenario.optimizations.kv.prefix_sharing or max(ids, default=0) >= vocab:
        return Text(seeded_prompts(scenario, vocab, lengths, scenario.protocol.seed), is_given=False)
    return Text([ids[i * span.tokens :][: span.tokens] for i in range(requests)], is_given=True)


def _documentation(folder: Path, most: int) -> list[int]:
    """Up to `most` tokens of Python's documentation; none where there is no tokenizer for them."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        return []
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        return []
    from pydoc_data.topics import topics

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises its own type for a file that is cut or forged
        raise ScenarioError([f"{file}: cannot be read: {printable(str(error), 200)}"]) from None
    tokens: list[int] = []
    for key in sorted(topics):
        tokens += tokenizer.encode(topics[key], add_special_tokens=False).ids
        if len(tokens) >= most:
            break
    return tokens
