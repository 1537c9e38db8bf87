"""A model at work: its weights and its cache on a device, prompts in, tokens out, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import torch

from device.operators.kernel import fitted
from device.run.backend import Backend
from device.run.host_inputs import Place, Requests, step_of
from device.run.kv_cache import KvTensors
from device.run.runner import Bound, Choice
from device.run.windows import problems
from device.step.dtypes import DTYPES, WIDE_DTYPES
from device.step.rotary import refuse_scaling
from device.step.step import Group, Groups, Step
from device.weights.weights import Checkpoint, Weights
from scenarios.build import build
from scenarios.errors import ScenarioError
from scenarios.lowering.parallel import shard_of
from scenarios.lowering.stages import layers_of_stages, split_depth, stage_model
from scenarios.models.model import Model
from scenarios.ops.program import Batch, DType
from scenarios.ops.program import Group as Alike
from scenarios.passes.switches import activation_dtype
from scenarios.schema import Scenario
from scenarios.serving.admission import KvCache
from scenarios.serving.kv_cache import ContiguousCache, PagedCache, shared_blocks

#: Programs that a session keeps ready.
MAX_BOUND = 64

Phase = Literal["prefill", "decode", "mixed"]
Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Options:
    """How a session computes. wide: 16-bit values are held in float32 (weights are still rounded to 16 bits). choice:
    how each op is computed, the backend's way where None."""

    wide: bool = False
    choice: Choice | None = None


