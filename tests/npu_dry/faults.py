"""Faults seeded one at a time, and the test that catches each: `python -m tests.npu_dry.faults [WORD ...]`.

A fault that no test catches is a hole in the tests. Each is put into a copy of this checkout, where its test must fail;
the command prints one line a fault, and its status is 1 where one survives. WORD: only faults with this word in their
names.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("device", "scenarios", "sim", "tests/npu_dry")


@dataclass(frozen=True, slots=True)
class Fault:
    """`old`, which stands once in `file`, becomes `new`; `test` catches that: file::function, both of tests/npu_dry.

    `old` is found wherever the formatter breaks its lines: any white space stands for any other.
    """

    name: str
    file: str
    old: str
    new: str
    test: str

    def seeded(self, source: str) -> tuple[str, int]:
        """The source with every `old` replaced, and how many stood there."""
        spaced = r"\s+".join(re.escape(word) for word in self.old.split())
        return re.subn(spaced, lambda _: self.new, source)


_NPU = "device/operators/npu"
_SEEDED, _PROTOCOL, _ADAPTERS = (f"test_tier{name}.py" for name in ("1_seeded", "2_protocol", "1_adapters"))
_VERSIONS, _STACKS = "test_tier1_versions.py", "test_tier1_stacks.py"
_SAME = f"{_ADAPTERS}::test_what_stands_for_a_lacking_call_computes_the_same"
_SPREAD = "test_tier3_spread.py"
_TWO_RANKS = f"{_SPREAD}::test_two_ranks_compute_what_the_plain_operators_of_one_do"
_EPSILON = f"{_SEEDED}::test_a_norm_is_given_the_epsilon_of_its_model"
_CAST = f"{_SEEDED}::test_weights_are_cast_to_fractal_nz_as_they_are_read"

FAULTS = (
    Fault(
        "epsilon left out of a norm", f"{_NPU}/norms.py", 'call("npu_rms_norm", x, gamma, epsilon=eps_of(op))',
        'call("npu_rms_norm", x, gamma)', _EPSILON,
    ),
    Fault(
        "epsilon of another value", f"{_NPU}/norms.py", 'x, residual, gamma, epsilon=eps_of(op))',
        'x, residual, gamma, epsilon=1e-5)', _EPSILON,
    ),
    Fault(
        "epsilon left out of the quantising norm", f"{_NPU}/norms.py",
        'gamma, epsilon=eps_of(op), output_mask', 'gamma, output_mask', _EPSILON,
    ),
    Fault(
        "epsilon left out of norm, rope and cache", f"{_NPU}/kv.py", "epsilon=eps_of(op),", "", _EPSILON,
    ),
    Fault(
        "epsilon of a latent norm", f"{_NPU}/latent.py", "epsilon=step.model.norm_eps,", "", _EPSILON,
    ),
    Fault("NZ is another format", "device/operators/npu/weights.py", "FRACTAL_NZ = 29", "FRACTAL_NZ = 2", _CAST),
    Fault(
        "NZ of a view", "device/operators/npu/weights.py",
        'value.mT.contiguous() if "nz" in words or "whole" in words', 'value.mT.contiguous() if "whole" in words',
        _CAST,
    ),
    Fault(
        "internal formats not allowed", "device/backends/npu.py", "self.calls.config.allow_internal_format = True",
        "pass", f"{_SEEDED}::test_the_device_is_opened_with_internal_formats_allowed",
    ),
    Fault(
        "capture without warm-up", "device/backends/npu_graphs.py",
        "with npu.stream(stream), npu.use_mem_pool(pool):\n            self._issue(step)",
        "with npu.stream(stream), npu.use_mem_pool(pool):\n            pass",
        f"{_PROTOCOL}::test_a_capture_comes_after_the_same_calls_as_they_are",
    ),
    Fault(
        "a graph's key without addresses", "device/backends/npu_graphs.py",
        'key = ("aclgraph", tuple(_shape_of(call.issued.op) for call in run), writes, _places(flat))',
        'key = ("aclgraph", tuple(_shape_of(call.issued.op) for call in run), writes)',
        f"{_SEEDED}::test_a_graph_serves_all_steps_of_its_weights_and_of_no_others",
    ),
    Fault(
        "lengths of a replay not handed over", "device/backends/npu_graphs.py",
        "graph.npu_graph.update([dict(lengths(self.attention, step.layout, v2))])", "pass",
        f"{_PROTOCOL}::test_each_attention_gets_its_lengths_once_a_replay",
    ),
    Fault(
        "lengths by the names of v2 for a captured v1", "device/backends/npu_graphs.py",
        "lengths(self.attention, step.layout, v2)", "lengths(self.attention, step.layout)",
        f"{_PROTOCOL}::test_each_attention_gets_its_lengths_once_a_replay",
    ),
    Fault(
        "inputs of a replay not copied", "device/backends/npu_graphs.py", "buffer.copy_(value)", "pass",
        "test_tier3_tokens.py::test_eager_captured_and_replayed_give_the_same_tokens",
    ),
    Fault(
        "blocks asked for in NZ", f"{_NPU}/kv.py", ', cache_mode="Norm")', ")",
        f"{_ADAPTERS}::test_every_call_is_taken_and_is_the_programs",
    ),
    Fault(
        "an old wheel is asked for plain blocks", f"{_NPU}/kernels.py", "has(PLAIN_BLOCKS, torch_npu)", "True",
        f"{_VERSIONS}::test_every_call_fits_the_signature_of",
    ),
    Fault(
        "an old wheel is asked to gather", f"{_NPU}/kernels.py", "has(GATHER, torch_npu)", "True",
        f"{_VERSIONS}::test_every_call_fits_the_signature_of",
    ),
    Fault(
        "2.8.0 captures v2", f"{_NPU}/kernels.py", "has(V2_IN_CAPTURE, torch_npu)", "True", _SAME,
    ),
    Fault(
        "2.8.0 is let capture latent attention", f"{_NPU}/plan.py",
        "if latent and (lack := lacks(V2_IN_CAPTURE, torch_npu)):", "if False:",
        f"{_STACKS}::test_a_paged_scenario_is_taken_by",
    ),
    Fault(
        "ATB gets slots in int64", f"{_NPU}/kv.py", "inputs[-1].int())", "inputs[-1])", _SAME,
    ),
    Fault(
        "keys and values written apart change places", f"{_NPU}/kv.py", "in zip(caches, new",
        "in zip(caches, new[::-1]", _SAME,
    ),
    Fault(
        "a wheel is said to have what it lacks", f"{_NPU}/versions.py", 'Wheel("2.9.0", (7, 3), "8.5.0")',
        'Wheel("2.9.0", (26, 0), "8.5.0")', f"{_VERSIONS}::test_what_a_wheel_is_said_to_lack_is_what_its_files_lack",
    ),
    Fault(
        "rope in its default layout", f"{_NPU}/norms.py", ', layout="TND", rotary_mode="half")', ")",
        f"{_ADAPTERS}::test_every_call_is_taken_and_is_the_programs",
    ),
    Fault(
        "attention without its mask's mode", f"{_NPU}/attention.py", '{"sparse_mode": CAUSAL, "atten_mask"',
        '{"sparse_mode": NO_MASK, "atten_mask"', f"{_ADAPTERS}::test_adapters_compute_what_the_plain_operators_do",
    ),
    Fault(
        "a window of one key more", f"{_NPU}/attention.py", '"pre_tokens": window - 1', '"pre_tokens": window',
        f"{_ADAPTERS}::test_adapters_compute_what_the_plain_operators_do",
    ),
    Fault(
        "INT4 scales without the shift of the half bytes", "device/operators/npu/weights.py",
        "8 * integers.sum(-1).float()", "0 * integers.sum(-1).float()",
        f"{_ADAPTERS}::test_adapters_compute_what_the_plain_operators_do",
    ),
    Fault(
        "a rank computes with the first experts, not with its own", f"{_NPU}/experts.py",
        "active_expert_range=[first, first + experts.held]", "active_expert_range=[0, experts.held]", _TWO_RANKS,
    ),
    Fault(
        "places of other ranks' experts are read as they are", f"{_NPU}/experts.py",
        "places = places.clamp(min=0)", "pass", _TWO_RANKS,
    ),
    Fault(
        "other ranks' experts keep their weights", f"{_NPU}/experts.py",
        "shares = shares.masked_fill((places < 0).view(shares.shape), 0)", "pass", _TWO_RANKS,
    ),
    Fault(
        "a row that nobody has written is added", f"{_NPU}/experts.py",
        "rows[:1].masked_fill_(step.values[COUNTS].sum() == 0, 0)", "pass",
        f"{_SEEDED}::test_a_rank_whose_experts_nobody_chose_adds_nothing",
    ),
    Fault(
        "tokens that should go in INT8 go as they are", f"{_NPU}/exchange.py",
        "quant_mode=BY_ROW if quantised else PLAIN", "quant_mode=PLAIN", _TWO_RANKS,
    ),
    Fault(
        "padding is sent", f"{_NPU}/exchange.py", "if rows * ranks == step.layout.tokens:", "if True:",
        f"{_SPREAD}::test_padding_is_not_sent",
    ),
    Fault(
        "sums where the products want counts", f"{_NPU}/exchange.py", "expert_token_nums_type=COUNTED",
        "expert_token_nums_type=0", _TWO_RANKS,
    ),
    Fault(
        "tokens are sent in the group of all collectives", "device/ranks/groups.py",
        "dist.new_group(list(self.members), use_local_synchronization=True)", "dist.group.WORLD",
        f"{_SPREAD}::test_tokens_are_sent_by_one_call_each_way_in_a_group_of_their_own",
    ),
    Fault(
        "Atlas A2 is let send tokens", f"{_NPU}/refusals.py", "if not chip.startswith(ATLAS_A2) or", "if True or",
        f"{_SEEDED}::test_atlas_a2_is_told_what_sends_tokens_there",
    ),
    Fault(
        "micro-batches are captured", f"{_NPU}/plan.py",
        "if any(op.micro_batch >= 0 for block in program.blocks for op in block.ops):", "if False:",
        f"{_SPREAD}::test_captured_micro_batches_are_refused",
    ),
    Fault(
        "experts one by one are captured", f"{_NPU}/plan.py",
        "if any(op.expert >= 0 for block in program.blocks for op in block.ops):", "if False:",
        f"{_ADAPTERS}::test_what_a_call_does_not_take_is_refused_by_its_switch_in_one_line",
    ),
    Fault(
        "rows of experts are as many as the Program drew", f"{_NPU}/quant.py",
        "quantised.reshape(-1, *op.outputs[0].shape[1:])", "quantised.reshape(op.outputs[0].shape)", _TWO_RANKS,
    ),
)  # fmt: skip


def catches(fault: Fault, copy: Path) -> bool:
    """Whether the fault's test fails with the fault in `copy`, which is left as it was."""
    file = copy / fault.file
    honest = file.read_text(encoding="utf-8")
    file.write_text(fault.seeded(honest)[0], encoding="utf-8")
    try:
        return _pytest([fault.test], copy) == 1
    finally:
        file.write_text(honest, encoding="utf-8")


