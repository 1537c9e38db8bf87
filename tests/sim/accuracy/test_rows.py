"""What msprof prints of a kernel, read as `Work`; and the accuracy on the shipped reference rows."""

from __future__ import annotations

import csv
import statistics
from math import exp

import pytest

from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Group, Op, Tensor
from scenarios.ops.work import AttentionShape, FlatShape, GroupedShape, MatmulShape, RowsShape
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.code import code_of_row, repeats
from sim.accuracy.rows.op_types import Unpriced, known_op_types, work_of_row
from sim.accuracy.rows.row import parse_dtypes, parse_shapes
from sim.fitting.kernels import read_samples, residuals
from sim.hardware import load_hardware
from sim.kernel.price import price


def test_shapes_and_types_as_msprof_prints_them() -> None:
    assert parse_shapes("1,7168;66,448,16,32;;2112") == ((1, 7168), (66, 448, 16, 32), (), (2112,))
    assert parse_shapes('"16,256;2"') == ((16, 256), (2,))
    assert parse_dtypes("DT_BF16;INT8;DT_UNDEFINED;FLOAT") == ("bf16", "int8", None, "fp32")


@pytest.mark.parametrize(
    ("op_type", "shapes", "dtypes", "expected"),
    [
        ("MatMulV2", "16,5120;320,200,16,16", "DT_BF16;DT_BF16", (1, 16, 5120, 3200, "bf16", "bf16", "nz")),
        ("MatMulV3", "768,1600;100,320,16,16", "DT_BF16;DT_BF16", (1, 768, 1600, 5120, "bf16", "bf16", "nz")),
        ("MatMulV2", "1,7168;16160,7168", "DT_BF16;DT_BF16", (1, 1, 7168, 16160, "bf16", "bf16", "nd")),
        ("MatMulV3", "4096,1024;1024,3072", "FLOAT16;FLOAT16", (1, 4096, 1024, 3072, "fp16", "fp16", "nd", "k")),
        ("MatMulV3", "4096,1024;4096,3072", "FLOAT16;FLOAT16", (1, 1024, 4096, 3072, "fp16", "fp16", "nd", "k")),
        ("QuantBatchMatmulV3", "1,7168;66,448,16,32;2112", "INT8;INT8", (1, 1, 7168, 2112, "int8", "int8", "nz", "k")),
        ("BatchMatMulV2", "16,5,128;16,128,512", "DT_BF16;DT_BF16", (16, 5, 128, 512, "bf16", "bf16", "nd", "k")),
    ],
)
def test_products(op_type: str, shapes: str, dtypes: str, expected: tuple[object, ...]) -> None:
    assert work_of_row(op_type, shapes, dtypes).shape == MatmulShape(*expected)  # type: ignore[arg-type]


def test_a_grouped_product_is_taken_to_spread_its_rows_evenly() -> None:
    work = work_of_row("GroupedMatmul", "514,1040;4,1040,1024", "DT_BF16;DT_BF16")
    assert work.shape == GroupedShape((129, 129, 128, 128), 1040, 1024, "bf16", "bf16", "nd")
    assert (work.cube_flops, work.cold_read_bytes) == (2 * 514 * 1040 * 1024, 2 * 4 * 1040 * 1024)


def test_bytes_and_flops_of_a_product() -> None:
    work = work_of_row("MatMulV2", "16,5120;320,200,16,16", "DT_BF16;DT_BF16")
    assert (work.cube_flops, work.cold_read_bytes) == (2 * 16 * 5120 * 3200, 2 * 5120 * 3200)
    assert (work.warm_read_bytes, work.write_bytes) == (2 * 16 * 5120, 2 * 16 * 3200)


def test_a_feed_forward_layer_is_what_the_program_has() -> None:
    work = work_of_row("FFN", "2080,896;896,9728;4864,896", "FLOAT16;FLOAT16;FLOAT16")
    x, y = Tensor("x", (2080, 896), "fp16"), Tensor("y", (2080, 896), "fp16")
    weights = tuple(Tensor(name, shape, "fp16", "weight") for name, shape in (("1", (9728, 896)), ("2", (896, 4864))))
    assert work == work_of(Op("ffn", "ffn", (x, *weights), (y,)))


def test_attention_needs_a_length() -> None:
    with pytest.raises(Unpriced, match="length of the cache"):
        work_of_row("FusedInferAttentionScore", "16,4,128;12307,128,128", "DT_BF16")


