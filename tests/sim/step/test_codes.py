"""Where the code of a static graph's kernels is when a layer runs them again."""

from __future__ import annotations

from scenarios.batches import reported_batch
from scenarios.build import build
from scenarios.loader import load_text
from scenarios.ops.program import Op, Tensor
from sim.hardware.profile import load_hardware
from sim.kernel.time import Code
from sim.predict.scenario_result import case_of
from sim.step.priced import codes_of, passed_since

DECODE = """
model: {model}
hardware: atlas_a2_910b2
workload: {{phase: decode, batch: 1, input_tokens: 512, output_tokens: 1}}
optimizations: {{graph: ge_graph, weights: fp16, kv: {{layout: contiguous}}, fusion: {{swiglu: false}}}}
"""


def codes_in_a_layer(model: str) -> dict[str, Code]:
    """By the last part of an op's name, in the layers of a static graph of one request."""
    case = case_of(load_text(DECODE.format(model=model), "test", ()))
    program = build(case.scenario, case.model, reported_batch(case.scenario))
    block = max(program.blocks, key=lambda block: block.repeat)
    codes = codes_of(block, program, load_hardware("atlas_a2_910b2"))
    return {op.name.rsplit(".", 1)[-1]: code for op, code in zip(block.ops, codes, strict=True)}


def test_the_weights_of_a_large_layer_push_out_what_the_compiler_made_for_it() -> None:
    """A layer of Qwen3-8B streams 386 MB, one of Qwen3-0.6B 31; L2 keeps code next to 50."""
    large, small = codes_in_a_layer("Qwen3-8B"), codes_in_a_layer("Qwen3-0.6B")
    compiled = {"silu+mul_up": "first", "split_qkv": "first", "write_k": "first", "write_v": "near"}
    assert {name: large[name] for name in compiled} == compiled  # V's cache is written right after K's
    assert {name: small[name] for name in compiled} == dict.fromkeys(compiled, "near")
    for name in ("q_norm", "rope"):  # of a library
        assert large[name] == small[name] == "near"


def test_bytes_count_from_the_last_run_of_the_same_kernel() -> None:
    def op(kind: str, width: int) -> Op:
        x = Tensor(f"{kind} {width}", (1, width), "fp16", "activation")
        return Op(kind, kind, (x,), (x,))

    # Two alike around a product of 100 bytes, one of another width behind one of 200.
    ops = [op("mul", 8), op("matmul", 1), op("mul", 8), op("matmul", 2), op("mul", 9)]
    assert passed_since(ops, [0, 100, 0, 200, 0]) == [200, 200, 100, 100, 300]
