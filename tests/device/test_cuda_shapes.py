"""The CUDA backend's Programs on tensors without memory (the device `meta`): each call takes its operands, gives the
shapes and types that the Program says, stays on the device, and nothing captured needs the host. Attention goes to the
schemas of the flash and memory-efficient kernels, held against what their documentation takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from device.operators import cuda
from device.operators.kernel import fitted
from device.run.graphs import Piece
from device.run.host_inputs import Requests
from device.run.session import Options, Session
from device.step.step import Step
from device.weights.weights import RandomCheckpoint, shape_of
from tests.device import gpu
from tests.device.making import LENGTHS
from tests.device.test_cuda_kernels import MODELS, alternating, cases, scenario
from tests.scenarios.making import switched


class NoHost(TorchDispatchMode):
    """What a capture must not hold: a read of the device by the host, a copy of the host's values to the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_flatten((args, out))[0] if isinstance(x, torch.Tensor)]
        assert "_local_scalar_dense" not in str(func), func
        assert all(x.device.type == "meta" for x in tensors if x.ndim), func
        return out


def rehearse(session: Session, phase: Any, requests: Requests) -> list[str]:
    """Every unit of a step, checked call by call; the names of what was left out, for the host must see values."""
    bound, step = session.prepared(phase, requests)
    skipped = []
    with torch.inference_mode():
        for unit in bound.units:
            if isinstance(unit, Piece):
                with NoHost():
                    unit.put(unit.body(unit.constants, unit.inputs(step), step), step.values)
                continue
            (call,) = unit.calls
            if call.issued.op.kind == "grouped_matmul" and (
                step.dtypes["bf16"] == torch.float32 or call.form == "composed"
            ):
                skipped.append(call.issued.op.name)  # how many rows an expert has is a value
                out = call.issued.op.out
                call.put((torch.empty(out.shape, dtype=step.dtypes[out.dtype], device="meta"),), step.values)
                continue
            outputs = call.compute(call.inputs(step), step)
            check(call, outputs, step)
            call.put(outputs, step.values)
    assert step.values["next_ids"].shape == (len(requests.numbers),)
    return skipped


def check(call: Any, outputs: Any, step: Step) -> None:
    for tensor, value in zip(call.issued.op.outputs, outputs, strict=False):
        assert value.device.type == "meta", call.issued.op.name
        if tensor.role == "activation" and call.issued.block.name != "prepare":
            assert value.dtype == step.dtypes[tensor.dtype], (call.issued.op.name, tensor.name)
            if call.kernel.raw is False:
                fitted(value, tensor.shape)


def fused_only(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """scaled_dot_product_attention with the math form off: the kernel that torch would choose, by its own schema."""
    aten = torch.ops.aten
    assert not q.shape[-1] % 4
    if cuda.takes_flash(q, v, attn_mask is not None):
        assert q.dtype in (torch.bfloat16, torch.float16)
        assert q.shape[-1] == k.shape[-1] == v.shape[-1] <= 256
        assert enable_gqa == (q.shape[1] > k.shape[1])
        assert not is_causal or q.shape[2] == k.shape[2]  # its triangle starts above on the left
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal, False, scale=scale)[0]
    assert q.shape[1] == k.shape[1] == v.shape[1]  # it serves each head by one of its own
    assert not enable_gqa
    if attn_mask is not None:
        assert attn_mask.dtype == torch.bool
        assert torch.broadcast_shapes(attn_mask.shape, (*q.shape[:3], k.shape[2])) == (*q.shape[:3], k.shape[2])
    bias = None if attn_mask is None else attn_mask.to(q.dtype).expand(*q.shape[:3], k.shape[2])
    return aten._scaled_dot_product_efficient_attention(q, k, v, bias, False, 0.0, is_causal, scale=scale)[0]


class Shapes(RandomCheckpoint):
    """A checkpoint of no values."""

    def tensor(self, name: str) -> torch.Tensor:
        return torch.empty(shape_of(self.model, name), device="meta")


#: (variant, model, graph, float32): all in 16 bits as they are, some captured, some in float32.
REHEARSED = [
    *((variant, name, "eager", False) for variant, name in cases() if variant not in ("plain", "w4a16")),
    *(("fused", name, graph, False) for name in ("qwen3", "deepseek") for graph in ("aclgraph", "ge_graph")),
    *(("fused", name, "eager", True) for name in ("qwen2", "glm", "lite")),
]


@pytest.mark.parametrize(("variant", "name", "graph", "wide"), alternating(REHEARSED))
def test_each_call_takes_its_operands_and_stays_on_the_device(
    variant: str, name: str, graph: str, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.not_compiled(monkeypatch)
    monkeypatch.setattr(F, "scaled_dot_product_attention", fused_only)
    model = MODELS[name]
    about = switched(scenario(variant, model), graph=graph)
    session = Session(about, model, gpu.On("meta"), Shapes(model, 0), options=Options(wide))
    for number, length in enumerate(LENGTHS):
        session.cache.allocator.allocate(number, length + 1)
    prompts = tuple((1,) * length for length in LENGTHS)
    rehearse(session, "prefill", Requests((0, 1, 2), (0, 0, 0), prompts))
    rehearse(session, "prefill", Requests((0, 1), (0, 0), prompts[:2]))  # alike: causal and unmasked
    skipped = rehearse(session, "decode", Requests((0, 1, 2), LENGTHS, ((1,), (1,), (1,))))
    rehearse(session, "decode", Requests((0, 1), (40, 40), ((1,), (1,))))
    one_by_one = wide or variant in ("w8a16", "w4a16")
    assert bool(skipped) == (bool(model.experts) and one_by_one)
