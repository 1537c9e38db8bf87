"""Two ranks on the dry runtime with numbers: HCCL's calls keep their books, and gloo moves the same bytes (tier 3).

Every collective goes through torch_npu as it is; then gloo's computes it on CPU views of the same memory, at each
replay for captured ones. So what a rank sends to the wrong place, or in the wrong order, gives other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from device.measure.numerics import Run, generate, small_prompts
from device.operators.npu.exchange import active
from device.operators.reference import reference
from device.ranks import groups, spawn
from device.ranks.groups import Ranks
from device.run.host_inputs import Requests
from device.run.session import Options, Session
from device.step.step import Groups
from device.weights.weights import RandomCheckpoint
from scenarios.models.model import Experts, Model
from scenarios.passes.base import set_switch
from scenarios.passes.switches import all_off
from scenarios.schema import Scenario
from tests.npu_dry import making, numerics, references, references_exchange
from tests.npu_dry.numerics import KEPT, compute, host_view


class Joined(Ranks):
    """Ranks over HCCL that also meet over gloo."""

    def __init__(self, members: Sequence[int] | None = None) -> None:
        super().__init__(members)
        self.twin: Any = dist.new_group(list(self.members), backend="gloo")

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return self._moved(super().all_reduce(x), self._sum, x)

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        return self._moved(super().all_gather(x), self._all, x)

    def reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        return self._moved(super().reduce_scatter(x), lambda y: self._sum(y).chunk(self.ranks)[self.rank], x)

    def all_to_all(self, x: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
        def moved(y: torch.Tensor) -> torch.Tensor:
            out = y.new_empty((sum(received), *y.shape[1:]))
            dist.all_to_all_single(out, y.contiguous(), list(received), list(sent), group=self.twin)
            return out

        return self._moved(super().all_to_all(x, sent, received), moved, x)

    def own_name(self) -> str:
        name = super().own_name()
        references_exchange.JOINED[name] = self.twin
        return name

    def send(self, x: torch.Tensor, to: int) -> None:
        super().send(x, to)
        dist.send(host_view(x.contiguous()), self.members[to], group=self.twin)

    def post(self, x: torch.Tensor, to: int) -> None:
        super().post(x, to)
        self._posted.append(dist.isend(host_view(x.contiguous()).clone(), self.members[to], group=self.twin))

    def receive(self, x: torch.Tensor, sender: int) -> torch.Tensor:
        super().receive(x, sender)
        dist.recv(host_view(x), self.members[sender], group=self.twin)
        return x

    def _sum(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        dist.all_reduce(y, group=self.twin)
        return y

    def _all(self, x: torch.Tensor) -> torch.Tensor:
        out = [torch.empty_like(x) for _ in range(self.ranks)]
        dist.all_gather(out, x.contiguous(), group=self.twin)
        return torch.stack(out)

    def _moved(self, out: torch.Tensor, by: Callable[..., torch.Tensor], *given: torch.Tensor) -> torch.Tensor:
        """`out` with what `by` makes of the ranks' tensors, now or at each replay."""
        call = (by, given, {}, out)
        if KEPT.capture is not None:
            KEPT.capture.append(call)
        else:
            compute(*call)
        return out


#: Switches that a rank alone has nothing of.
OF_RANKS = ("fusion.moe_dispatch", "overlap.micro_batches")


