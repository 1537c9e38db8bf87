"""What is issued to the device, call by call, on the dry runtime: no number is computed and no time is meant."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from tests.npu_dry.conftest import Dry, Ran
from tests.npu_dry.dry import CAPTURED, COMPILED, EAGER
from tests.npu_dry.issued import compare
from tests.npu_dry.order import broken, over_before

HCCL = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter"}
#: torch_npu's flag on which a captured attention waits, bytes; it allocates one for each itself.
FLAG_BYTES = 32


@pytest.fixture(scope="module")
def steps(dry: Dry) -> Ran:
    return dry("steps")


@pytest.fixture(scope="module")
def eager(steps: Ran) -> Ran:
    return Ran(steps.answer["eager"], steps.trace)


@pytest.fixture(scope="module")
def captured(steps: Ran) -> Ran:
    return Ran(steps.answer["aclgraph"], steps.trace)


@pytest.mark.parametrize("case", EAGER)
def test_an_eager_step_issues_the_ops_of_the_program_in_order(eager: Ran, case: str) -> None:
    result = eager.answer[case]
    calls = eager.between(*result["marks"][0])
    names = [call["name"] for call in calls if call["k"] == "op"]
    ops = [op for op in result["ops"] if op["block"] != "prepare"]
    compare(ops, names[names.index("aclnnEmbedding") :])
    assert not [call for call in calls if call["k"] in ("sync_stream", "sync_device", "malloc")]


def test_prefetches_run_on_their_own_stream_and_products_wait_for_them(eager: Ran) -> None:
    result = eager.answer["small-qwen3, prefetch"]
    calls = eager.between(*result["marks"][0])
    prefetches = [call for call in calls if call["k"] == "cmo"]
    assert len(prefetches) == sum(op["kind"] == "prefetch" for op in result["ops"]) == 6
    main = {call["stream"] for call in calls if call["k"] == "op"}
    assert len(main) == 1
    assert {call["stream"] for call in prefetches} & main == set()
    recorded: set[int] = set()
    waits = 0
    for call in calls:
        if call["k"] == "event_record":
            recorded.add(call["event"])
        elif call["k"] == "event_wait":
            assert call["event"] in recorded  # nobody waits for what has not been recorded
            waits += call["stream"] in main
    assert waits == len(prefetches) + 1  # and the end of the step, for the whole stream


@pytest.mark.parametrize("case", CAPTURED)
def test_a_capture_holds_the_captured_ops_in_order(captured: Ran, case: str) -> None:
    result = captured.answer[case]
    inside = captured.capture(result["marks"])
    names = [call["name"] for call in inside if call["k"] == "op"]
    compare([op for op in result["ops"] if op["captured"]], names)
    assert result["forms"].count("captured") == 1


SIDE = ("small-qwen3, prefetch", "small-qwen3, keys beside", "small-glm, shared beside", "small-lite, shared beside")


@pytest.mark.parametrize("case", SIDE)
def test_streams_are_captured_in_an_order_that_nothing_can_break(captured: Ran, case: str) -> None:
    result = captured.answer[case]
    ops = [op for op in result["ops"] if op["captured"]]
    inside = captured.capture(result["marks"])
    assert len({call["stream"] for call in inside if call["k"] in ("op", "cmo")}) == 2
    assert broken(ops, inside) == []


@pytest.mark.parametrize("case", [case for case in EAGER if case in SIDE])
def test_streams_run_in_an_order_that_nothing_can_break(eager: Ran, case: str) -> None:
    result = eager.answer[case]
    calls = eager.between(*result["marks"][0])
    start = next(i for i, call in enumerate(calls) if call.get("name") == "aclnnEmbedding")
    ops = [op for op in result["ops"] if op["block"] != "prepare"]
    assert broken(ops[:-1], calls[start:]) == []  # the last is aclnnArgMax's own cast
    blind = [call for call in calls[start:] if call["k"] != "event_wait"]
    assert broken(ops[:-1], blind) or "prefetch" in case  # without its waits a stream may outrun the other


@pytest.mark.parametrize("case", CAPTURED)
def test_a_capture_neither_waits_for_the_device_nor_allocates(captured: Ran, case: str) -> None:
    inside = captured.capture(captured.answer[case]["marks"])
    assert not [call for call in inside if call["k"] in ("sync_stream", "sync_device", "memcpy")]
    waits = [call for call in inside if call["k"] == "value_wait"]
    assert [call["bytes"] for call in inside if call["k"] == "malloc"] == [FLAG_BYTES] * len(waits)


def test_prefetches_are_captured_on_their_stream(captured: Ran) -> None:
    inside = captured.capture(captured.answer["small-qwen3, prefetch"]["marks"])
    prefetches = [call for call in inside if call["k"] == "cmo"]
    main = {call["stream"] for call in inside if call["k"] == "op"}
    assert len(prefetches) == 2
    assert all(call["cap"] and call["stream"] not in main for call in prefetches)


@pytest.mark.parametrize("case", CAPTURED)
def test_a_capture_comes_after_the_same_calls_as_they_are(captured: Ran, case: str) -> None:
    """What a first call makes (handles, workspaces, kernels that are loaded) must not be made inside a capture."""
    marks = captured.answer[case]["marks"]
    calls = captured.between(*marks[0])
    start = next(place for place, call in enumerate(calls) if call["k"] == "capture_begin")
    before = [call["name"] for call in calls[:start] if call["k"] == "op"]
    inside = [call["name"] for call in captured.capture(marks) if call["k"] == "op"]
    assert before[-len(inside) :] == inside


@pytest.mark.parametrize("case", CAPTURED)
def test_three_steps_are_one_capture_and_three_replays(captured: Ran, case: str) -> None:
    first, *later = captured.answer[case]["marks"]
    assert [sum(c["k"] == "capture_begin" for c in captured.between(*m)) for m in (first, *later)] == [1, 0, 0]
    assert [sum(c["k"] == "replay" for c in captured.between(*m)) for m in (first, *later)] == [1, 1, 1]


@pytest.mark.parametrize("case", CAPTURED)
def test_each_attention_gets_its_lengths_once_a_replay(captured: Ran, case: str) -> None:
    """One release for each wait and replay: a missing one would hang a device."""
    result = captured.answer[case]
    waits = [call["addr"] for call in captured.capture(result["marks"]) if call["k"] == "value_wait"]
    assert len(waits) == sum(op["kind"] == "attention" for op in result["ops"]) == 2
    for number, mark in enumerate(result["marks"]):
        calls = captured.between(*mark)
        released = [c["addr"] for c in calls if c["k"] == "value_write" and not c["cap"] and c["value"] == 1]
        assert released == waits
        updates = [call for call in calls if call["k"] == "op" and call["upd"]]
        keys = [[arg["ints"] for arg in call["args"] if "ints" in arg] for call in updates]
        assert len(keys) == 2
        assert all([41 + number] * 4 in ints for ints in keys)


@pytest.mark.parametrize("case", CAPTURED)
def test_no_captured_copy_is_as_large_as_the_cache(captured: Ran, case: str) -> None:
    _no_large_copies(captured, captured.answer[case])


@pytest.fixture(scope="module")
def compiled(dry: Dry) -> Ran:
    return dry("npugraph_ex")


@pytest.mark.parametrize("case", COMPILED)
def test_a_compiled_graph_copies_no_cache_and_makes_no_mask(compiled: Ran, case: str) -> None:
    result = compiled.answer[case]
    _no_large_copies(compiled, result)
    calls = compiled.between(result["marks"][0][0], result["marks"][-1][1])
    assert not [call for call in calls if call["k"] == "op" and call["cap"] and "Triu" in call["name"]]
    assert result["forms"].count("compiled") == 1


@pytest.mark.parametrize("case", COMPILED)
def test_a_compiled_graph_holds_the_captured_ops_in_order(compiled: Ran, case: str) -> None:
    result = compiled.answer[case]
    calls = compiled.between(*result["marks"][1])
    last = max(place for place, call in enumerate(calls) if call["k"] == "capture_begin")
    names = [call["name"] for call in calls[last:] if call["k"] == "op" and call["cap"]]
    compare([op for op in result["ops"] if op["captured"]], names)


@pytest.mark.parametrize("case", COMPILED)
def test_a_compiled_graph_serves_all_steps_from_the_third_on_with_their_lengths(compiled: Ran, case: str) -> None:
    """The first is compiled as it is, the second with lengths that may change."""
    marks = compiled.answer[case]["marks"]
    steps = [compiled.between(*mark) for mark in marks]
    assert [any(call["k"] == "capture_begin" for call in calls) for calls in steps] == [True, True, False, False]
    for number, calls in enumerate(steps[2:], 2):
        assert [call["k"] for call in calls].count("replay") == 1
        assert [call["k"] for call in calls].count("upd_begin") == 2
        ints = [arg["ints"] for call in calls if call["k"] == "op" for arg in call["args"] if "ints" in arg]
        assert ints.count([41 + number] * 4) == 2


def _no_large_copies(ran: Ran, result: dict[str, Any]) -> None:
    cache = prod(result["cache_shape"])
    inside = [call for call in ran.between(result["marks"][0][0], result["marks"][-1][1]) if call["k"] == "op"]
    copies = [call for call in inside if call["cap"] and "Copy" in call["name"]]
    assert copies  # there are copies, of slices, and the check below sees their shapes
    assert not [call for call in copies if max(prod(arg["shape"]) for arg in call["args"] if "shape" in arg) >= cache]


def test_a_host_read_in_a_capture_is_refused_by_the_runtime(captured: Ran) -> None:
    assert "107027" in captured.answer["host_read"]


def test_the_profiler_writes_its_host_side(captured: Ran) -> None:
    files = captured.answer["profile"]
    assert any(name.startswith("profiler_info") for name in files), files


@pytest.fixture(scope="module")
def ranks(dry: Dry) -> list[Ran]:
    return dry.ranks("ranks", 2)


@pytest.mark.slow
def test_two_ranks_issue_the_same_collectives_in_the_order_of_the_program(ranks: list[Ran]) -> None:
    issued = []
    for ran in ranks:
        calls = [call for call in ran.between(*ran.answer["marks"]["eager"]) if call["k"] == "hccl"]
        issued.append([(call["name"], call["bytes"], call["ranks"]) for call in calls])
        assert [call["name"] for call in calls] == [HCCL[kind] for kind, _ in ran.answer["collectives"]]
    assert issued[0] == issued[1] != []


def test_collectives_are_captured_with_the_step(ranks: list[Ran]) -> None:
    for ran in ranks:
        inside = [call for call in ran.capture([ran.answer["marks"]["aclgraph"]]) if call["k"] == "hccl"]
        wanted = [HCCL[kind] for kind, captured in ran.answer["collectives"] if captured]
        assert [call["name"] for call in inside] == wanted != []
        assert all(call["cap"] for call in inside)


@pytest.mark.parametrize("graph", ["eager", "aclgraph"])
def test_a_piece_is_summed_up_beside_the_product_of_the_next(ranks: list[Ran], graph: str) -> None:
    for ran in ranks:
        marks = ran.answer["marks"][f"pieces {graph}"]
        calls = ran.between(*marks) if graph == "eager" else ran.capture([marks])
        over = over_before(calls)
        sums = [at for at in over if calls[at]["k"] == "hccl" and calls[at]["name"] == "AllReduce"]
        products = [at for at in over if "Matmul" in calls[at].get("name", "")]
        norms = [at for at in over if "AddRmsNorm" in calls[at].get("name", "")]
        pairs = [(sums[i], sums[i + 1]) for i in range(len(sums) % 2, len(sums), 2)]  # one may be the embedding's
        assert len(pairs) == 2 * 2  # of each layer that behind attention and that of the MLP
        for first, second in pairs:
            between = [at for at in products if first < at < second]
            assert len(between) == 1
            assert first not in over[between[0]]  # the product does not wait for the sum
            assert between[0] in over[second]  # its own sum waits for it
            behind = next(at for at in norms if at > second)
            assert {first, second} <= over[behind]  # and what reads them waits for both


def test_a_product_with_its_all_reduce_is_one_operator_on_both_ranks(ranks: list[Ran]) -> None:
    issued = [[c["name"] for c in ran.between(*ran.answer["fused"]) if c["k"] == "op"] for ran in ranks]
    assert issued[0] == issued[1]
    assert [name.startswith("aclnnMatmulAllReduce") for name in issued[0]] == [True]
