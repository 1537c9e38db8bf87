"""Block counts of cube kernels, as measured profiles show them, against the rules written down from CANN's tiling code.

The literal tables are facts read from public profiles (with their source); the last test goes over the rows of
../shared and lists what the rules miss.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.decode_attention import Decode, decode_tiling
from sim.kernel.tiling.grouped_matmul import Groups, grouped_matmul_tiling
from sim.kernel.tiling.matmul import matmul_v2_tiling, matmul_v3_tiling
from sim.kernel.tiling.matmul_cycles import packages
from sim.kernel.tiling.prefill_attention import Prefill, flash_attention_score_tiling, fused_infer_tiling
from sim.kernel.tiling.product import Product
from sim.kernel.tiling.quant_matmul import quant_matmul_tiling

#: Ascend910B2 and Ascend910_9372 (a 20-core A3 die) in CANN's platform files.
A2 = TilingChip(24, 48, 196608, 524288, 65536, 65536, 131072, 192 << 20)
DIE = TilingChip(20, 40, 196608, 524288, 65536, 65536, 131072, 192 << 20)


# MatMul of a TorchAir graph, weights n x k: lukaIvanic/paddle_ocr_vl_npu, 910B2, CANN 9.0.
@pytest.mark.parametrize("rows", [1, 4, 16, 64])
@pytest.mark.parametrize(
    ("k", "n", "cores"),
    [(2048, 1024, 22), (1024, 3072, 24), (3072, 1024, 22), (1024, 2560, 23), (1024, 103424, 24)],
)
def test_matmul_of_a_torchair_graph(rows: int, k: int, n: int, cores: int) -> None:
    assert matmul_v2_tiling(Product(rows, k, n, trans_b=True), A2).cores == cores


@pytest.mark.parametrize(("k", "n", "cores"), [(2048, 1024, 22), (1024, 3072, 24), (3072, 1024, 22), (1024, 2560, 23)])
def test_matmul_of_a_torchair_graph_with_fractal_weights(k: int, n: int, cores: int) -> None:
    assert matmul_v2_tiling(Product(1, k, n, trans_b=True, b_nz=True), A2).cores == cores


# MatMul of Qwen3-8B's decode, FRACTAL_NZ weights k x n, on a die of 20 cores (the seed's own profile): QKV with 6,144
# columns takes 12 blocks of 512, as nothing wider than 256 columns of it fits 13 to 19 cores.
@pytest.mark.parametrize(
    ("k", "n", "cores"), [(4096, 6144, 12), (4096, 4096, 20), (4096, 24576, 20), (12288, 4096, 20)]
)
def test_matmul_of_qwen3_8b(k: int, n: int, cores: int) -> None:
    assert matmul_v2_tiling(Product(1, k, n, b_nz=True), DIE).cores == cores


# FP32 products of a small network's training on 24 cores (torch_npu level-2 profile).
@pytest.mark.parametrize(
    ("product", "cores"),
    [
        (Product(32, 9216, 4096, 4, 4, trans_b=True, bias=True), 16),
        (Product(32, 4096, 4096, 4, 4, trans_b=True, bias=True), 16),
        (Product(32, 4096, 1000, 4, 4, trans_b=True, bias=True), 21),
        (Product(32, 1000, 4096, 4, 4), 16),
        (Product(32, 4096, 4096, 4, 4), 16),
        (Product(32, 4096, 9216, 4, 4), 24),
    ],
)
def test_matmul_of_fp32(product: Product, cores: int) -> None:
    assert matmul_v2_tiling(product, A2).cores == cores


# BF16 training of Qwen3-0.6B on 20 cores.
def test_large_products_take_all_cores() -> None:
    assert matmul_v2_tiling(Product(4096, 4096, 1024), DIE).cores == 20
    fractal = Product(151936, 4096, 1024, trans_a=True, a_nz=True, b_nz=True)
    assert matmul_v2_tiling(fractal, DIE).cores == 20
    assert matmul_v3_tiling(Product(4096, 1024, 6144, trans_b=True), DIE).cores == 20


def test_a_large_product_is_cut_into_basic_blocks() -> None:
    tiling = matmul_v2_tiling(Product(4096, 4096, 1024), A2)
    assert (tiling.tile_m, tiling.tile_n, tiling.tile_k) == (128, 256, 64)
    assert tiling.m_cores * tiling.n_cores == 24


def test_few_rows_of_matmul_v3_follow_v2() -> None:
    product = Product(16, 2048, 1024, trans_b=True)
    assert matmul_v3_tiling(product, A2) == matmul_v2_tiling(product, A2)


def test_a_burst_pays_for_512_bytes_whatever_its_package() -> None:
    # 16 blocks of 16 FP16 elements are one package of 512 bytes; 15 are one of 256, one of 128 and a rest.
    assert packages(16, 2) == 8
    assert packages(15, 2) == 24


# IncreFlashAttention over a masked cache of 1,024 tokens, 16 query and 2 KV heads: same profiles as MatMul above.
@pytest.mark.parametrize(("batch", "cores"), [(1, 2), (4, 8), (16, 16), (64, 24)])
def test_decode_attention_of_a_torchair_graph(batch: int, cores: int) -> None:
    assert decode_tiling(Decode(batch, 16, 2, 128, 1024), A2).cores == cores


def test_long_keys_of_few_tasks_are_cut_over_all_cores() -> None:
    # 4,096 keys of 2 tasks: parts of 512 keys, eight of each.
    tiling = decode_tiling(Decode(1, 16, 2, 128, 4096), A2)
    assert (tiling.cores, tiling.parts, tiling.workers) == (24, 8, 16)


def test_packed_decode_starts_on_all_cores() -> None:
    shape = Prefill(batch=1, q_heads=32, kv_heads=8, head_dim=128, q_tokens=1, kv_tokens=1024, paged=True)
    assert fused_infer_tiling(shape, DIE).cores == 20


def test_training_attention_starts_on_all_cores() -> None:
    tiling = flash_attention_score_tiling(Prefill(1, 16, 8, 128, 4096, 4096), DIE)
    assert (tiling.cores, tiling.block_q) == (20, 256)
    assert flash_attention_score_tiling(Prefill(1, 2, 2, 128, 256, 256), DIE).cores == 2


def test_grouped_matmul_starts_on_all_cores() -> None:
    tiling = grouped_matmul_tiling(Groups(m=8, k=2048, n=1536, count=8), A2)
    assert (tiling.cores, tiling.tile_m, tiling.tile_n, tiling.tile_k, tiling.rounds) == (24, 16, 256, 64, 2)


def test_int8_columns_are_cut_in_pairs_of_blocks() -> None:
    tiling = quant_matmul_tiling(Product(1, 7168, 2112, 1, 2, b_nz=True), A2)
    assert tiling.tile_n % 32 == 0
    assert tiling.cores <= 24
    wide = quant_matmul_tiling(Product(8, 7168, 7168, 1, 2, b_nz=True), A2)
    assert (wide.cores, wide.tile_n) == (14, 512)


def test_all_block_counts_of_the_shared_profiles(shared: Path) -> None:
    rows = [*_rows_910b2(shared), *_rows_seed(shared), *_rows_profiles(shared)]
    missed = sorted({(name, predicted, want) for name, predicted, want in rows if predicted != want})
    print(*missed, sep="\n")
    assert len(rows) > 750
    assert {name for name, _, _ in missed} == _KNOWN_MISSES
    assert 1 - sum(predicted != want for _, predicted, want in rows) / len(rows) > 0.997


#: FP32 weight gradients of CANN 8.0 (January 2025), 24 and 22 cores where the published code, of September 2025, takes
#: 22 and 24: in its cycles the measured layouts cost 15 % and 6 % more than the chosen ones: an older rule, likely.
_KNOWN_MISSES = {"MatMulV2 32,1000;32,4096", "MatMulV2 32,4096;32,4096"}

Row = tuple[str, int, int]
"""Name, cores predicted, cores measured."""


def _numbers(text: str) -> list[tuple[int, ...]]:
    """Shapes in msprof's form, scalars and absent tensors left out."""
    parts = text.strip('"').split(";")
    return [tuple(int(n) for n in part.split(",")) for part in parts if re.fullmatch(r"\d+(,\d+)*", part)]


