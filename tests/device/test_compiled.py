"""What torch.compile makes of the fusions for which torch has no CPU kernel: the same as the reference."""

from __future__ import annotations

import pytest
import torch

from device.backends import choose
from device.backends.cpu import compiler
from device.measure.document import document
from device.measure.measure import measure
from device.measure.numerics import generate
from device.run.host_inputs import Requests
from device.run.session import Options
from scenarios.exchange.measured import Predicted
from scenarios.models.model import Model
from scenarios.ops.catalogue import CATALOGUE
from tests.device.making import ALL_FUSED, LITE, QWEN3, QWEN3_MOE, WIDE_REFERENCE, plain, prompts, run, session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's compiler uses what torch deprecates
    pytest.mark.skipif(compiler() is None, reason="no C++ compiler, or no headers of Python: nothing can be compiled"),
]


def test_compiled_fusions_equal_the_reference() -> None:
    switches = {**ALL_FUSED, "kv__layout": "paged"}
    # Each shape takes seconds to compile: prefill only.
    reference_run = run(plain(**switches), QWEN3, WIDE_REFERENCE, steps=0)
    done = run(plain(**switches), QWEN3, Options(wide=True), steps=0)
    assert done.tokens == reference_run.tokens
    assert ((done.logits - reference_run.logits).norm() / reference_run.logits.norm()).item() < 1e-6


def test_compiled_fusions_say_so() -> None:
    at_work = session(plain(**ALL_FUSED))
    requests = at_work.admit(prompts())[0]
    bound, _ = at_work.prepared("prefill", requests)
    forms = {call.issued.op.kind: call.kernel.form for call in bound.calls}
    assert {kind for kind, form in forms.items() if form == "compiled"} == {"add_rms_norm", "rope", "swiglu"}
    assert {CATALOGUE[kind].torch_kernel for kind in ("add_rms_norm", "rope", "swiglu")} == {"compiled"}
    assert (forms["rms_norm"], forms["attention"], forms["matmul"]) == ("fused", "fused", "torch")
    assert choose("cpu").describe()["compiler"] == compiler()


@pytest.mark.parametrize("graph", [pytest.param("aclgraph", marks=pytest.mark.study), "ge_graph"])
def test_a_captured_step_gives_the_same_tokens_and_is_captured_once(graph: str) -> None:
    switches = {"fusion__qkv": True, "fusion__rms_norm": True, "fusion__attention": True, "graph": graph}
    reference_run = run(plain(**switches), QWEN3, WIDE_REFERENCE)
    at_work = session(plain(**switches), QWEN3, Options(wide=True))
    tokens, logits = at_work.prefill(prompts())
    result, captures = [logits], []
    for step in range(4):
        tokens, logits = at_work.decode(reference_run.tokens[step])
        assert tokens == reference_run.tokens[step + 1]
        result.append(logits)
        captures.append(len(at_work.captures))
    assert ((torch.stack(result) - reference_run.logits).norm() / reference_run.logits.norm()).item() < 1e-6
    # embed, before and after attention in every layer; ge_graph takes the head and the sampling too
    assert captures == [{"aclgraph": 3, "ge_graph": 5}[graph]] * 4
    (bound,) = [b for batch, b in at_work._bound.items() if batch.phase == "decode" and batch.groups[0].context == 43]
    assert [call.issued.index for unit in bound.units for call in unit.calls] == list(range(len(bound.program)))
    last = Requests((0, 1, 2), (43, 43, 36), ((1,),) * 3)
    outcome = document(
        measure(*at_work.prepared("decode", last), repeats=1), Predicted(1, dict.fromkeys(range(999), 1000))
    )
    assert sum(op["ops"] for op in outcome["ops"]) == len(bound.program)
    assert [op["predicted_us"] for op in outcome["ops"]] == [op["ops"] for op in outcome["ops"]]
    alone = {unit.issued.op.kind for unit in bound.units if len(unit.calls) == 1 and unit.form != "compiled"}
    assert "attention" in alone  # its lengths grow: it is never inside


@pytest.mark.parametrize("model", [LITE, pytest.param(QWEN3_MOE, marks=pytest.mark.study)], ids=lambda m: m.name)
def test_a_captured_step_pads_and_routes_its_own_tokens(model: Model) -> None:
    switches = {"fusion__qkv": True, "fusion__rms_norm": True, "fusion__grouped_matmul": True, "graph": "aclgraph"}
    reference_run = run(plain(model), model, WIDE_REFERENCE, steps=2)
    at_work = session(plain(model, **switches), model, Options(wide=True))
    result = generate(at_work, prompts(), 2, reference_run.tokens)  # three requests, run as four rows
    assert ((result.logits - reference_run.logits).norm() / reference_run.logits.norm()).item() < 1e-6
    (bound, _) = (b for batch, b in at_work._bound.items() if batch.phase == "decode")
    alone = {unit.issued.op.kind for unit in bound.units if len(unit.calls) == 1 and unit.form != "compiled"}
    assert {"moe_init_routing", "grouped_matmul", "moe_finalize_routing"} <= alone  # their rows follow the router