class Session:
    """One rank of a scenario's engine on a device. allocator: of its KV cache; without one the cache holds the
    scenario's batch at its longest. Raises ScenarioError where the backend lacks what the scenario asks for, or where
    it does not fit the memory."""

    def __init__(
        self,
        scenario: Scenario,
        model: Model,
        backend: Backend,
        checkpoint: Checkpoint,
        group: Group | Groups | None = None,
        options: Options | None = None,
        allocator: KvCache | None = None,
    ) -> None:
        self.scenario, self.model, self.backend = scenario, model, backend
        self.options = options or Options()
        refuse_scaling(model)
        _refuse_shared_products(scenario, backend)
        if self.options.choice is None:
            _refuse_drafts(scenario, backend)
        groups = Groups.of(group)
        stages = scenario.engine.pipeline_parallel_size
        self._whole = split_depth(shard_of(scenario.engine, model, *_sizes(groups)), stages)
        self._stage = groups.stage if stages > 1 else None
        self.shard = self._whole if self._stage is None else stage_model(self._whole, self._stage)
        self.act = activation_dtype(scenario, model)
        dtypes = WIDE_DTYPES if self.options.wide else DTYPES
        self.place = Place(backend.device, dtypes, groups)
        self.checkpoint = checkpoint
        _refuse_overflow(scenario, self.shard, self.act, dtypes, backend, _cache_tokens(scenario, allocator))
        self.weights = Weights(
            checkpoint=checkpoint,
            model=model,
            shard=self.shard,
            rank=self.place.rank,
            dtypes=dtypes,
            stored=DTYPES,
            device=backend.device,
            expert_rank=groups.everyone.rank if groups.everyone else 0,
            in_pairs=model.latent is not None and scenario.optimizations.fusion.qkv_norm_rope_cache,
        )
        self.cache = KvTensors(
            scenario, self.shard, self.act, dtypes, backend.device, spare=_pads(scenario), allocator=allocator
        )
        self._bound: dict[Batch, Bound] = {}
        self.captures: dict[object, Any] = {}

    def bound(self, batch: Batch) -> Bound:
        """The Program of one step, ready to run; the last ones are remembered."""
        if batch in self._bound:
            self._bound[batch] = self._bound.pop(batch)  # used last
        else:
            program = build(self.scenario, self._whole, batch, self._stage)
            first = sum(layers_of_stages(self._whole.layers, self._whole.pipeline_parallel)[: self._stage or 0])
            lacking = problems(program, self.shard) + (
                [] if self.options.choice else self.backend.lacks(program, self.shard)
            )
            if lacking:
                raise ScenarioError([f"--backend {self.backend.name}: {line}" for line in lacking])
            while len(self._bound) >= MAX_BOUND:  # each decode step is a batch of its own, longer by one token
                del self._bound[next(iter(self._bound))]
            self._bound[batch] = Bound(
                program=program,
                backend=self.backend,
                weights=self.weights,
                cache=self.cache,
                act=self.act,
                choice=self.options.choice,
                captures=self.captures,
                first_layer=first,
            )
        return self._bound[batch]

    def prepared(self, phase: Phase, requests: Requests, batch: Batch | None = None) -> tuple[Bound, Step]:
        """The bound Program of one step and the step itself; the allocator has placed its tokens already. batch: of the
        Program, where another one than the requests' own serves them as well."""
        bound = self.bound(batch or batch_of(phase, requests))
        seed = self.scenario.protocol.seed
        return bound, step_of(
            program=bound.program,
            requests=requests,
            cache=self.cache,
            model=self.shard,
            place=self.place,
            act=self.act,
            seed=seed,
        )

    def run(self, phase: Phase, requests: Requests) -> Step:
        """Run one step; `next_ids` and `logits32` are in its values."""
        bound, step = self.prepared(phase, requests)
        with torch.inference_mode():
            bound.run(step)
        return step

    def admit(self, prompts: Prompts, more: int = 0) -> list[Requests]:
        """Give each prompt its part of the cache, with room for `more` tokens; the prefill steps that fill it.

        With prefix sharing the first request computes the common prefix and the others start behind it.
        """
        starts = []
        for number, prompt in enumerate(prompts):
            common = self._common(prompts, number)
            if common:
                assert isinstance(self.cache.allocator, PagedCache)
                self.cache.allocator.allocate(number, len(prompt) + more, 0, common)
            else:
                self.cache.allocator.allocate(number, len(prompt) + more)
            starts.append(common)
        return list(chunks(prompts, starts, self.scenario.engine.max_num_batched_tokens))

    def prefill(self, prompts: Prompts) -> tuple[list[int], torch.Tensor]:
        """Fill the cache with `prompts`: the first new token of each, and the logits that chose them [requests,
        vocab]."""
        logits = torch.empty((len(prompts), self.model.vocab), device=self.place.device)
        tokens = [0] * len(prompts)
        for requests in self.admit(prompts):
            step = self.run("prefill", requests)
            chosen, scores = self._answer(step)
            for row, number in enumerate(requests.numbers):  # a request in several chunks keeps its last
                tokens[number], logits[number] = chosen[row], scores[row]
        return tokens, logits

    def decode(self, tokens: Sequence[int]) -> tuple[list[int], torch.Tensor]:
        """One decode step of all requests on their last `tokens`: the next ones, and the logits that chose them."""
        numbers = tuple(range(len(tokens)))
        contexts = tuple(self.cache.allocator.tokens(n) for n in numbers)
        for number in numbers:
            self.cache.allocator.append(number)
        step = self.run("decode", Requests(numbers, contexts, tuple((t,) for t in tokens)))
        return self._answer(step)

    def _answer(self, step: Step) -> tuple[list[int], torch.Tensor]:
        """The tokens that a step has chosen, and its logits; from the last stage to all of a pipeline."""
        groups = self.place.groups
        if self._stage is None or groups.line is None:
            return step.values["next_ids"].tolist(), logits_of(step, self.model)
        requests = len(step.layout.requests)
        ids = torch.zeros(requests, dtype=torch.int64, device=self.place.device)
        logits = torch.zeros((requests, self.model.vocab), device=self.place.device)
        if self.shard.has_head and not self.place.rank:
            ids, logits = step.values["next_ids"].clone(), logits_of(step, self.model).clone()
        return groups.line.all_reduce(ids).tolist(), groups.line.all_reduce(logits)

    def _common(self, prompts: Prompts, number: int) -> int:
        """Tokens that request `number` takes from the first one: whole blocks, and never its last token."""
        kv = self.scenario.optimizations.kv
        if not kv.prefix_sharing or not number:
            return 0
        prompt, first = prompts[number], prompts[0]
        most = min(kv.shared_prefix_tokens, len(prompt) - 1, len(first))
        equal = next((i for i in range(most) if prompt[i] != first[i]), most)
        return shared_blocks(equal, kv.block_size) * kv.block_size


def logits_of(step: Step, model: Model) -> torch.Tensor:
    """[requests, vocab] in float32, without the padding of batch and vocabulary."""
    logits = fitted(step.values["logits"], (len(step.layout.requests), model.vocab))
    return logits.to(torch.float32, copy=True)  # of its own: a captured graph writes the next step's over them


def batch_of(phase: Phase, requests: Requests) -> Batch:
    """The batch whose groups are runs of requests that are alike, in order."""
    alike = groupby(zip(requests.queries, requests.contexts, strict=True))
    return Batch(phase, tuple(Alike(len(list(run)), query, context) for (query, context), run in alike))


