"""Each CPU kernel of references.py against the real schema and the real meta kernel of its call."""

from __future__ import annotations

import pytest
import torch

from device.operators.npu.call import OF_ATB
from device.operators.npu.rules import RULES
from tests.npu_dry import references, schemas
from tests.npu_dry.calls import CALLS, MORE_CALLS, rand

WHEELS = schemas.load()
#: The wheel that is installed; of ATB's operators its library does not show the schema in one piece.
INSTALLED, BEFORE = "2.13.0", "2.12.0"


def operator(name: str) -> torch._ops.OpOverload:
    return getattr(torch.ops.atb if name in OF_ATB else torch.ops.npu, name).default


@pytest.mark.parametrize("name", sorted({*RULES, *references.KERNELS}))
def test_the_schema_in_the_wheel_is_the_one_in_the_registry(name: str) -> None:
    text = WHEELS[BEFORE if name in OF_ATB else INSTALLED].calls[name]
    namespace = "atb" if name in OF_ATB else "npu"
    assert torch._C.parse_schema(f"{namespace}::{text}") == operator(name)._schema


#: They have no meta kernel, or torch.qint8 among their arguments.
WITHOUT_META = {"npu_quantize", "npu_gather_pa_kv_cache", "_npu_reshape_and_cache"}


@pytest.mark.parametrize("name", sorted(set(RULES) - WITHOUT_META))
def test_a_reference_agrees_with_schema_and_meta_kernel(name: str) -> None:
    args, kwargs = CALLS[name]
    torch.library.opcheck(operator(name), args, kwargs, test_utils=("test_schema", "test_faketensor"))


def test_quantize_agrees_with_its_meta_kernel() -> None:
    # opcheck cannot pass torch.qint8, which the schema takes as a number: shape and type are compared by hand.
    x, scales = rand(3, 64), rand(64).abs()
    got = torch.ops.npu.npu_quantize(x, scales, None, torch.qint8, -1, True)
    meta = torch.ops.npu.npu_quantize(x.to("meta"), scales.to("meta"), None, torch.qint8, -1, True)
    assert (got.shape, got.dtype) == (meta.shape, meta.dtype)


@pytest.mark.parametrize("name", sorted(WITHOUT_META - {"npu_quantize"}))
def test_what_has_no_meta_kernel_agrees_with_its_schema(name: str) -> None:
    args, kwargs = CALLS[name]
    torch.library.opcheck(operator(name), args, kwargs, test_utils="test_schema")


@pytest.mark.parametrize("case", MORE_CALLS)
def test_other_forms_of_a_call_agree_too(case: str) -> None:
    name, args, kwargs = MORE_CALLS[case]
    torch.library.opcheck(operator(name), args, kwargs, test_utils=("test_schema", "test_faketensor"))


def test_a_misnamed_argument_is_found() -> None:
    with pytest.raises(RuntimeError, match="eps"):
        torch.ops.npu.npu_rms_norm(rand(2, 8).to("meta"), rand(8).to("meta"), eps=1e-6)