@pytest.mark.parametrize(
    ("shapes", "kv_tokens", "expected"),
    [
        ("16,4,128;12308,128,128;12308,128,128;;2048,2048;16;16", 4864, ((Group(16, 1, 4863),), 4, 1, 128)),
        ("16,4,128;12235,128,128;12235,128,128;;2048,2048;10;10", 2, ((Group(10, 1, 1),), 4, 1, 128)),
        ("16,4,128;16,1,128;16,1,128;;2048,2048;2;2", 2, ((Group(2, 1, 1),), 4, 1, 128)),
        ("24624,4,128;24624,1,128;24624,1,128;;2048,2048;6;6", 4104, ((Group(6, 4104, 0),), 4, 1, 128)),
        ("24624,4,128;24624,1,128", 8208, ((Group(3, 8208, 0),), 4, 1, 128)),
        ("5,16,1,512;892,1,128,512;892,1,128,512;;;;5", 4864, ((Group(5, 1, 4863),), 16, 1, 576)),
    ],
)
def test_attention(shapes: str, kv_tokens: int, expected: tuple[object, ...]) -> None:
    shape = work_of_row("FusedInferAttentionScore", shapes, "DT_BF16", kv_tokens).shape
    assert isinstance(shape, AttentionShape)
    assert (shape.groups, shape.heads, shape.kv_heads, shape.head_dim) == expected


@pytest.mark.parametrize(
    ("op_type", "shapes", "dtypes", "shape", "program", "moved"),
    [
        ("Add", "2,7168;2,7168", "DT_BF16;DT_BF16", FlatShape(14336, 7168), "elementwise", (0, 57344, 28672)),
        ("Cast", "1,151936", "DT_BF16", FlatShape(151936, 151936), "cast", (0, 303872, 607744)),
        ("RealDiv", "4,100;4,1", "FLOAT;FLOAT", FlatShape(400, 100), "broadcast", (0, 1616, 1600)),
        ("Add", "4,100;100", "DT_BF16;DT_BF16", FlatShape(400, 100), "broadcast_row", (0, 1000, 800)),
        ("GreaterEqual", "3,100;", "FLOAT;FLOAT", FlatShape(300, 100), "compare", (0, 1204, 300)),
        ("Mul", "16;16", "INT64;INT64", FlatShape(16, 16, 8), "elementwise", (0, 256, 128)),
        ("Add", "16;", "INT64;INT64", FlatShape(16, 16, 8), "integer", (0, 136, 128)),
        ("Greater", "1,1024;1,1", "INT64;INT64", FlatShape(1024, 1024, 8), "integer", (0, 8200, 1024)),
        ("RmsNorm", "16,5120;5120", "DT_BF16;DT_BF16", RowsShape(16, 5120), "rms_norm", (10240, 163840, 163840)),
        ("AddRmsNorm", "2,64;2,64;64;", "DT_BF16;DT_BF16;DT_BF16", RowsShape(2, 64), "add_rms_norm", (130, 512, 512)),
        ("DynamicQuant", "8,2304", "DT_BF16", RowsShape(8, 2304), "dynamic_quant", (0, 36864, 18432)),
        ("SwiGlu", "2,4096", "DT_BF16", FlatShape(8192, 4096), "swiglu", (0, 16384, 8192)),
        ("Slice", "16,256;2;2", "DT_BF16;INT64;INT64", FlatShape(2048, 128), "slice", (0, 4096, 4096)),
        ("GatherV2", "151936,1024;7;1", "DT_BF16;INT64;INT64", RowsShape(7, 1024), "gather", (14336, 56, 14336)),
        ("ReshapeAndCache", "7,1,128;7,1,128;9,128,1,128", "", RowsShape(7, 256), "kv_cache_write", (0, 3584, 3584)),
        ("ArgMaxV2", "10,151936;", "FLOAT;INT64", RowsShape(10, 151936), "argmax", (0, 6077440, 80)),
    ],
)
def test_vector_kernels(
    op_type: str, shapes: str, dtypes: str, shape: object, program: str, moved: tuple[int, int, int]
) -> None:
    work = work_of_row(op_type, shapes, dtypes)
    assert (work.shape, work.program) == (shape, program)
    assert (work.cold_read_bytes, work.warm_read_bytes, work.write_bytes) == moved