def chunks(prompts: Prompts, starts: Sequence[int], max_tokens: int) -> Iterator[Requests]:
    """The prefill steps of `prompts` from `starts` on, at most `max_tokens` tokens each; a prompt that does not fit is
    cut and goes on in the next step."""
    numbers: list[int] = []
    contexts: list[int] = []
    tokens: list[tuple[int, ...]] = []
    room = max_tokens
    for number, (prompt, start) in enumerate(zip(prompts, starts, strict=True)):
        done = start
        while done < len(prompt):
            part = tuple(prompt[done : done + room])
            numbers.append(number)
            contexts.append(done)
            tokens.append(part)
            done, room = done + len(part), room - len(part)
            if not room:
                yield Requests(tuple(numbers), tuple(contexts), tuple(tokens))
                numbers, contexts, tokens, room = [], [], [], max_tokens
    if numbers:
        yield Requests(tuple(numbers), tuple(contexts), tuple(tokens))


def calibrated(session: Session, prompts: Prompts) -> Session:
    """`session` with the INT8 scales of its channels taken from a 16-bit run over `prompts`, as deployments take them
    from a calibration set. Sessions whose scales are not constants are left as they are."""
    if session.cache.scale != "channel":
        return session
    kv = session.scenario.optimizations.kv.model_copy(update={"dtype": "auto"})
    fusion = session.scenario.optimizations.fusion.model_copy(update={"qkv_norm_rope_cache": False})
    optimizations = session.scenario.optimizations.model_copy(update={"kv": kv, "fusion": fusion})
    plain = session.scenario.model_copy(update={"optimizations": optimizations})
    run = Session(plain, session.model, session.backend, session.checkpoint, session.place.groups, session.options)
    run.weights = session.weights
    run.prefill(prompts)
    session.cache.set_channel_scales(run.cache.tensors["k_cache"], run.cache.tensors["v_cache"])
    return session


def _sizes(groups: Groups) -> tuple[int, int]:
    """Ranks that share each layer, and replicas."""
    return groups.tensor.ranks if groups.tensor else 1, groups.replicas.ranks if groups.replicas else 1


def _refuse_drafts(scenario: Scenario, backend: Backend) -> None:
    """Raise ScenarioError for what no backend has run."""
    if scenario.engine.speculative_config is not None:
        what = "engine.speculative_config: drafts are not measured yet; set it to null"
        raise ScenarioError([f"--backend {backend.name}: {what}"])


def _refuse_shared_products(scenario: Scenario, backend: Backend) -> None:
    """Raise ScenarioError for weights that replicas hold in slices."""
    if scenario.engine.finegrained_tp_config is not None:
        what = "engine.finegrained_tp_config: predicted, but not measured yet; set it to null"
        raise ScenarioError([f"--backend {backend.name}: {what}"])


def _refuse_overflow(
    scenario: Scenario, part: Model, act: DType, dtypes: Mapping[DType, torch.dtype], backend: Backend, tokens: int
) -> None:
    """Raise ScenarioError where weights and a cache for `tokens` tokens are more than the free memory."""
    gib, element = 1 << 30, dtypes[act].itemsize
    weights = (part.linear_weights + part.other_weights) * element  # while they are loaded they are whole
    bits = 8 if scenario.optimizations.kv.dtype == "int8" else 8 * element
    cache = part.kv_bytes_per_token(bits) * tokens
    free = backend.free_bytes()
    if weights + cache > free:
        raise ScenarioError(
            [
                f"--backend {backend.name}: out of memory: weights of {weights / gib:.2f} GiB and a KV cache of "
                f"{cache / gib:.2f} GiB, {free / gib:.2f} GiB are free; take a smaller model, batch or length"
            ]
        )


def _cache_tokens(scenario: Scenario, allocator: KvCache | None) -> int:
    """Tokens that the cache has room for."""
    if allocator is None:
        return scenario.workload.batch * scenario.longest_request_tokens
    if isinstance(allocator, ContiguousCache):
        return allocator.rows * allocator.row_tokens
    return allocator.blocks * allocator.block_size


def _pads(scenario: Scenario) -> bool:
    """Whether steps may have more rows than tokens."""
    return scenario.optimizations.graph in ("aclgraph", "npugraph_ex") or scenario.engine.sequence_parallel
