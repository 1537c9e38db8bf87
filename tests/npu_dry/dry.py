"""A process on the dry runtime: `python -m tests.npu_dry.dry WHAT OUT`; each WHAT is a function below.

OUT is a folder: trace.jsonl gets every call of the runtime, answer.json what the function returns. Marks in the answer
are line numbers of the trace: what lies between two marks was issued between them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.npu_dry import stubs

Answer = dict[str, Any]


#: What is run op by op, captured, and compiled: names of the cases of making.py.
PLAIN = ("plain", "all fused", "all fused, paged", "int8 channel", "w8a8", "prefetch", "keys beside")
EAGER = (
    *(f"small-qwen3, {name}" for name in (*PLAIN, "w8a8, gate and quantise")), "small-qwen3-moe, experts, all fused",
    "small-glm, shared beside", "small-deepseek, latent write", "small-lite, grouped", "ffn", "w4a8",
    "experts w8a8, gate and quantise", "qkv, norms, rope and cache",
)  # fmt: skip
CAPTURED = (
    *(f"small-qwen3, {name}" for name in ("all fused, paged", "int8 channel", "prefetch", "keys beside")),
    "small-qwen3-moe, experts, all fused", "small-glm, shared beside", "small-deepseek, latent write",
    "small-lite, shared beside", "qkv, norms, rope and cache", "small-qwen3, all fused, paged on 2.8.0",
)  # fmt: skip
COMPILED = ("small-qwen3, all fused, paged", "small-deepseek, experts, all fused")


class Traced:
    """Marks in the trace of this process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, work: Callable[[], object]) -> list[int]:
        """[lines before, lines after] `work`."""
        before = self.lines()
        work()
        return [before, self.lines()]

    def lines(self) -> int:
        return self.path.read_bytes().count(b"\n") if self.path.exists() else 0


def decode_steps(traced: Traced, case: str, graph: str, steps: int = 3, batch: int = 4) -> Answer:
    """Prefill, then `steps` decode steps of one marked piece each; the last bound Program in words."""
    from device.run.host_inputs import Requests
    from device.run.session import batch_of
    from tests.npu_dry.making import of_case, session, small_prompts

    backend, model, switches = of_case(case)
    result = session(backend, model, {**switches, "graph": graph}, batch=batch)
    result.prefill(small_prompts(model.vocab, [40] * batch))
    marks, program = [], None
    for _ in range(steps):
        contexts = tuple(result.cache.allocator.tokens(n) for n in range(batch))
        for number in range(batch):
            result.cache.allocator.append(number)
        requests = Requests(tuple(range(batch)), contexts, ((1,),) * batch)
        bound, step = result.prepared("decode", requests)
        marks.append(traced(lambda bound=bound, step=step: bound.run(step)))
        program = result.bound(batch_of("decode", requests)).program
    assert program is not None
    packed = any(i.op.name == "qkv_a_proj" for i in program)
    ops = [
        {
            "kind": op.kind,
            "block": i.block.name,
            "captured": i.block.captured,
            "stream": op.stream,
            "name": op.name,
            "reads": _names(i, op.inputs),
            "writes": _names(i, op.outputs),
            "sigmoid": len(op.inputs) > 1,
            "packed": packed,
            "apart": op.name == "write_kv" and " on " in case,
        }
        for i in program
        for op in i.op.parts or (i.op,)
    ]
    cache = next(iter(result.cache.tensors.values()))[0]
    return {"marks": marks, "ops": ops, "cache_shape": list(cache.shape), "forms": [u.form for u in bound.units]}


def _names(issued: Any, tensors: Any) -> list[str]:
    """The values that an op reads or writes: activations by name, what the cache holds by layer."""
    held = f"{issued.block.name}.{issued.layer}."
    kept = [t for t in tensors if t.role in ("activation", "kv_cache")]
    return [t.name if t.role == "activation" else held + t.name for t in kept]


def eager(traced: Traced) -> Answer:
    return {case: decode_steps(traced, case, "eager", steps=1) for case in EAGER}


def aclgraph(traced: Traced) -> Answer:
    result = {case: decode_steps(traced, case, "aclgraph") for case in CAPTURED}
    return {**result, "profile": profiled(traced), "host_read": host_read()}


def npugraph_ex(traced: Traced) -> Answer:
    return {case: decode_steps(traced, case, "npugraph_ex", steps=4) for case in COMPILED}


def host_read() -> str:
    """What the runtime says to a host read inside a capture."""
    import torch

    x = torch.ones(2, device="npu")
    graph = torch.npu.NPUGraph()
    try:
        with torch.npu.graph(graph):
            x.sum().item()
    except RuntimeError as error:
        return str(error)
    return ""


