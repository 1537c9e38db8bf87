"""Cores of vector kernels, as CANN's published tiling code decides, against block counts that profilers recorded."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import pytest

from sim.kernel.tiling import cache, elementwise, layout, moe, norms, quant, reduce, rope, select
from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread, by_heads_first, by_rows
from sim.kernel.tiling.swi_glu import swi_glu

#: 910B2 and the A3 die with 24 cube cores; the A3 die with 20.
A2 = TilingChip(24, 48, 192 << 10, 512 << 10, 64 << 10, 64 << 10, 128 << 10, 192 << 20)
A3_20 = TilingChip(20, 40, 192 << 10, 512 << 10, 64 << 10, 64 << 10, 128 << 10, 192 << 20)

#: Measured block counts, on 48 vector cores: 910B2 under TorchAir (kernels_910b2.csv), a small CNN (profiles/).
ON_48 = [
    # SwiGlu of DeepSeek-V3 and Qwen3-32B decode and prefill on an A3 die: counts stated in the error study.
    (swi_glu(1, 4096, A2), 1),
    (swi_glu(2, 4096, A2), 1),
    (swi_glu(8, 4608, A2), 4),
    (swi_glu(16, 3200, A2), 6),
    (swi_glu(32, 4096, A2), 14),
    (swi_glu(96, 4096, A2), 40),
    (swi_glu(256, 4096, A2), 48),
    # RmsNorm and InplaceAddRmsNorm of 1, 4, 16, 64 rows: two rows a core for 64, hence 32 cores.
    (norms.rms_norm(1, 1024, A2), 1),
    (norms.rms_norm(4, 1024, A2), 4),
    (norms.rms_norm(16, 1024, A2), 16),
    (norms.rms_norm(64, 1024, A2), 32),
    (rope.apply_rotary_pos_emb(16, 18, 128, A2), 16),
    (rope.apply_rotary_pos_emb(64, 18, 128, A2), 32),
    # Cache write of 2 heads for 1, 4, 16, 64 requests.
    (cache.scatter(1, 2, 128, A2), 2),
    (cache.scatter(4, 2, 128, A2), 8),
    (cache.scatter(16, 2, 128, A2), 32),
    (cache.scatter(64, 2, 128, A2), 43),
    # Swish x Mul of the compiler, computed in float: 1024 elements a core at least.
    (elementwise.elementwise(3072, 4, A2), 3),
    (elementwise.elementwise(4 * 3072, 4, A2), 12),
    (elementwise.elementwise(16 * 3072, 4, A2), 48),
    # Float [4096] times a scalar; INT64 to the same; an 11x11 filter; float to INT64; Relu of 32 x 4096.
    (elementwise.elementwise(4096, 4, A2), 4),
    (elementwise.elementwise(1000, 4, A2), 1),
    (elementwise.elementwise(64 * 3 * 11 * 11, 4, A2), 23),
    (elementwise.elementwise(1024, 8, A2), 2),
    (elementwise.elementwise(32 * 4096, 4, A2), 47),
    # Greater [1, 1024] > [64, 1] into BOOL; Mul [192, 64] x [192, 1]; BroadcastTo [1, 64] to [192, 64].
    (elementwise.broadcast((64, 1024), 1, A2), 32),
    (elementwise.broadcast((192, 64), 4, A2), 48),
    (elementwise.broadcast((3, 64), 8, A2), 1),
    # Splits of packed QKV, and a concatenation.
    (layout.split_v(1, 2560, 2, A2), 1),
    (layout.split_v(16, 2560, 2, A2), 1),
    (layout.split_v(64, 2560, 2, A2), 2),
    (layout.split_v(192, 128, 2, A2), 1),
    (layout.concat_d(192, 128, 4, A2), 1),
    (layout.tensor_move(3840 * 1152, 2, A2), 48),
    (layout.transpose(32 * 5, 8, A2), 48),
    (layout.trans_data(32, 12, 27 * 27, 16, A2), 32),
    (layout.trans_data(1, 72, 27 * 27, 16, A2), 36),
    (select.arg_max(1, 103424, A2), 1),
    (select.arg_max(16, 103424, A2), 16),
    (select.arg_max(64, 103424, A2), 32),
    (select.gather(64, 1024, A2), 32),
    (select.gather(1, 64 * 16, A2), 47),
    (select.gather(1, 64 * 24, A2), 48),
    (select.gather(1, 2 * 24, A2), 1),
    (select.gather(1, 32 * 16, A2), 1),
    (select.gather(1, 32 * 24, A2), 48),
    (select.gather(1, 896, A2), 48),
    (elementwise.broadcast((2, 1024), 8, A2), 32),
    (elementwise.broadcast((32, 1024), 8, A2), 32),
    (reduce.reduce(1, 32, 1000, A2), 42),
    (reduce.reduce(1, 32, 4096, A2), 47),
    (reduce.reduce(256, 32 * 169, 1, A2), 43),
    (reduce.softmax(32, 1000, A2), 32),
]

#: The same on 40 vector cores: Qwen3-8B decode (seed_workload/) and Qwen3-0.6B training (profiles/), A3 dies of 20.
ON_40 = [
    (norms.rms_norm(1, 4096, A3_20), 1),
    (norms.rms_norm(32, 128, A3_20), 32),
    (norms.rms_norm(8, 128, A3_20), 8),
    (rope.apply_rotary_pos_emb(1, 40, 128, A3_20), 1),
    (cache.scatter_nd_update(1, 1024, A3_20), 40),
    (elementwise.elementwise(12288, 4, A3_20), 12),
    (layout.strided_slice_d(12288), 1),
    (select.gather(1, 4096, A3_20), 40),
    (select.gather_elements(1, A3_20), 1),
    (select.sort(1, 4096, A3_20), 1),
    (swi_glu(4096, 6144, A3_20), 40),
    (norms.rms_norm(4096 * 16, 128, A3_20), 40),
    (rope.rotary_mul(4096, 16, 128, A3_20), 40),
    (elementwise.elementwise(4096, 2, A3_20), 2),
    (elementwise.elementwise(4096, 8, A3_20), 8),
    (elementwise.broadcast((4096, 64), 4, A3_20), 40),
    (layout.concat_d(4096 * 8, 512, 2, A3_20), 38),
    (layout.concat_d(4096, 128, 4, A3_20), 22),
    (layout.slice_((4, 24), (4, 1), 4, A3_20), 1),
    (layout.slice_((4096, 8, 512), (4096, 8, 128), 2, A3_20), 40),
]


@pytest.mark.parametrize(("spread", "blocks"), ON_48 + ON_40)
def test_a_kernel_starts_on_as_many_cores_as_the_profiler_saw(spread: Spread, blocks: int) -> None:
    assert spread.started == blocks


def test_rows_are_dealt_in_equal_shares() -> None:
    assert by_rows(64, 10, 48) == Spread(started=32, busy=32, rows=2, elements=20)
    assert by_heads_first(64, 10, 48) == Spread(started=48, busy=48, rows=2, elements=20)
    assert by_rows(1, 10, 48) == Spread(started=1, busy=1, rows=1, elements=10)


def test_ascend_quant_starts_on_all_cores_and_leaves_most_idle() -> None:
    one_row = quant.ascend_quant_v2(1, 7168, A2)
    assert one_row == Spread(started=48, busy=28, rows=1, elements=256)
    # Eight rows alone busy 8 cores, 3 lines of a row 3, both together 24.
    assert quant.ascend_quant_v2(8, 768, A2) == Spread(started=48, busy=24, rows=1, elements=256)


def test_dynamic_quant_fills_a_core_before_it_takes_the_next() -> None:
    # 192 KiB of UB holds 16320 elements: five rows of 2944, of which 32 rows make six whole tiles.
    assert quant.dynamic_quant(32, 2944, A2).started == 6
    assert quant.dynamic_quant(8, 2304, A2).started == 1
    assert quant.dynamic_quant(32, 7168, A2).started == 16
    assert quant.dynamic_quant(16, 5120, A2) == Spread(started=6, busy=6, rows=3, elements=15360)
    assert quant.dynamic_quant(256, 20000, A2).started == 48


def test_old_arg_max_gives_eight_rows_to_a_core() -> None:
    assert select.arg_max(16, 151936, A2, rows_multiple=8) == Spread(2, 2, 8, 8 * 151936)
    assert select.arg_max(6, 151936, A2, rows_multiple=8).elements == 6 * 151936


def test_interleaved_rope_deals_heads_where_requests_are_few() -> None:
    assert rope.interleave_rope(4, 16, 1, 64, A2) == Spread(16, 16, 1, 4 * 64)
    assert rope.interleave_rope(64, 16, 1, 64, A2).started == 32
    assert rope.interleave_rope(32, 32, 1, 64, A2).started == 8


def test_the_variant_of_a_norm_follows_rows_and_columns() -> None:
    assert norms.rms_norm_mode(128) == "many_rows"
    assert norms.rms_norm_mode(5120) == "normal"
    assert norms.rms_norm_mode(16384) == "cut_row"
    assert norms.add_rms_norm_mode(16, 5120, A2) == "one_row"
    assert norms.add_rms_norm_mode(768, 5120, A2) == "normal"


def test_routing_starts_on_all_cores_and_sorts_on_few() -> None:
    assert moe.moe_init_routing(1, 8, 2048, A2).started == 48
    assert moe.moe_init_routing_sort_cores(1, 8, A2) == 1
    assert moe.moe_init_routing_sort_cores(4096, 8, A2) == 16
    assert moe.moe_finalize_routing(64, 8, 2048, A2).started == 32


def test_tokens_of_experts_are_copied_by_rank_or_by_token() -> None:
    # 512 tokens of 16 ranks: 32 of each on one core. 64 ranks: two, so 16 tokens, on 32 cores.
    assert moe.moe_re_routing(16, 512, 7168, A2) == Spread(16, 16, 32, 32 * 7168)
    assert moe.moe_re_routing(64, 512, 7168, A2) == Spread(32, 32, 16, 16 * 7168)
    assert moe.moe_token_permute(20, 8, 2048, A2) == Spread(48, 20, 1, 8 * 2048)
    assert moe.moe_token_permute(64, 8, 2048, A2) == Spread(48, 48, 2, 2 * 8 * 2048)
    assert moe.moe_distribute(3, 8, 7168, A2) == Spread(48, 24, 1, 7168)
    assert moe.moe_distribute(128, 8, 7168, A2) == Spread(48, 48, 22, 22 * 7168)


@dataclass(frozen=True)
class Row:
    """A kernel of a profile: op type, shapes of inputs and first output, types, blocks seen, and where."""

    op: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    bytes: tuple[int, ...]
    formats: tuple[str, ...]
    blocks: int
    where: str


BYTES = {"BOOL": 1, "UINT8": 1, "INT8": 1, "FLOAT16": 2, "DT_BF16": 2, "INT64": 8, "DOUBLE": 8, "UINT64": 8}
ELEMENTWISE = (
    "Abs Add Cast Cos Equal Exp Greater GreaterEqual Less Log LogicalNot LogicalOr Mul Muls NotEqual OnesLike Pows "
    "RealDiv Relu ReluGrad SelectV2 Sin Sub Tile ZerosLike Fill BroadcastTo AutomaticBufferFusionOp"
)


def expected(row: Row, chip: TilingChip) -> Spread | None:
    """The cores that the rules say, or None for an op whose tiling is not transcribed."""
    first, out, size = (row.inputs or ((),))[0], row.output, (row.bytes or (4,))[0]
    if row.op in ELEMENTWISE.split():
        return of_elements(row, chip)
    if row.op in ("RmsNorm", "InplaceAddRmsNorm"):
        return norms.rms_norm(prod(first[:-1]) if len(row.inputs[-1]) == 1 else first[0], first[-1], chip)
    if row.op == "ApplyRotaryPosEmb":
        return rope.apply_rotary_pos_emb(first[0] * first[1], first[2], first[3], chip)
    if row.op == "RotaryPositionEmbedding":
        return rope.rotary_mul(first[0] * first[1], first[2], first[3], chip)
    if row.op == "Scatter":
        return cache.scatter(first[0], first[1], first[3], chip)
    if row.op == "SwiGlu":
        return swi_glu(first[0], first[1], chip)
    if row.op == "SplitVD":
        return layout.split_v(prod(first[:-1]), first[-1], size, chip)
    if row.op in ("ConcatV2D", "ConcatD"):
        return layout.concat_d(prod(out[:-1]), out[-1], size, chip)
    if row.op == "Slice":
        return layout.slice_(first, out, size, chip)
    if row.op == "TensorMove":
        return layout.tensor_move(prod(first), size, chip)
    if row.op == "Transpose":
        return layout.transpose(prod(first), size, chip)
    if row.op == "TransData":
        return of_formats(first, out, row.formats, chip)
    if row.op in ("ArgMaxV2", "ArgMaxWithValue"):
        return select.arg_max(prod(first[:-1]), first[-1], chip)
    if row.op == "GatherV2":
        return select.gather(max(1, prod(row.inputs[1])), prod(first[1:]), chip)
    if row.op == "GatherElementsV2":
        return select.gather_elements(prod(row.inputs[1]), chip)
    if row.op == "Sort":
        return select.sort(prod(first[:-1]), first[-1], chip)
    if row.op == "LogSoftmaxV2":
        return reduce.softmax(first[0], first[1], chip)
    if row.op == "ReduceSum":
        return of_sums(first, out, chip)
    if row.op in ("Range", "MemSet", "Index", "IndexPutV2"):
        return elementwise.on_every_core(prod(out) if out else 1 << 20, chip)
    return None


def of_elements(row: Row, chip: TilingChip) -> Spread:
    """Elementwise where all inputs are alike or scalars, else broadcast with the axes joined that broadcast alike."""
    out = row.output
    widest = max((4 if row.op in ("AutomaticBufferFusionOp", "Muls") else 2, *row.bytes))
    if row.op in ("BroadcastTo", "Tile"):
        shapes, widest = [row.inputs[0]], max(2, row.bytes[0])
    elif row.op in ("Fill", "OnesLike", "ZerosLike"):
        shapes, widest = [], max(2, row.bytes[-1])
    else:
        shapes = [shape for shape in row.inputs if prod(shape) > 1]
    if all(prod(shape) in (1, prod(out)) for shape in shapes):
        return elementwise.elementwise(prod(out) if out else 1, widest, chip)
    padded = [(1,) * (len(out) - len(shape)) + shape for shape in shapes]
    joined: list[int] = []
    last: tuple[bool, ...] = ()
    for axis, size in enumerate(out):
        if size == 1:
            continue
        kind = tuple(shape[axis] == 1 for shape in padded)
        if joined and kind == last:
            joined[-1] *= size
        else:
            joined.append(size)
        last = kind
    return elementwise.broadcast(joined, row.bytes[-1], chip)


def of_formats(first: tuple[int, ...], out: tuple[int, ...], formats: tuple[str, ...], chip: TilingChip) -> Spread:
    """TransData: NCHW to or from NC1HWC0, else another pair of formats."""
    blocked = first if len(first) == 5 else out
    if len(blocked) == 5 and len(first) + len(out) == 9:
        return layout.trans_data(blocked[0], blocked[1], blocked[2] * blocked[3], blocked[4], chip)
    return layout.trans_data_other(prod(first), chip)


def of_sums(first: tuple[int, ...], out: tuple[int, ...], chip: TilingChip) -> Spread:
    """ReduceSum of the CNN over batch (and space), or of all to one."""
    kept = prod(out)
    if kept == 1:
        return reduce.reduce(1, prod(first), 1, chip)
    if len(first) == 3 and first[1] == kept:
        return reduce.reduce(kept, prod(first) // kept, 1, chip)
    return reduce.reduce(1, prod(first) // kept, kept, chip)


def shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """'2,3;;4' as ((2, 3), (), (4,))."""
    parts = text.strip('"').split(";")
    return tuple(tuple(int(size) for size in part.split(",")) if part else () for part in parts)


def sizes(*types: str) -> tuple[int, ...]:
    """Bytes of an element, of types joined by ';'."""
    return tuple(BYTES.get(name, 4) for text in types for name in text.split(";") if name)


def rows_of_910b2(folder: Path) -> Iterator[Row]:
    """The unique kernels of kernels_910b2.csv with a block count."""
    with (folder / "kernels_910b2.csv").open(newline="") as file:
        for number, line in enumerate(csv.DictReader(file), 2):
            if not line["block_num"] or not line["input_shapes"]:
                continue
            output = shapes(line["output_shapes"])[0] if line["output_shapes"] else ()
            into = {"to FLOAT16": 2, "to FLOAT": 4, "to INT64": 8, "BOOL out": 1}
            result = next((size for words, size in into.items() if words in line["note"]), sizes(line["dtype"])[0])
            yield Row(
                line["op_type"],
                shapes(line["input_shapes"]),
                output,
                (*sizes(line["dtype"]), result),
                tuple(line["input_formats"].split(";")),
                int(line["block_num"]),
                f"kernels_910b2.csv:{number}",
            )


def rows_of_profiles(folder: Path) -> Iterator[tuple[Row, TilingChip]]:
    """The unique kernels of the full profiles: 910B (48 vector cores) and a 20-core A3 die."""
    for name, chip in (("pytorch_level2_rank0", A2), ("qwen3_0.6b_train_pp2dp2", A3_20)):
        seen: set[Row] = set()
        for path in sorted((folder / "profiles" / name).rglob("kernel_details.csv")):
            with path.open(newline="") as file:
                for line in csv.DictReader(file):
                    given, result = line["Input Shapes"].strip('"'), line["Output Shapes"].strip('"')
                    if line["Accelerator Core"] not in ("AI_VECTOR_CORE", "MIX_AIV"):
                        continue
                    row = Row(
                        line["Type"],
                        shapes(given) if given != "N/A" else (),
                        shapes(result)[0] if result != "N/A" else (),
                        sizes(line["Input Data Types"], line["Output Data Types"]),
                        tuple(line["Input Formats"].split(";")),
                        int(line["Block Dim"]),
                        name,
                    )
                    if row not in seen:
                        seen.add(row)
                        yield row, chip


def test_block_counts_of_all_profiles(shared: Path) -> None:
    """Of the kernels whose tiling is transcribed at least 95 % start on exactly as many cores as predicted."""
    folder = shared / "measured"
    rows = [(row, A2) for row in rows_of_910b2(folder)] + list(rows_of_profiles(folder))
    known = [(row, spread.started) for row, chip in rows if (spread := expected(row, chip)) is not None]
    wrong = [(row, cores) for row, cores in known if cores != row.blocks]
    report = "\n".join(f"{row.op} {row.inputs} -> {row.output}: {cores}, seen {row.blocks}" for row, cores in wrong)
    print(f"{len(known) - len(wrong)} of {len(known)} exact; not transcribed {len(rows) - len(known)}\n{report}")
    others = [row for row, _ in wrong if row.op != "TransData"]
    assert len(known) > 300
    assert len(wrong) <= 0.05 * len(known), report
    assert len(others) <= 0.01 * len(known), report
