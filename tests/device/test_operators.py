"""Operators on numbers that can be checked by hand, and that every kind a Program of one rank may contain has one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from device.operators import attention, norms, quant, sampling
from device.operators.kernel import fitted
from device.operators.reference import REFERENCE
from device.step.step import Layout
from scenarios.errors import ScenarioError
from tests.scenarios.making import Drawn, cases, program


@settings(max_examples=150)
@given(cases())
def test_every_kind_of_a_program_has_a_reference(drawn: Drawn) -> None:
    result, model = drawn
    try:
        built = program(result, model)
    except ScenarioError:
        return
    kinds = {op.kind for block in built.blocks for whole in block.ops for op in (whole, *whole.parts)}
    assert kinds - {"fused_elementwise"} <= set(REFERENCE)  # a compiled run of ops is walked part by part


def test_a_value_is_read_with_other_shapes() -> None:
    x = torch.arange(12).view(4, 3)
    assert fitted(x, (2, 2, 3)).tolist() == x.reshape(2, 2, 3).tolist()
    assert fitted(x, (2, 2)).tolist() == [[0, 1], [3, 4]]  # without padding of rows and columns
    with pytest.raises(ValueError, match=r"\[4, 3\] cannot be read as \[5, 3\]"):
        fitted(x, (5, 3))


def test_rms_norm_by_hand() -> None:
    y, rstd = norms.rms_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([2.0, 10.0]), 0.0)
    assert rstd.item() == pytest.approx(12.5**-0.5)
    assert y.tolist() == [pytest.approx([6 * 12.5**-0.5, 40 * 12.5**-0.5])]
    y, _, total = norms.add_rms_norm(torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 3.0]]), torch.ones(2), 0.0)
    assert total.tolist() == [[3.0, 4.0]]


def test_a_quarter_turn_swaps_the_halves() -> None:
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    assert norms.rotate(x, torch.zeros(1, 4), torch.ones(1, 4)).tolist() == [[[-3.0, -4.0, 1.0, 2.0]]]
    assert norms.rotate(x, torch.ones(1, 4), torch.zeros(1, 4)).tolist() == x.tolist()


def test_rows_are_quantised_by_their_greatest() -> None:
    integers, scale = quant.quantise_rows(torch.tensor([[1.0, -2.54], [0.0, 0.0]]))
    assert integers.tolist() == [[50, -127], [0, 0]]
    assert scale[0].item() == pytest.approx(0.02)
    assert quant.quantise_by(torch.tensor([5.0, 0.1]), torch.tensor(0.01)).tolist() == [127, 10]  # cut off, kept


def test_int4_packs_in_pairs() -> None:
    x = torch.tensor([[-7, 7, 0, -1], [3, -4, 5, -6]], dtype=torch.int8)
    packed = quant.pack_int4(x)
    assert packed.tolist() == [[0x79, 0xF0], [0xC3, 0xA5]]
    assert quant.unpack_int4(packed).tolist() == x.tolist()
    with pytest.raises(ValueError, match="rows of 3"):
        quant.pack_int4(x[:, :3])


def test_integer_products_are_exact_at_any_depth() -> None:
    x = torch.full((1, 40_000), 127, dtype=torch.int8)
    assert quant.exact_product(x, x).item() == 40_000 * 127 * 127  # beyond what float32 counts one by one


def test_top_k_and_top_p() -> None:
    probabilities = torch.tensor([[0.05, 0.5, 0.15, 0.3]])
    values, order = probabilities.log().sort(-1)

    def kept(k: int, p: float) -> list[int]:
        return torch.isfinite(sampling.top_k_top_p(values, order, k, p))[0].nonzero().flatten().tolist()

    assert kept(4, 1.0) == [0, 1, 2, 3]
    assert kept(2, 1.0) == [1, 3]
    assert kept(4, 0.7) == [1, 3]  # 0.5 is not enough, 0.8 is
    assert kept(4, 0.01) == [1]
    assert sampling.top_k_top_p(values, order, 4, 1.0)[0, 1].item() == pytest.approx(torch.tensor(0.5).log().item())


def test_queries_of_several_lengths_are_padded_and_come_back() -> None:
    layout = Layout((0, 1), (0, 1), (1, 3), (5, 0), rows=6)
    x = torch.arange(6 * 2).view(6, 2, 1).float()
    padded = attention.by_request(x, layout)
    assert padded.shape == (2, 2, 3, 1)
    assert padded[0, 0, :, 0].tolist() == [0, 0, 0]  # repeats of its only token
    assert padded[1, 0, :, 0].tolist() == [2, 4, 6]
    back = attention.by_token(padded, layout)
    assert back[:4].tolist() == x[:4].tolist()
    assert back[4:].tolist() == torch.zeros(2, 2, 1).tolist()


def test_a_cache_is_read_by_rows_or_through_its_block_table() -> None:
    layout = Layout((3, 1), (3, 1), (1, 1), (2, 1), rows=2)
    rows = torch.arange(4 * 5).view(4, 5, 1, 1)
    assert attention.cached(rows, layout, None).flatten(1).tolist() == [[15, 16, 17], [5, 6, 7]]
    table = torch.tensor([[2, 0], [1, 3]], dtype=torch.int32)
    blocks = torch.arange(4 * 2).view(4, 2, 1, 1)
    assert attention.cached(blocks, layout, table).flatten(1).tolist() == [[4, 5, 0], [2, 3, 6]]
