"""FP8 checkpoints in blocks, as DeepSeek-V3 is published: read as BF16, held against loops over single elements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from device.weights.block_scales import block_of, dequantised
from device.weights.weights import SafetensorsCheckpoint, checkpoint_of
from scenarios.errors import ScenarioError
from scenarios.models.hf_config import load_model
from tests.device.making import DEEPSEEK, plain, prompts, session
from tests.device.test_expert_weights import folder, with_shared_of_one_width

Q = "model.layers.0.self_attn.q_a_proj.weight"


def quantised(x: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`x` in FP8 and its scales, block by block: the largest magnitude of a block becomes 448."""
    rows, columns = x.shape
    scale = torch.empty(-(-rows // block), -(-columns // block))
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            at = (slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block))
            scale[i, j] = x[at].abs().max() / 448
            out[at] = (x[at] / scale[i, j]).to(torch.float8_e4m3fn)
    return out, scale


def fp8_folder(path: Path, block: int = 16) -> Path:
    """A small DeepSeek whose products lie in FP8, with smaller blocks at the edges; the rest stays in 16 bits."""
    at = folder(path, with_shared_of_one_width(DEEPSEEK))
    tensors, result = load_file(at / "model.safetensors"), {}
    for name, value in tensors.items():
        if "_proj" in name:
            result[name], result[f"{name}_scale_inv"] = quantised(value.float(), block)
        else:
            result[name] = value
    save_file(result, at / "model.safetensors")
    config = json.loads((at / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [block, block]}
    (at / "config.json").write_text(json.dumps(config))
    return at


def test_each_element_is_its_value_times_the_scale_of_its_block() -> None:
    values = torch.randn(200, 130, generator=torch.Generator().manual_seed(1)).to(torch.float8_e4m3fn)
    scale = torch.tensor([[0.5, 2.0], [0.03125, 3.0]])
    result = dequantised("w", values, scale, (128, 128))
    assert result.dtype == torch.bfloat16
    plain = values.float().tolist()
    for i, j in ((0, 0), (127, 127), (128, 127), (127, 128), (199, 129), (64, 129)):
        exact = plain[i][j] * scale[i // 128][j // 128].item()
        assert result[i, j].item() == torch.tensor(exact).to(torch.bfloat16).item()


def test_an_fp8_folder_runs_and_says_what_it_was(tmp_path: Path) -> None:
    at = fp8_folder(tmp_path / "model")
    model = load_model(str(at))
    checkpoint = checkpoint_of(str(at), None, model, 0)
    assert checkpoint.origin == "safetensors of model"
    at_work, plainly = session(plain(model), model), session(plain(model), model)
    at_work.weights.checkpoint = checkpoint
    # The same folder with all weights written out in 16 bits.
    stored = load_file(at / "model.safetensors")
    wide = {n: checkpoint.tensor(n) for n in stored if not n.endswith("_scale_inv")}
    other = tmp_path / "wide"
    other.mkdir()
    save_file({n: t.contiguous() for n, t in wide.items()}, other / "model.safetensors")
    plainly.weights.checkpoint = SafetensorsCheckpoint(other)
    runs = [at_work.prefill(prompts()), plainly.prefill(prompts())]
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])
    assert checkpoint.origin == "safetensors of model; FP8 in blocks of 16 x 16, read as bf16"
    assert plainly.weights.checkpoint.origin == "safetensors of wide"


def test_three_bits_of_mantissa_cost_what_they_say(tmp_path: Path) -> None:
    """e4m3 rounds to within 1/16 of a value, bf16 once more to within 1/256."""
    model = with_shared_of_one_width(DEEPSEEK)
    exact = load_file(folder(tmp_path / "exact", model) / "model.safetensors")[Q].float()
    result = SafetensorsCheckpoint(fp8_folder(tmp_path / "fp8")).tensor(Q).float()
    large = exact.abs() > exact.abs().max() / 64  # smaller ones are subnormal in their block
    relative = ((result - exact).abs() / exact.abs())[large]
    assert 0.01 < relative.max() <= 1 / 16 + 1 / 256


def refusal(at: Path, name: str = Q) -> str:
    with pytest.raises(ScenarioError) as caught:
        SafetensorsCheckpoint(at).tensor(name)
    (line,) = caught.value.messages
    assert "\n" not in line
    return line.removeprefix(f"{at}/")


def test_what_does_not_belong_together_is_one_line(tmp_path: Path) -> None:
    at = fp8_folder(tmp_path / "model")
    stored = load_file(at / "model.safetensors")

    def told(change: dict[str, torch.Tensor | None]) -> str:
        tensors = {n: t for n, t in {**stored, **change}.items() if t is not None}
        save_file(tensors, at / "model.safetensors")
        return refusal(at)

    scale = f"{Q}_scale_inv"
    assert told({scale: torch.ones(1, 4)}) == (
        f"model.safetensors: {scale} has shape [1, 4]; blocks of 16 x 16 of [24, 64] need [2, 4]"
    )
    assert told({scale: torch.ones(2)}).endswith("blocks of 16 x 16 of [24, 64] need [2, 4]")
    assert told({scale: None}) == f"model.safetensors: {Q} is FP8 without {scale}"
    assert told({scale: torch.full((2, 4), float("nan"))}).endswith(f"{scale} holds what is no number")
    assert told({scale: torch.ones((2, 4), dtype=torch.int32)}).endswith(f"{scale} holds what is no number")
    assert told({Q: torch.ones(64).to(torch.float8_e4m3fn)}).endswith(
        f"{Q} is FP8 of shape [64]; only matrices lie in blocks"
    )
    assert told({Q: torch.ones((24, 64), dtype=torch.int8)}).endswith(
        f"{Q} is quantised; a checkpoint in 16 bits, or in FP8 with a scale a block, is due"
    )


@pytest.mark.parametrize(
    ("quantization", "told"),
    [
        ({"quant_method": "awq"}, ".quant_method: FP8 in blocks is read, not 'awq'"),
        ({"weight_block_size": 128}, ".weight_block_size: two whole numbers above 0 are due, got 128"),
        ({"weight_block_size": [128]}, ".weight_block_size: two whole numbers above 0 are due, got [128]"),
        ({"weight_block_size": [0, 128]}, ".weight_block_size: two whole numbers above 0 are due, got [0, 128]"),
        ({"weight_block_size": None}, ".weight_block_size: two whole numbers above 0 are due, got nothing"),
        (["fp8"], ": must be a mapping, got a list"),
    ],
)
def test_another_quantisation_is_one_line(tmp_path: Path, quantization: object, told: str) -> None:
    at = fp8_folder(tmp_path / "model")
    config = json.loads((at / "config.json").read_text())
    (at / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    assert refusal(at) == f"config.json: quantization_config{told}"


def test_blocks_are_those_of_deepseek_where_a_config_names_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert block_of(tmp_path / "config.json") == block_of(tmp_path / "absent.json") == (128, 128)
