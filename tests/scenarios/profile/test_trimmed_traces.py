"""Traces without names of threads, without arrows, and with durations that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scenarios.profile import NO_ROW, Capture, Kind
from scenarios.profile.families import family_of_type, function_of, is_collective_kernel
from scenarios.profile.read import CaptureError, read_captures
from tests.scenarios.profile import cuda, making


def one(path: Path) -> Capture:
    [capture] = read_captures(path).captures
    return capture


def test_kernels_are_known_by_their_category(tmp_path: Path) -> None:
    capture = one(cuda.write(tmp_path, *(cuda.kernel(n, 1000 + 50 * n, 1020 + 50 * n, 30) for n in (1, 2, 3))))
    rows = capture.events.rows(Kind.KERNEL)
    assert len(rows) == 3
    assert (capture.events.launched_by[rows] != NO_ROW).all()
    assert capture.lanes[int(capture.events.lane[rows[0]])].thread == "Stream 7"


def test_a_torch_npu_trace_without_names_is_one_all_the_same(tmp_path: Path) -> None:
    named = one(making.torch_npu(tmp_path / "named"))
    top = making.torch_npu(tmp_path / "trimmed")
    path = top / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    events = [event for event in json.loads(path.read_text()) if event["ph"] != "M"]
    path.write_text(json.dumps(events))
    alone = tmp_path / "trace_view.json"
    alone.write_text(json.dumps(events))
    for capture in (one(top), one(alone)):
        for kind in (Kind.KERNEL, Kind.COLLECTIVE, Kind.HOST):
            assert len(capture.events.rows(kind)) == len(named.events.rows(kind)), kind
        assert [step.id for step in capture.steps] == ["7", "8"]


def test_launches_without_kernels_are_said_to_be_that(tmp_path: Path) -> None:
    calls = [cuda.row("cuda_runtime", "cudaGraphLaunch", cuda.THREAD, 10 * n, 5, n) for n in range(1, 4)]
    with pytest.raises(CaptureError, match="the host launched 3 times"):
        read_captures(cuda.write(tmp_path, calls))


def test_a_stream_is_first_in_first_out(tmp_path: Path) -> None:
    lengths = [80, 5000, 80, 80]
    path = cuda.write(tmp_path, *(cuda.kernel(n + 1, 1000 + 10 * n, 1100 + 100 * n, t) for n, t in enumerate(lengths)))
    capture = one(path)
    rows = capture.events.rows(Kind.KERNEL)
    assert (capture.events.duration_ns[rows] // 1000).tolist() == [80, 100, 80, 80]
    [note] = [note for note in capture.notes if "first in" in note]
    assert note.startswith("1 kernels run over the start of the next one on their stream (the longest by 4.900 ms)")


def test_streams_are_first_in_first_out_each_by_itself(tmp_path: Path) -> None:
    path = cuda.write(tmp_path, cuda.kernel(1, 10, 100, 500), cuda.kernel(2, 20, 200, 50, stream=8))
    capture = one(path)
    assert capture.events.duration_ns[capture.events.rows(Kind.KERNEL)].tolist() == [500_000, 50_000]
    assert not [note for note in capture.notes if "first in" in note]


MATMUL, ATTENTION, VECTOR, COLLECTIVE = "matrix products", "attention", "other vector", "collectives"


@pytest.mark.parametrize(
    ("name", "family", "function"),
    [
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(Params)",
            MATMUL,
            "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8",
        ),
        ("nvjet_tst_128x64_64x8_2x1_v_bz_TNT", MATMUL, "nvjet_tst_128x64_64x8_2x1_v_bz_TNT"),
        ("ampere_fp16_s16816gemm_fp16_64x64_tn", MATMUL, "ampere_fp16_s16816gemm_fp16_64x64_tn"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", MATMUL, "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"),
        ("Cijk_Alik_Bljk_BBS_BH_MT256x32x64", MATMUL, "Cijk_Alik_Bljk_BBS_BH_MT256x32x64"),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int>>(int)", MATMUL, "GemmUniversal"),
        (
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<cutlass::gemm::X>>>(P)",
            ATTENTION,
            "FlashAttnFwdSm90",
        ),
        ("void flash_fwd_splitkv_kernel<Traits<128>>(Flash_fwd_params)", ATTENTION, "flash_fwd_splitkv_kernel"),
        ("fmha_cutlassF_f16_aligned_64x64", ATTENTION, "fmha_cutlassF_f16_aligned_64x64"),
        ("_fwd_grouped_kernel_stage1", ATTENTION, "_fwd_grouped_kernel_stage1"),
        ("triton_tem_fused_mm_1", MATMUL, "triton_tem_fused_mm_1"),
        ("triton_poi_fused_add_mm_0", VECTOR, "triton_poi_fused_add_mm_0"),
        ("convert_fp8_kernel", VECTOR, "convert_fp8_kernel"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int)",
            VECTOR,
            "vectorized_elementwise_kernel",
        ),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(Args)", COLLECTIVE, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        ("void vllm::cross_device_reduce_1stage<bf16, 2>(int)", COLLECTIVE, "cross_device_reduce_1stage"),
        (
            "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1",
            MATMUL,
            "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1",
        ),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, int>(Args)", VECTOR, "bn_fw_tr_1C11_kernel_NCHW"),
        ("std::enable_if<!(false), void>::type gemvx::kernel<int, float>(cublasGemvParams)", MATMUL, "gemvx::kernel"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float>(Tensor<float>)", "copies", "nchwToNhwcKernel"),
        ("void scal_kernel<float, 1, false>(cublasTransposeParams<float>, float const*)", VECTOR, "scal_kernel"),
        ("void cublasLt::splitKreduce_kernel<32, 16, float>(cublasSplitKParams)", VECTOR, "splitKreduce_kernel"),
        ("void fbgemm_gpu::permute_2D_data_kernel<true, int>(int const*)", VECTOR, "permute_2D_data_kernel"),
        (
            "void at::native::vectorized_elementwise_kernel<4, fbgemm_gpu::_float_to_hfp8_gpu(at::Tensor)::F>(int, F)",
            VECTOR,
            "vectorized_elementwise_kernel",
        ),
        ("MatmulAllReduce", MATMUL, "MatmulAllReduce"),
        ("FlashAttentionScoreGrad", ATTENTION, "FlashAttentionScoreGrad"),
    ],
)
def test_a_kernel_is_what_its_whole_name_says(name: str, family: str, function: str) -> None:
    assert family_of_type(name) == family
    assert function_of(name) == function
    assert family_of_type(function_of(name)) == family
    assert is_collective_kernel(name) == (family == COLLECTIVE)
