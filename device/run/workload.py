"""The step that a scenario reports, made real: seeded prompts, a cache filled to the step's context, its new tokens."""

from __future__ import annotations

import torch

from device.run.host_inputs import Requests
from device.run.session import Phase, Prompts, Session, calibrated, chunks
from scenarios.batches import reported_batch
from scenarios.schema import Scenario
from scenarios.serving.kv_cache import PagedCache, shared_blocks


def reported_step(session: Session) -> tuple[Phase, Requests]:
    """The requests of the scenario's reported step, with what is before them already in the cache.

    Raises ScenarioError with all that the backend lacks for that step.
    """
    batch = reported_batch(session.scenario)
    session.bound(batch)
    alike = [(group.query, group.context) for group in batch.groups for _ in range(group.count)]
    seed = session.scenario.protocol.seed + session.place.groups.replica  # each replica has requests of its own
    prompts = seeded_prompts(session.scenario, session.model.vocab, [q + c for q, c in alike], seed)
    starts = placed(session, prompts)
    before = [prompt[:context] for prompt, (_, context) in zip(prompts, alike, strict=True)]
    calibrated(session, [prompt[: max(context, 1)] for prompt, (_, context) in zip(prompts, alike, strict=True)])
    budget = session.scenario.engine.max_num_batched_tokens
    for requests in chunks(before, [min(s, len(b)) for s, b in zip(starts, before, strict=True)], budget):
        session.run("prefill", requests)
    tokens = tuple(tuple(prompt[context:]) for prompt, (_, context) in zip(prompts, alike, strict=True))
    return batch.phase, Requests(tuple(range(len(prompts))), tuple(context for _, context in alike), tokens)


def placed(session: Session, prompts: Prompts) -> list[int]:
    """Give each prompt its part of the cache; the tokens of each that it shares with the first and need not compute:
    whole blocks, and never its last token."""
    common = _common_tokens(session.scenario, len(prompts))
    starts = []
    for number, prompt in enumerate(prompts):
        shared = min(common, len(prompt) - 1) if number else 0
        shared = shared_blocks(shared, session.cache.block_size) * session.cache.block_size if shared else 0
        if shared:
            assert isinstance(session.cache.allocator, PagedCache)
            session.cache.allocator.allocate(number, len(prompt), 0, shared)
        else:
            session.cache.allocator.allocate(number, len(prompt))
        starts.append(shared)
    return starts


def seeded_prompts(scenario: Scenario, vocab: int, lengths: list[int], seed: int) -> list[list[int]]:
    """Random tokens by `seed`; those of a shared prefix are the same for all."""
    random = torch.Generator().manual_seed(seed)
    common = torch.randint(vocab, (_common_tokens(scenario, len(lengths)),), generator=random).tolist()
    return [(common + torch.randint(vocab, (n,), generator=random).tolist())[:n] for n in lengths]


def _common_tokens(scenario: Scenario, requests: int) -> int:
    """Tokens that all prompts have in common."""
    kv = scenario.optimizations.kv
    return kv.shared_prefix_tokens if kv.prefix_sharing and requests > 1 else 0