def test_experts_rows_are_copied_out_and_summed_back() -> None:
    # Eight of 2,048 numbers for one token, in BF16; 8 bytes of each row's place.
    out = work_of_row("MoeInitRoutingV3", "1,2048;1,8", "DT_BF16;INT32")
    assert (out.shape, out.program) == (RowsShape(8, 2048), "moe_init_routing")
    assert (out.warm_read_bytes, out.write_bytes) == (8 * 4096 + 64, 8 * 4096)
    back = work_of_row("MoeFinalizeRoutingV2", "8,2048;;;;1,8;8", "DT_BF16;;;;DT_BF16;INT32")
    assert (back.shape, back.program) == (RowsShape(1, 2048), "moe_finalize_routing")
    assert (back.warm_read_bytes, back.write_bytes) == (8 * 4096, 4096)


def test_printed_outputs_take_the_place_of_guesses() -> None:
    # BroadcastTo is taken to double its input, and Slice to keep half: here 48 times, and a quarter.
    # A rotary key goes to 16 heads; of four heads of queries, one of keys and one of values one of 128 is kept.
    assert work_of_row("BroadcastTo", "2048,1,64;3", "DT_BF16;INT64").write_bytes == 2048 * 16 * 64 * 2
    assert work_of_row("Slice", "256,768;2;2", "DT_BF16").write_bytes == 256 * 128 * 2
    assert work_of_row("Slice", "256,1536;2;2", "DT_BF16").write_bytes == 256 * 768 * 2
    assert work_of_row("BroadcastTo", "1,64;2", "FLOAT;INT64", 0, "48,64").shape == FlatShape(3072, 64)
    assert work_of_row("Slice", "16,256;2;2", "DT_BF16", 0, "16,64").write_bytes == 2048
    assert work_of_row("Fill", "2;", "INT64;FLOAT", 0, "64,1024").shape == FlatShape(65536, 1024, 8)
    assert work_of_row("Unpack", "2,8,128", "DT_BF16", 0, "8,128;8,128").write_bytes == 4096


@pytest.mark.parametrize("op_type", ["MoeInitRoutingV3", "MoeTokenPermute", "ReduceSumD", "Unpack", "SplitVD", "Tanh"])
def test_each_op_type_of_a_torchair_profile_has_a_price(op_type: str) -> None:
    assert price(work_of_row(op_type, "8,256;8,8", "DT_BF16;INT32"), load_hardware("910b2")).duration_ns > 500


@pytest.mark.parametrize(
    ("op_type", "shapes", "reason"),
    [
        ("Unheard", "1,2", "not known"),
        ("MatMulV2", "q=(1,2)", "not readable"),
        ("MatMulV2", "16,100;320,200,16,16", "fits K = 100"),
        ("QuantBatchMatmulV3", "16,7168;66", "fits K"),
        ("FFN", "8,16;4,16,64;4,32,16", "over experts"),
        ("FFN", "8,16;16,32;32,16", "no gated"),
        ("RmsNorm", "-1,5", "negative"),
        ("_triton_rope", "", "prints no shapes"),
        ("MatMulV2", ";;", "prints no shapes"),
        ("_triton_rope", ";4", "shapes of another"),
        ("Conv2D", "1,3,14,14;8,3,14,14", "no kernel of a language model"),
        ("MoeFinalizeRoutingV2", "64,2048;64", "tells the tokens"),
    ],
)
def test_what_cannot_be_priced_says_why(op_type: str, shapes: str, reason: str) -> None:
    with pytest.raises(Unpriced, match=reason):
        work_of_row(op_type, shapes)


def test_the_norm_of_k_follows_that_of_q() -> None:
    assert repeats("RmsNorm", "16,1,128;128")
    assert not repeats("RmsNorm", "16,4,128;128")
    assert not repeats("Add", "16,1,128")
    assert not repeats("RmsNorm", "16,1,1024;1024")  # one token a request: the residual stream's first norm
    assert not repeats("RmsNorm", "(4, 16);?")


@pytest.mark.parametrize(
    ("op_type", "mode", "note", "code"),
    [
        ("Add", "eager", "", "cold"),
        ("Scatter", "ge_graph (TorchAir static)", "cache write right after RoPE", "near"),
        ("Scatter", "ge_graph (TorchAir static)", "first Scatter of the step (cold)", "first"),
        ("Scatter", "ge_graph (TorchAir static)", "MEAN of all positions, cold ones included", "near"),
        ("Greater", "ge_graph (TorchAir static)", "mask build", "first"),  # once a step
        ("GatherV2", "ge_graph (TorchAir static)", "later calls, warm", "near"),
        ("Mul", "ge_graph (TorchAir static)", "second call (warm twin)", "twin"),
        ("MatMul", "ge_graph", "same program again (twin)", "twin"),
    ],
)
def test_what_ran_before_a_kernel_says_where_its_code_is(op_type: str, mode: str, note: str, code: str) -> None:
    assert code_of_row(op_type, "64,1024;64,1024", mode, note) == code


