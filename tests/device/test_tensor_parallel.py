"""Two gloo ranks give the tokens of one; what goes wrong in a rank is one line, in time, and leaves no process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest
import torch

from device.ranks.spawn import _raise_the_worst, on_ranks
from device.run.session import Options
from scenarios.errors import ScenarioError
from scenarios.models.model import Model
from scenarios.schema import Scenario
from tests.device import ranks
from tests.device.making import ALL_FUSED, DEEPSEEK, MINIMAX, QWEN3, QWEN3_MOE, REFERENCE, WIDE_REFERENCE, Run, prompts
from tests.device.ranks import Case, Cases
from tests.scenarios.making import bare, switched

LONG = {"workload__batch": 1, "workload__input_tokens": 1101, "workload__output_tokens": 8}
LONG_PREFILL = {**LONG, "workload__phase": "prefill"}
EXPERTS_FUSED = {
    "fusion__gate_up": True,
    "fusion__swiglu": True,
    "fusion__moe_routing": True,
    "fusion__grouped_matmul": True,
    "fusion__attention": True,
}
WIDE_QWEN = replace(QWEN3, max_position=2048)


def case(options: Options, model: object = QWEN3, sizes: dict[str, object] | None = None, **switches: object) -> Case:
    """One rank's run; its tokens are what the ranks are given."""
    sizes = sizes or {"workload__batch": 3, "workload__input_tokens": 40, "workload__output_tokens": 8}
    assert isinstance(model, Model)
    scenario: Scenario = switched(bare(model, **sizes), **switches)
    lengths = (40, 40, 33) if sizes["workload__batch"] == 3 else (1101,)
    given = prompts(model.vocab, lengths)
    alone = Case(scenario, model, options, given, [])
    first = alone.run(None)
    forced = [first.tokens[0]] * 3
    return Case(scenario, model, options, given, forced)


def parallel(one: Case, **engine: object) -> Case:
    update = one.scenario.engine.model_copy(update={"tensor_parallel_size": 2, **engine})
    return replace(one, scenario=one.scenario.model_copy(update={"engine": update}))


def switched_case(one: Case, **switches: object) -> Case:
    return replace(one, scenario=switched(one.scenario, **switches))


@pytest.fixture(scope="module")
def runs() -> dict[str, tuple[Run, Run]]:
    """(one rank, two ranks) of each case."""
    paged = {**ALL_FUSED, "kv__layout": "paged", "kv__block_size": 16}
    single = {
        "plain fp32": case(WIDE_REFERENCE),
        "fused fp32": case(WIDE_REFERENCE, **paged),
        "fused bf16": case(REFERENCE, **paged),
        "odd vocabulary": case(WIDE_REFERENCE, replace(QWEN3, vocab=321, tied_embeddings=False)),
        "one KV head for both": case(WIDE_REFERENCE, replace(QWEN3, kv_heads=1)),
        "sliced experts": case(WIDE_REFERENCE, QWEN3_MOE, **EXPERTS_FUSED),
        "sliced experts one by one and heads of latent rows": case(WIDE_REFERENCE, DEEPSEEK, kv__layout="paged"),
        "norms of all heads": case(WIDE_REFERENCE, MINIMAX, **EXPERTS_FUSED),
        "int8 cache": case(WIDE_REFERENCE, **ALL_FUSED, kv__dtype="int8", kv__scale="head"),
        "scattered tokens": case(WIDE_REFERENCE, WIDE_QWEN, LONG, **ALL_FUSED),
        "scattered tokens in pieces": case(WIDE_REFERENCE, WIDE_QWEN, LONG_PREFILL, **ALL_FUSED),
        "in pieces": case(WIDE_REFERENCE, **paged),
        "micro-batches": case(WIDE_REFERENCE, **paged),
        "micro-batches of experts": case(WIDE_REFERENCE, QWEN3_MOE, **EXPERTS_FUSED),
        "one prompt in micro-batches": case(WIDE_REFERENCE, WIDE_QWEN, LONG_PREFILL, **paged),
    }
    double = {name: parallel(one) for name, one in single.items()}
    for name in double:
        if name.startswith("scattered"):
            double[name] = parallel(single[name], sequence_parallel=True)
        if "pieces" in name:
            double[name] = switched_case(double[name], overlap__comm_chunks=2)
        if "micro-batches" in name:
            double[name] = switched_case(double[name], overlap__micro_batches=2)
    answers = on_ranks(Cases(double), 2, "gloo", timeout_s=110)
    assert answers[0] == answers[1]  # every rank has all logits and chooses the same tokens
    result = {name: Run(tokens, torch.tensor(logits)) for name, (tokens, logits) in answers[0].items()}
    return {name: (one.run(None), result[name]) for name, one in single.items()}


