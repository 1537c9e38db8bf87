"""What torch.compile makes of the fusions for which torch has no CPU kernel: the same as the reference."""

from __future__ import annotations

import pytest

from device.backends import choose
from device.backends.cpu import NEED_COMPILER, compiler
from device.session import Options
from tests.device.making import ALL_FUSED, QWEN3, WIDE_REFERENCE, plain, prompts, run, session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's compiler uses what torch deprecates
    pytest.mark.skipif(compiler() is None, reason="no C++ compiler, or no headers of Python: nothing can be compiled"),
]


def test_compiled_fusions_equal_the_reference() -> None:
    switches = {**ALL_FUSED, "kv__layout": "paged"}
    truth = run(plain(**switches), QWEN3, WIDE_REFERENCE, steps=2)
    found = run(plain(**switches), QWEN3, Options(wide=True), steps=2)
    assert found.tokens == truth.tokens
    assert ((found.logits - truth.logits).norm() / truth.logits.norm()).item() < 1e-6


def test_compiled_fusions_say_so() -> None:
    at_work = session(plain(**ALL_FUSED))
    requests = at_work.admit(prompts())[0]
    bound, _ = at_work.prepared("prefill", requests)
    forms = {call.issued.op.kind: call.kernel.form for call in bound.calls}
    assert {kind for kind, form in forms.items() if form == "compiled"} == {"add_rms_norm", "rope", "swiglu"}
    assert set(NEED_COMPILER) > {"add_rms_norm", "rope", "swiglu"}
    assert (forms["rms_norm"], forms["attention"], forms["matmul"]) == ("fused", "fused", "torch")
    assert choose("cpu").describe()["compiler"] == compiler()
