"""A model at work: chunks, batches, padding and shared prefixes change nothing; the cache holds what is predicted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from device.backends.cpu import STREAMS, Cpu
from device.run.runner import Bound, check_events, rows_of
from device.run.session import Session, chunks
from device.run.workload import reported_step
from device.weights.weights import RandomCheckpoint
from scenarios import passes
from scenarios.build import build
from scenarios.errors import ScenarioError
from scenarios.finegrained_settings import FinegrainedTp
from scenarios.lowering.parallel import shard
from scenarios.models.model import Model
from scenarios.ops.program import Batch, Block, Group, Op, Program
from scenarios.passes import PASSES
from scenarios.serving.kv_cache import PagedCache
from tests.device.making import (
    ALL_FUSED,
    GLM,
    LLAMA,
    QWEN3,
    REFERENCE,
    SIZES,
    WIDE_REFERENCE,
    plain,
    prompts,
    run,
    session,
)
from tests.scenarios.making import bare, switched


def test_chunks_cut_prompts_where_the_budget_ends() -> None:
    result = list(chunks([[1, 2, 3], [4, 5, 6, 7]], [0, 1], 4))
    assert [(c.numbers, c.contexts, c.tokens) for c in result] == [
        ((0, 1), (0, 1), ((1, 2, 3), (5,))),
        ((1,), (2,), ((6, 7),)),
    ]


@pytest.mark.parametrize("switches", [{}, {**ALL_FUSED, "kv__layout": "paged", "kv__block_size": 16}])
def test_a_chunked_prefill_is_a_prefill(switches: dict[str, object]) -> None:
    whole = run(plain(**switches), options=WIDE_REFERENCE)
    small = switched(bare(**SIZES, engine__max_num_batched_tokens=17), **switches)
    cut = run(small, options=WIDE_REFERENCE)
    assert cut.tokens == whole.tokens
    assert (cut.logits - whole.logits).abs().max().item() < 1e-5


def test_a_shared_prefix_changes_no_token_and_saves_its_blocks() -> None:
    paged = {**ALL_FUSED, "kv__layout": "paged", "kv__block_size": 16}
    shared = {**paged, "kv__prefix_sharing": True, "kv__shared_prefix_tokens": 32}
    apart, common = run(plain(**paged), options=WIDE_REFERENCE), run(plain(**shared), options=WIDE_REFERENCE)
    assert apart.tokens == common.tokens
    assert (apart.logits - common.logits).abs().max().item() < 1e-5

    def used(**switches: object) -> int:
        at_work = session(plain(**switches), options=REFERENCE)
        at_work.prefill(prompts())
        allocator = at_work.cache.allocator
        assert isinstance(allocator, PagedCache)
        return allocator.blocks - allocator.free_blocks

    assert (used(**paged), used(**shared)) == (9, 9 - 2 * 2)  # two requests hold two blocks of the first


def test_a_request_does_not_see_the_others() -> None:
    together = run(plain(), options=WIDE_REFERENCE)
    alone = run(plain(), options=WIDE_REFERENCE, given=prompts()[1:2])
    assert [step[1] for step in together.tokens] == [step[0] for step in alone.tokens]
    # Sums over another batch may round in another order: 8 units in the last place of the largest logit.
    difference = (together.logits[:, 1] - alone.logits[:, 0]).abs().max().item()
    assert difference < 8 * 2**-23 * alone.logits.abs().max().item()


def test_padding_of_a_captured_batch_reaches_no_request() -> None:
    scenario = plain(**ALL_FUSED, graph="aclgraph", kv__layout="paged")
    at_work = session(scenario, LLAMA, REFERENCE)
    tokens, _ = at_work.prefill(prompts())
    at_work.decode(tokens)
    bound = at_work.bound(Batch("decode", (Group(2, 1, 40), Group(1, 1, 33))))
    assert rows_of(bound.program) == 4  # three requests in the graph of four
    assert at_work.cache.spare_slot == at_work.cache.allocator.blocks * 128  # type: ignore[union-attr]


def test_the_ops_that_run_are_the_ops_of_the_program() -> None:
    at_work = session(plain(**ALL_FUSED), options=REFERENCE)
    batch = Batch("prefill", (Group(3, 40, 0),))
    bound: Bound = at_work.bound(batch)
    program = build(at_work.scenario, QWEN3, batch)
    assert [(c.issued.index, c.issued.op.name) for c in bound.calls] == [(i.index, i.op.name) for i in program]


def test_a_wait_for_what_nothing_records_is_refused() -> None:
    op = Op("prefetch", "fetch", (), (), waits=("never",))
    batch = Batch("decode", (Group(1, 1, 1),))
    with pytest.raises(ValueError, match="op 0 fetch waits for 'never', which nothing has recorded"):
        check_events(Program((Block("layers", (op,)),), batch))


@pytest.mark.parametrize(
    ("switches", "line"),
    [
        ({"weight_format": "nz"}, "optimizations.weight_format: FRACTAL_NZ"),
        ({"overlap__prefetch": True, "fusion__attention": True}, "optimizations.overlap.prefetch: torch brings"),
    ],
)
def test_what_a_cpu_lacks_is_refused_by_name(switches: dict[str, object], line: str) -> None:
    at_work: Session = session(plain(**switches))
    with pytest.raises(ScenarioError) as caught:
        at_work.prefill(prompts())
    assert any(message.startswith(f"--backend cpu: {line}") for message in caught.value.messages)


def test_products_that_replicas_share_are_refused() -> None:
    scenario = plain()
    shared = FinegrainedTp(lmhead_tensor_parallel_size=2)
    engine = scenario.engine.model_copy(update={"finegrained_tp_config": shared})
    with pytest.raises(ScenarioError) as caught:
        session(scenario.model_copy(update={"engine": engine}))
    line = "engine.finegrained_tp_config: predicted, but not measured yet; set it to null"
    assert list(caught.value.messages) == [f"--backend cpu: {line}"]


@pytest.mark.parametrize(
    ("model", "ranks", "switch", "wants", "remedy"),
    [
        (QWEN3, 1, {"overlap.streams": 2}, "k_norm.cast wants stream 4", "1"),
        (GLM, 1, {"overlap.shared_expert_stream": True}, "shared.gate_proj wants stream 3", "false"),
        (QWEN3, 2, {"overlap.comm_chunks": 2}, "o_proj.all_reduce.0 wants stream 2", "1"),
        (QWEN3, 2, {"overlap.micro_batches": 2}, "part0.o_proj.all_reduce wants stream 2", "1"),
    ],
    ids=["streams", "shared_expert_stream", "comm_chunks", "micro_batches"],
)
def test_a_second_stream_is_refused_by_its_switch_with_the_remedy(
    model: Model, ranks: int, switch: dict[str, object], wants: str, remedy: str
) -> None:
    ((name, value),) = switch.items()
    scenario = plain(model, **{name.replace(".", "__"): value})
    scenario = scenario.model_copy(
        update={"engine": scenario.engine.model_copy(update={"tensor_parallel_size": ranks})}
    )
    part = shard(model, ranks)
    (line,) = Cpu().lacks(build(scenario, part, Batch("decode", (Group(3, 1, 40),))), part)
    path = f"optimizations.{name}"
    assert line == f"{path}: {wants}, and a CPU has one; set {path} to {remedy}"


def test_every_stream_of_a_program_has_its_switch() -> None:
    """Whatever the passes put on a stream, a CPU names the switch that did."""
    source = "\n".join(file.read_text() for file in Path(passes.__file__).parent.glob("*.py"))
    streams = {int(n) for result in re.findall(r"STREAM(?:, \w+)? = (.+)", source) for n in result.split(",")}
    assert streams == set(STREAMS)
    assert all(item in PASSES for item in STREAMS.values())


def test_without_a_compiler_fusions_that_torch_lacks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device.backends.cpu.compiler", lambda: None)
    with pytest.raises(ScenarioError) as caught:
        session(plain(**ALL_FUSED)).prefill(prompts())
    lacking = [f"optimizations.fusion.{name}" for name in ("add_rms_norm", "rope", "swiglu")]
    assert sorted(message.split(": ")[1] for message in caught.value.messages) == lacking
    with pytest.raises(ScenarioError) as caught:  # a graph too, although the prefill before it is eager
        reported_step(session(plain(**ALL_FUSED, graph="ge_graph")))
    assert sorted(message.split(": ")[1] for message in caught.value.messages) == [*lacking, "optimizations.graph"]


def test_sampling_by_top_k_and_top_p_is_seeded_and_stays_among_the_likely() -> None:
    scenario = switched(bare(**SIZES, workload__sampling="top_k_top_p"))
    first, second = run(scenario, options=REFERENCE), run(scenario, options=REFERENCE)
    assert first.tokens == second.tokens
    chosen = torch.tensor(first.tokens[0])
    likely = first.logits[0].topk(50, -1).indices
    assert (likely == chosen[:, None]).any(-1).all()


class TwoStreams(Cpu):
    """A CPU that pretends to have a second stream and notes what is issued where."""

    streams = 2

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._current = 0

    @contextmanager
    def stream(self, number: int) -> Iterator[None]:  # type: ignore[override]
        self._current = number
        yield
        self._current = 0

    def record(self) -> str:  # type: ignore[override]
        self.notes.append(f"record on {self._current}")
        return f"event of {self._current}"

    def wait(self, event: object) -> None:
        self.notes.append(f"{self._current} waits for {event}")


def test_streams_wait_for_each_other_as_the_program_says() -> None:
    scenario = plain(**ALL_FUSED, overlap__prefetch=True)
    backend = TwoStreams()
    at_work = Session(scenario, QWEN3, backend, RandomCheckpoint(QWEN3, 0), options=REFERENCE)
    at_work.prefill(prompts())
    # Each layer: the fetches start behind the packed projection, and each later product waits for its own.
    layer = [
        "record on 0",
        *["1 waits for event of 0", "record on 1"] * 3,
        *["0 waits for event of 1"] * 3,
    ]
    # The second stream starts behind what was issued before the step, and the first ends behind the second.
    assert backend.notes[:2] == ["record on 0", *layer[:1]]
    begun = backend.notes.index("1 waits for event of 0")
    assert backend.notes[1:begun] + backend.notes[begun + 1 : -2] == layer * QWEN3.layers
    assert backend.notes[-2:] == ["record on 1", "0 waits for event of 1"]