def test_norms_of_heads_run_in_each_layer_of_a_graph_and_the_first_norm_once() -> None:
    assert code_of_row("RmsNorm", "1,32,128;128", "ge_graph") == "near"
    assert code_of_row("RmsNorm", "1,1,4096;4096", "ge_graph") == "first"


def test_keys_that_a_layer_reads_push_out_the_code_of_what_it_runs_once() -> None:
    static = "ge_graph (TorchAir static)"
    # 32 requests x 1,024 keys of at least 1 KiB are 34 MB, 16 requests 17; code stays next to 30 of them.
    assert code_of_row("Scatter", "32,2,1024,128", static, cached_tokens=32 * 1024) == "first"
    assert code_of_row("Scatter", "16,2,1024,128", static, cached_tokens=16 * 1024) == "near"
    assert code_of_row("InplaceAddRmsNorm", "64,1024;64,1024;1024", static, cached_tokens=64 * 1024) == "near"
    assert code_of_row("Scatter", "64,2,1024,128", "eager", cached_tokens=64 * 1024) == "cold"


def test_weights_of_a_large_layer_push_out_code_that_the_compiler_made() -> None:
    assert code_of_row("AutomaticBufferFusionOp", "1,12288;1,12288", "ge_graph", model="Qwen3-8B") == "first"
    assert code_of_row("AutomaticBufferFusionOp", "1,3072;1,3072", "ge_graph", model="PaddleOCR-VL decoder") == "near"
    assert code_of_row("RmsNorm", "1,32,128;128", "ge_graph", model="Qwen3-8B") == "near"  # of a library


def test_short_runs_of_few_rows_are_moved_by_columns_and_long_ones_by_elements() -> None:
    hw = load_hardware("atlas_a2_910b2")

    def us(rows: int, columns: str, parts: tuple[int, ...]) -> float:
        outputs = ";".join(f"{rows},1,{part}" for part in parts)
        work = work_of_row("SplitVD", f"{rows},1,{columns}", "FLOAT16", 0, outputs)
        return price(work, hw, "first").duration_ns / 1000

    sections = (16, 24, 24, 16, 24, 24)
    # Measured: 3.9 us for 3, 6 and 96 rows, 4.1 for 192; 1.2 and 2.5 us for 2 and 32 rows of a packed QKV.
    assert us(3, "128", sections) == us(96, "128", sections) == us(192, "128", sections)
    assert us(3, "128", sections) > us(32, "2560", (2048, 256, 256)) > us(2, "2560", (2048, 256, 256))


def test_every_op_type_of_the_reference_has_a_price() -> None:
    with reference_csv("kernels").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["op_type"] for row in rows} <= set(known_op_types())
    priced = 0
    for row in rows:
        try:
            work = work_of_row(row["op_type"], row["input_shapes"], row["dtype"], int(row["kv_tokens"] or 0))
        except Unpriced:
            assert row["fit"] == "no"
            continue
        assert price(work, load_hardware(row["hardware"])).duration_ns > 0
        priced += 1
    assert priced >= 0.98 * len(rows)


@pytest.mark.parametrize(
    ("programs", "bound"),
    [
        (("matmul", "quant_matmul", "batch_matmul", "transpose_batch_matmul"), 0.08),
        (("attention", "mla_attention"), 0.06),
    ],
)
def test_errors_on_the_reference_by_program(programs: tuple[str, ...], bound: float) -> None:
    hw = load_hardware("atlas_a3_die")
    samples = [s for s in read_samples(hardware=("atlas_a3_die",)) if s.work.program in programs]
    errors = [abs(exp(r) - 1) for r in residuals({}, samples, {"atlas_a3_die": hw})]
    assert len(errors) > 10
    assert statistics.median(errors) < bound


def test_errors_on_all_network_rows() -> None:
    samples = read_samples(hardware=("atlas_a3_die",))
    errors = sorted(abs(exp(r) - 1) for r in residuals({}, samples, {"atlas_a3_die": load_hardware("atlas_a3_die")}))
    assert len(errors) > 330
    assert statistics.median(errors) < 0.06
    assert errors[int(0.9 * len(errors))] < 0.25