NAMES = [
    "plain fp32", "fused fp32", "odd vocabulary", "one KV head for both", "sliced experts",
    "sliced experts one by one and heads of latent rows", "norms of all heads", "int8 cache", "scattered tokens",
    "scattered tokens in pieces", "in pieces", "micro-batches", "micro-batches of experts",
    "one prompt in micro-batches",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_compute_what_one_does(runs: dict[str, tuple[Run, Run]], name: str) -> None:
    one, two = runs[name]
    relative = ((one.logits - two.logits).norm() / one.logits.norm()).item()
    assert relative < (1e-3 if name == "int8 cache" else 1e-6)  # a last bit may move an integer of the cache
    assert one.tokens == two.tokens


def test_in_sixteen_bits_the_row_split_shows_its_rounding(runs: dict[str, tuple[Run, Run]]) -> None:
    one, two = runs["fused bf16"]
    relative = ((one.logits - two.logits).norm() / one.logits.norm()).item()
    assert 0 < relative < 0.015  # partial sums are rounded before they are added


def test_the_ranks_really_exchange(runs: dict[str, tuple[Run, Run]]) -> None:
    one, two = runs["plain fp32"]
    assert not torch.equal(one.logits, two.logits)  # sums in another order


# ---- what goes wrong ----


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "line"),
    [
        (ranks.rank_1_dies, "rank 1 of 2 was ended by SIGKILL; the other ranks were stopped"),
        (ranks.rank_1_fails, "rank 1 of 2 failed: ValueError: a shape that does not fit; the other ranks were stopped"),
        (ranks.rank_1_never_comes, "rank 1 of 2 did not come to a collective in time (*); all ranks were stopped"),
    ],
)
def test_a_rank_that_is_lost_is_one_line_and_no_process_is_left(work: Callable[..., None], line: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        on_ranks(work, 2, "gloo", timeout_s=60, collective_timeout_s=2)
    (message,) = caught.value.messages
    assert re.sub(r"\(.+\)", "(*)", message) == line  # what gloo says of it differs from version to version
    assert active_children() == []


def test_the_first_cause_is_the_one_that_is_said() -> None:
    """By how ranks ended, in the order in which they came: what is said of the others follows from the first."""
    late = ("left alone", "RuntimeError: [gloo/x.cc] Connection closed by peer")
    for results, line in (
        ({1: ("did not meet", "could not set hccl up: no device"), 0: ("did not meet", "could not set up: timeout")},
         "rank 1 of 2 could not set hccl up: no device; all ranks were stopped"),
        ({0: ("did not meet", "could not set gloo up: timeout"), 1: ("died", "was ended by SIGKILL")},
         "rank 1 of 2 was ended by SIGKILL; the other ranks were stopped"),
        ({1: ("left alone", "RuntimeError: hccl error 7"), 0: late},
         "a collective of 2 ranks failed on all that came to it (RuntimeError: hccl error 7); all ranks were stopped"),
        ({0: late, 1: ("failed", "failed: ValueError: x")},
         "rank 1 of 2 failed: ValueError: x; the other ranks were stopped"),
        ({}, "rank 0 of 2 gave no answer within 5 s; all ranks were stopped"),
    ):  # fmt: skip
        with pytest.raises(ScenarioError) as caught:
            _raise_the_worst(results, 2, 5.0)
        assert caught.value.messages == (line,)


@pytest.mark.slow
def test_a_set_up_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScenarioError, match=r"^rank \d of 2 could not set nowhere up: .+; all ranks were stopped$"):
        on_ranks(ranks.process_id, 2, "nowhere", timeout_s=60, collective_timeout_s=5)


@pytest.mark.slow
def test_ctrl_c_while_ranks_start_leaves_neither_traceback_nor_process(root: Path, tmp_path: Path) -> None:
    """A terminal sends it to all processes of the group; the ranks are importing torch then."""
    file = tmp_path / "parent_of_ranks.py"
    file.write_text(
        "import sys\nfrom device.ranks.spawn import on_ranks\nfrom tests.device.ranks import process_id\n"
        "if __name__ == '__main__':\n    try:\n        print('starting', flush=True)\n"
        "        on_ranks(process_id, 2, 'gloo')\n"
        "    except KeyboardInterrupt:\n        sys.exit(130)\n",
        encoding="utf-8",
    )
    parent = subprocess.Popen(
        [sys.executable, file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert parent.stdout is not None
    assert parent.stdout.readline() == "starting\n"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and len(_children(parent.pid)) < 2:
        time.sleep(0.02)
    children = _children(parent.pid)
    os.killpg(parent.pid, signal.SIGINT)
    _, err = parent.communicate(timeout=60)
    assert (parent.returncode, err) == (130, "")
    deadline = time.monotonic() + 30  # what cleans up after the ranks ends last, after its parent
    while time.monotonic() < deadline and any(map(_runs, children)):
        time.sleep(0.02)
    assert not any(map(_runs, children))


@pytest.mark.slow
def test_no_rank_hears_ctrl_c(root: Path, tmp_path: Path) -> None:
    """The first one neither, with which Python starts a process that looks after the others."""
    file = tmp_path / "parent_of_ranks.py"
    file.write_text(
        "from device.ranks.spawn import on_ranks\nfrom tests.device.ranks import hears_ctrl_c\n"
        "if __name__ == '__main__':\n    print(on_ranks(hears_ctrl_c, 2, 'gloo'))\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[False, False]\n"


def _children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task/{process}/children")
    return [int(word) for word in tasks.read_text().split()] if tasks.exists() else []


@pytest.mark.slow
def test_ranks_end_when_their_parent_is_killed(root: Path, tmp_path: Path) -> None:
    code = (
        "from device.ranks.spawn import on_ranks\nfrom tests.device.ranks import process_id\n"
        "if __name__ == '__main__':\n    on_ranks(process_id, 2, 'gloo')\n"
    )
    file = tmp_path / "parent_of_ranks.py"
    file.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    parent = subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    children = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(map(_runs, children)):
        time.sleep(0.05)
    assert not any(map(_runs, children))


def _runs(process: int) -> bool:
    """Whether a process is there and no zombie that nobody has buried yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