def sound(copy: Path) -> bool:
    """Whether the tests of all faults pass in `copy` as it is: else a failure would say nothing of a fault."""
    return _pytest(sorted({fault.test for fault in FAULTS}), copy) == 0


def _pytest(tests: list[str], copy: Path) -> int:
    """pytest's status: 0 all pass, 1 some fail; 2 to 5 are none of a test."""
    place = "tests/npu_dry"
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-c",
        f"{place}/pytest.ini",
        "--rootdir",
        ".",
        "--confcutdir",
        place,
    ]
    command += ["-x", "-q", "-m", "", "-p", "no:cacheprovider", *(f"{place}/{test}" for test in tests)]
    return subprocess.run(command, cwd=copy, capture_output=True, check=False).returncode


def copied(into: Path) -> Path:
    """What the tests need of this checkout."""
    for name in COPIED:
        shutil.copytree(ROOT / name, into / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", into)
    return into


def chosen(words: list[str]) -> Iterator[Fault]:
    return (fault for fault in FAULTS if not words or any(word in fault.name for word in words))


def main() -> int:
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        if not sound(copy):
            raise SystemExit("the tests fail without a fault: run `make npu`")
        for fault in chosen(sys.argv[1:]):
            result = catches(fault, copy)
            survived += not result
            print(f"{'caught  ' if result else 'SURVIVED'}  {fault.name}: {fault.test}", flush=True)
    return int(survived > 0)


if __name__ == "__main__":
    raise SystemExit(main())
