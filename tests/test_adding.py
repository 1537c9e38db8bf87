"""A made-up operator works end to end once it stands in four places: what docs/architecture.md promises."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from app_pages.parts.palette import class_of
from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.npu import kernels as npu
from device.operators.npu.refusals import refused
from device.operators.reference import REFERENCE
from device.step.step import Step
from scenarios.ops import vector_work as vector
from scenarios.ops.catalogue import CATALOGUE, family_of, op_type_of, work_of
from scenarios.ops.op_kind import OpKind
from scenarios.ops.program import Op, Program, Tensor
from scenarios.passes import PASSES
from scenarios.passes.base import Context, in_layers
from sim.kernel.price import params_of, price
from sim.predict.explain import kernel_rows
from sim.predict.predict import predict
from sim.predict.steps import Case
from sim.step.schedule import launches
from tests.device.making import QWEN3, WIDE_REFERENCE, plain, run
from tests.sim.hardware_maker import hardware

#: Place 1: the row of the catalogue, priced by parameters that exist (place 2 where it had its own).
SOFT_CAP = OpKind(
    name="soft_cap",
    op_type="SoftCap",
    unit="vector",
    work=vector.rows,
    host="npu",
    ops_per_element=6,
    api="torch_npu.npu_soft_cap",
    part="attention",
    params="row_wise",
)
OP = Op("soft_cap", "soft_cap", (Tensor("x", (4, 64), "bf16"),), (Tensor("x", (4, 64), "bf16"),))


def soft_cap(_: Op, inputs: Inputs, __: Step) -> Outputs:
    """Place 3: tanh of a fifth, times five."""
    return (torch.tanh(inputs[0].float() / 5).mul(5).to(inputs[0].dtype),)


def capped(program: Program, _: Context) -> Program:
    """Each layer's attention output with the made-up operator behind it."""

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        at = next(i for i, op in enumerate(ops) if op.name == "o_proj")
        return (*ops[: at + 1], Op("soft_cap", "soft_cap", (ops[at].out,), (ops[at].out,)), *ops[at + 1 :])

    return in_layers(program, "soft_cap", rewrite)


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator in its places, and a rewrite that is always on and puts it into every layer."""
    monkeypatch.setitem(CATALOGUE, "soft_cap", SOFT_CAP)
    monkeypatch.setitem(REFERENCE, "soft_cap", Kernel(soft_cap, "composed"))
    always = replace(PASSES[0], off=("never",), rewrite=capped)
    monkeypatch.setattr("scenarios.build.PASSES", (always, *PASSES))


@pytest.mark.usefixtures("operator")
def test_an_operator_is_priced_by_the_class_of_its_shape() -> None:
    hw = hardware()
    work = work_of(OP)
    assert params_of(work, hw) is hw.programs["row_wise"]
    mean = Op("reduce_mean", "mean", OP.inputs, OP.outputs)  # the same parameters, and less arithmetic
    assert price(work, hw).duration_ns >= price(work_of(mean), hw).duration_ns > 0
    assert price(work, hw).accelerator == "AI_VECTOR_CORE"


@pytest.mark.usefixtures("operator")
def test_an_operator_is_predicted_and_explained() -> None:
    prediction = predict(Case(plain(), QWEN3, hardware()))
    kernels = launches(prediction.plan)
    row = next(row for row in kernel_rows(kernels, prediction.step.total_ns) if row.kind == "soft_cap")
    assert (row.op_type, row.count) == ("SoftCap", QWEN3.layers)
    assert row.total_us > 0
    assert op_type_of(OP) == "SoftCap"
    assert class_of("soft_cap") == "attention"  # its colour
    assert family_of("soft_cap") == "vector"  # its residual


@pytest.mark.usefixtures("operator")
def test_an_operator_runs_on_the_cpu_backend_as_its_reference_does() -> None:
    by_backend, by_reference = run(plain(), options=None, steps=1), run(plain(), options=WIDE_REFERENCE, steps=1)
    error = (by_backend.logits.float() - by_reference.logits).norm() / by_reference.logits.norm()
    assert error.item() < 0.03  # bf16


def test_without_the_operator_the_logits_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run(plain(), options=WIDE_REFERENCE, steps=0).logits
    monkeypatch.setitem(CATALOGUE, "soft_cap", SOFT_CAP)
    monkeypatch.setitem(REFERENCE, "soft_cap", Kernel(soft_cap, "composed"))
    monkeypatch.setattr("scenarios.build.PASSES", (replace(PASSES[0], off=("never",), rewrite=capped), *PASSES))
    assert not torch.equal(run(plain(), options=WIDE_REFERENCE, steps=0).logits, before)


@pytest.mark.usefixtures("operator")
def test_an_npu_refuses_the_operator_until_it_has_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(OP, QWEN3, "2.13.0") == "SoftCap has no adapter for torch_npu"
    fused = Kernel(soft_cap, "fused")
    monkeypatch.setitem(npu.KERNELS, "soft_cap", fused)  # place 4
    assert refused(OP, QWEN3, "2.13.0") is None
    assert npu.kernel_of(OP, "2.13.0", atb=False) is fused


def test_an_unknown_kind_names_those_that_exist() -> None:
    with pytest.raises(KeyError, match=r"unknown op kind 'soft_cap'; the catalogue has .*add_rms_norm"):
        work_of(OP)