@dataclass(frozen=True, slots=True)
class Spread:
    """A model in switches, on ranks that `engine` says."""

    model: Model
    switches: dict[str, object]
    engine: dict[str, Any]
    graphs: tuple[str, ...] = ("eager", "aclgraph")
    lengths: tuple[int, ...] = making.LENGTHS

    def scenario(self, graph: str, alone: bool = False) -> Scenario:
        sizes = {"batch": len(self.lengths), "input_tokens": max(self.lengths), "output_tokens": making.STEPS + 1}
        result = Scenario.model_validate({"workload": sizes, "engine": {} if alone else self.engine})
        result = set_switch(all_off(result, self.model), "weights", self.model.dtype)
        for switch, value in {**self.switches, "graph": graph}.items():
            if not (alone and switch in OF_RANKS):
                result = set_switch(result, switch, value)
        return result

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Ranks of a layer, stages, replicas."""
        fields = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        tensor, stages, replicas = (self.engine.get(field, 1) for field in fields)
        return tensor, stages, replicas


#: The calls that send tokens take rows of 1024 and more.
WIDE = replace(
    making.QWEN3_MOE, name="small-moe-1024", hidden=1024, experts=Experts(8, 8, 2, 64, 0, 1, "softmax", scaled=False)
)
TENSOR = {"tensor_parallel_size": 2}
EXPERTS = {**TENSOR, "enable_expert_parallel": True}
GATHERED = {"all2all_backend": "allgather_reducescatter"}
DENSE = {**making.FUSED, **making.PAGED}
APART: dict[str, object] = {"fusion.moe_dispatch": False}
ONE_KERNEL = {**making.ROUTED, "fusion.moe_dispatch": True}
CASES: dict[str, Spread] = {
    "tensor parallel": Spread(making.QWEN3, DENSE, TENSOR),
    "experts gathered": Spread(making.GLM, making.ROUTED, {**EXPERTS, **GATHERED}),
    "experts gathered from replicas": Spread(
        making.QWEN3_MOE, making.ROUTED, {"data_parallel_size": 2, "enable_expert_parallel": True, **GATHERED}
    ),
    "experts sent": Spread(making.DEEPSEEK, {**making.ROUTED, **APART}, EXPERTS, ("eager",)),
    "experts sent in INT8": Spread(
        making.QWEN3_MOE, {**making.ROUTED, **APART, "weights": "w8a8"}, EXPERTS, ("eager",)
    ),
    "experts sent by one kernel": Spread(WIDE, ONE_KERNEL, EXPERTS),
    "experts sent by one kernel in INT8": Spread(WIDE, {**ONE_KERNEL, "weights": "w8a8"}, EXPERTS),
    "micro-batches": Spread(making.QWEN3, {**DENSE, "overlap.micro_batches": 2}, TENSOR, ("eager",), (40, 40, 33, 21)),
    "stages": Spread(replace(making.QWEN3, layers=3), DENSE, {"pipeline_parallel_size": 2}),
    "stages with experts": Spread(making.GLM, making.ROUTED, {"pipeline_parallel_size": 2}),
}


def prompts_of(case: Spread, replica: int) -> list[list[int]]:
    """Of one replica: as many tokens as any other's, and other ones."""
    prompts = small_prompts(case.model.vocab, case.lengths)
    return [prompt[::-1] for prompt in prompts] if replica else prompts


def by_way(traced: Any) -> dict[str, Any]:
    """Of each case: relative errors of this rank's logits against the plain operators of one rank, the largest
    difference between those of eager and captured steps, and what was issued for one decode step."""
    references.register()
    numerics.install()
    groups.Ranks = spawn.Ranks = Joined  # type: ignore[misc]
    backend = making.Npu()
    world = spawn.joined(backend.collectives, 2)
    known: dict[tuple[int, int, int], Groups] = {}
    answers: dict[str, Any] = {}
    for name, case in CASES.items():
        if case.sizes not in known:
            known[case.sizes] = groups.groups_of(world, *case.sizes)
        answers[name] = _answer(case, known[case.sizes], backend, traced)
    answers["names"] = [world.own_name(), world.name()]
    dist.barrier(group=world.twin)
    return answers


def _answer(case: Spread, mine: Groups, backend: Any, traced: Any) -> dict[str, Any]:
    prompts = prompts_of(case, mine.replica)
    _, truth = _run(case, "eager", making.On("cpu"), None, prompts)
    answer: dict[str, Any] = {"error": {}, "marks": {}, "kinds": {}}
    runs: dict[str, Run] = {}
    for graph in case.graphs:
        with numerics.Numbers():
            session, runs[graph] = _run(case, graph, backend, mine, prompts, truth)
            answer["marks"][graph] = traced(lambda s=session: s.decode(truth.tokens[-1]))
        answer["error"][graph] = _relative(runs[graph], truth)
        program = next(bound.program for batch, bound in session._bound.items() if batch.phase == "decode")
        answer["kinds"][graph] = [i.op.kind for i in program]
        answer["active"] = _active(session)
    if len(runs) == 2:
        answer["difference"] = (runs["eager"].logits - runs["aclgraph"].logits).abs().max().item()
    return answer


def _run(
    case: Spread, graph: str, backend: Any, mine: Groups | None, prompts: list[list[int]], truth: Run | None = None
) -> tuple[Session, Run]:
    """The case on this rank, on the tokens of `truth`; that of one rank by the plain operators without groups."""
    options = Options(choice=reference) if mine is None else None
    scenario = case.scenario(graph, alone=mine is None)
    session = Session(scenario, case.model, backend, RandomCheckpoint(case.model, 0), mine, options)
    run = generate(session, prompts, making.STEPS - 1, truth.tokens if truth else None)
    return session, Run(run.tokens, host_view(run.logits).clone())


def _active(session: Session) -> list[bool]:
    """What this rank says of its share of the rows, where tokens are sent."""
    step = session.prepared("decode", _last(session))[1]
    mask = active(step, -(-step.layout.rows // session.shard.tensor_parallel), torch.device("cpu"))
    return [] if mask is None else mask.tolist()


def _last(session: Session) -> Requests:
    """The decode step that was run last."""
    numbers = tuple(range(session.scenario.workload.batch))
    return Requests(numbers, tuple(session.cache.allocator.tokens(n) - 1 for n in numbers), ((1,),) * len(numbers))


def _relative(run: Run, truth: Run) -> float:
    """The middle error of a row: a near choice that falls on another expert changes a row for good."""
    rows = (run.logits - truth.logits).norm(dim=-1) / truth.logits.norm(dim=-1)
    return rows.median().item()