def _plain(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a matrix, FRACTAL_NZ or not."""
    return (shape[1] * shape[2], shape[0] * shape[3]) if len(shape) == 4 else (shape[-2], shape[-1])


def _product(inputs: str, output: str, item_bytes: int) -> Product:
    shapes = _numbers(inputs)
    out = _plain(_numbers(output)[0])
    left, right = _plain(shapes[0]), _plain(shapes[1])
    trans_a = left[0] != out[0]
    k = left[0] if trans_a else left[1]
    fractal = [len(shape) == 4 for shape in shapes]
    return Product(
        out[0], k, out[1], item_bytes, item_bytes, trans_a=trans_a, trans_b=right != (k, out[1]), a_nz=fractal[0],
        b_nz=fractal[1], bias=len(shapes) > 2,
    )  # fmt: skip


def _rows_910b2(shared: Path) -> list[Row]:
    predicted = []
    for row in _read(shared / "measured" / "kernels_910b2.csv"):
        name, measured = f"{row['op_type']} {row['input_shapes']}", row["block_num"]
        if row["op_type"] == "MatMul" and measured:
            tiling = matmul_v2_tiling(_product(row["input_shapes"], row["output_shapes"], 2), A2)
            predicted.append((name, tiling.cores, int(measured)))
        elif row["op_type"] == "IncreFlashAttention" and measured:
            query, key = _numbers(row["input_shapes"])[:2]
            shape = Decode(query[0], query[1], key[1], query[3], key[2])
            predicted.append((name, decode_tiling(shape, A2).cores, int(measured)))
    return predicted


def _rows_seed(shared: Path) -> list[Row]:
    """Shapes are cut short in this file; its products come in the order of a layer."""
    layer = [(4096, 6144), (4096, 4096), (4096, 24576), (12288, 4096)]
    predicted: list[Row] = []
    products = 0
    for row in _read(next((shared / "measured" / "seed_workload").glob("kernel_details*.csv"))):
        if row["Type"] == "MatMul":
            k, n = layer[products % 4]
            products += 1
            predicted.append(
                (f"MatMul 1,{k} x {n}", matmul_v2_tiling(Product(1, k, n, b_nz=True), DIE).cores, int(row["Block Dim"]))
            )
        elif row["Type"] == "FusedInferAttentionScore":
            shape = Prefill(1, 32, 8, 128, 1, 1024, paged=True)
            predicted.append((row["Type"], fused_infer_tiling(shape, DIE).cores, int(row["Block Dim"])))
    return predicted


def _rows_profiles(shared: Path) -> list[Row]:
    predicted: list[Row] = []
    for path in sorted((shared / "measured" / "profiles").glob("**/kernel_details.csv")):
        chip = DIE if "qwen3" in str(path) else A2
        for row in _read(path):
            if not row.get("Input Shapes") or row["Type"] not in ("MatMulV2", "MatMulV3", "FlashAttentionScore"):
                continue
            name, measured = f"{row['Type']} {row['Input Shapes'].strip(chr(34))}", int(row["Block Dim"])
            if row["Type"] == "FlashAttentionScore":
                tokens = _numbers(row["Input Shapes"])[0][0]
                cores = flash_attention_score_tiling(Prefill(1, 16, 8, 128, tokens, tokens), chip).cores
            else:
                item = 4 if row["Input Data Types"].startswith("FLOAT;") else 2
                product = _product(row["Input Shapes"], row["Output Shapes"], item)
                rule = matmul_v2_tiling if row["Type"] == "MatMulV2" else matmul_v3_tiling
                cores = rule(product, chip).cores
            predicted.append((name, cores, measured))
    return predicted


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