def profiled(traced: Traced) -> list[str]:
    """The files that the backend's profiler writes of a decode step."""
    from device.backends.npu import Npu
    from tests.npu_dry.making import QWEN3, VARIANTS, session, small_prompts

    backend = Npu()
    result = session(backend, QWEN3, VARIANTS["all fused, paged"])
    tokens, _ = result.prefill(small_prompts(QWEN3.vocab, [8] * 3))
    folder = traced.path.parent / "profile"
    with backend.profiler(folder, 0, 1) as profiler:
        for _ in range(2):
            tokens, _ = result.decode(tokens)
            profiler.step()
    return sorted({path.name for path in folder.rglob("*") if path.is_file()})


def steps(traced: Traced) -> Answer:
    """Decode steps op by op and captured, in one process: most of a process's time is its imports."""
    return {"eager": eager(traced), "aclgraph": aclgraph(traced)}


def ranks(traced: Traced) -> Answer:
    """One of two ranks over the process group hccl, as torchrun starts it."""
    import torch

    from device.backends.npu import Npu
    from device.operators.npu.quant import KERNELS
    from device.ranks.spawn import joined
    from device.run.session import Session
    from device.weights.weights import RandomCheckpoint
    from scenarios.ops.program import Op, Tensor
    from tests.npu_dry.making import FUSED, PAGED, QWEN3, scenario, small_prompts

    backend = Npu()
    group = joined(backend.collectives, 2)
    marks: dict[str, list[int]] = {}
    for graph in ("eager", "aclgraph"):
        changed = scenario(QWEN3, {**FUSED, **PAGED, "graph": graph}, ranks=2)
        session = Session(changed, QWEN3, backend, RandomCheckpoint(QWEN3, 0), group)
        session.prefill(small_prompts(QWEN3.vocab, [8] * 3))
        marks[graph] = traced(lambda session=session: session.decode([1, 2, 3]))
    for graph in ("eager", "aclgraph"):  # products and their sums in two pieces
        changed = scenario(QWEN3, {**FUSED, **PAGED, "graph": graph, "overlap.comm_chunks": 2}, ranks=2)
        cut = Session(changed, QWEN3, backend, RandomCheckpoint(QWEN3, 0), group)
        cut.prefill(small_prompts(QWEN3.vocab, [8] * 3))
        marks[f"pieces {graph}"] = traced(lambda session=cut: session.decode([1, 2, 3]))
    program = next(bound.program for batch, bound in session._bound.items() if batch.phase == "decode")
    x, w = (Tensor("x", (3, 64), "bf16"), Tensor("w.weight", (32, 64), "bf16", "weight"))
    op = Op("matmul_all_reduce", "o_proj", (x, w), (Tensor("y", (3, 32), "bf16"),), (("ranks", 2),))
    operands = [torch.ones(t.shape, dtype=torch.bfloat16, device="npu") for t in (x, w)]
    step = session.prepared("decode", _three(session))[1]
    fused = traced(lambda: KERNELS["matmul_all_reduce"].compute(op, operands, step))
    store = torch.distributed.distributed_c10d._get_default_store()
    store.set(f"done {group.rank}", "")
    if (
        not group.rank
    ):  # it keeps the store, which the other may still need: nothing here makes them wait for each other
        store.wait(["done 1"])
    collectives = [(i.op.kind, i.block.captured) for i in program if i.op.attr("ranks", 0)]
    return {"marks": marks, "fused": fused, "collectives": collectives}


def _three(session: Any) -> Any:
    from device.run.host_inputs import Requests

    return Requests((0, 1, 2), tuple(session.cache.allocator.tokens(n) - 1 for n in range(3)), ((1,),) * 3)


def numbers(traced: Traced) -> Answer:
    """Tier 3: greedy tokens by the plain operators on the CPU, and through torch_npu eager, captured and replayed."""
    from tests.npu_dry.numerics import tokens_by_way

    return tokens_by_way()


def serving(traced: Traced) -> Answer:
    """Tier 3: requests served by the plain operators on the CPU, and through torch_npu eager and captured."""
    from tests.npu_dry.serving import served_by_way

    return served_by_way()


def spread(traced: Traced) -> Answer:
    """Tiers 2 and 3 of one of two ranks: experts and stages on several."""
    from tests.npu_dry.spread import by_way

    return by_way(traced)


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    os.environ["DRYCANN_TRACE"] = str(folder / "trace.jsonl")
    # In program order: with a second host thread the trace would have the order of that thread.
    os.environ["TASK_QUEUE_ENABLE"] = "0"
    if what == "spread":  # two ranks of Atlas A2 send no tokens in one call
        os.environ["DRYCANN_SOC"] = "Ascend910_9391"
    stubs.load(stubs.built("dry"))
    import torch
    import torch_npu

    assert torch_npu is not None
    torch.set_num_threads(1)
    answer = globals()[what](Traced(folder / "trace.jsonl"))
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
