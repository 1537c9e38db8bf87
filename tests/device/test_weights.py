"""Weights: one checkpoint, whatever the ranks, the packing and the order; safetensors folders, whole and in shards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import save_file

from device.operators.quant import unpack_int4
from device.step.dtypes import DTYPES
from device.weights.gguf_file import GgufCheckpoint, gguf_name
from device.weights.weights import Checkpoint, RandomCheckpoint, SafetensorsCheckpoint, Weights, checkpoint_of
from scenarios.errors import ScenarioError
from scenarios.lowering.parallel import shard
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.ops.program import DType, Tensor
from tests.device.making import FAMILIES, QWEN2, QWEN3, plain, prompts, session

CPU = torch.device("cpu")


def weights(model: Model, rank: int = 0, ranks: int = 1, checkpoint: Checkpoint | None = None) -> Weights:
    return Weights(checkpoint or RandomCheckpoint(model, 0), model, shard(model, ranks), rank, DTYPES, DTYPES, CPU)


def get(result: Weights, name: str, *shape: int, dtype: DType = "bf16", layer: int = 1) -> torch.Tensor:
    return result.get(Tensor(name, shape, dtype, "weight"), layer, "bf16", dtype)


def test_random_weights_hang_on_seed_and_name_alone() -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    first = RandomCheckpoint(QWEN3, 3).tensor(name)
    other = RandomCheckpoint(QWEN3, 3)
    other.tensor("lm_head.weight")
    assert torch.equal(first, other.tensor(name))
    assert not torch.equal(first, RandomCheckpoint(QWEN3, 4).tensor(name))
    assert not torch.equal(first, other.tensor("model.layers.0.mlp.up_proj.weight"))


def test_packed_projections_are_their_parts_on_top_of_each_other() -> None:
    result = weights(QWEN2)
    parts = [get(result, f"{p}_proj.weight", n, 64) for p, n in (("q", 32), ("k", 16), ("v", 16))]
    assert torch.equal(get(result, "qkv_proj.weight", 64, 64), torch.cat(parts))
    biases = [get(result, f"{p}_proj.bias", n) for p, n in (("q", 32), ("k", 16), ("v", 16))]
    assert torch.equal(get(result, "qkv_proj.bias", 64), torch.cat(biases))


def test_norms_belong_to_the_layer_that_reads_them() -> None:
    result, source = weights(QWEN3), RandomCheckpoint(QWEN3, 0)

    def equal(got: torch.Tensor, name: str) -> bool:
        return torch.equal(got, source.tensor(name).to(torch.bfloat16))

    assert equal(get(result, "input_norm.weight", 64, layer=0), "model.layers.0.input_layernorm.weight")
    assert equal(get(result, "next_norm.weight", 64, layer=0), "model.layers.1.input_layernorm.weight")
    assert equal(get(result, "next_norm.weight", 64, layer=1), "model.norm.weight")  # after the last layer
    assert equal(get(result, "lm_head.weight", 320, 64, layer=0), "model.embed_tokens.weight")  # tied


@pytest.mark.parametrize("ranks", [2, 4])
def test_shards_are_the_whole_again(ranks: int) -> None:
    whole, parts = weights(QWEN3), [weights(QWEN3, rank, ranks) for rank in range(ranks)]

    def together(name: str, dim: int, *shape: int) -> torch.Tensor:
        return torch.cat([get(part, name, *shape) for part in parts], dim)

    q, down = get(whole, "q_proj.weight", 64, 64), get(whole, "down_proj.weight", 64, 96)
    assert torch.equal(
        together("q_proj.weight", 0, 64 // ranks, 64), q
    )  # column-parallel: outputs lie next to each other
    assert torch.equal(together("down_proj.weight", 1, 64, 96 // ranks), down)  # row-parallel: inputs do
    embed = get(whole, "embed_tokens.weight", 320, 64)
    assert torch.equal(together("embed_tokens.weight", 0, 320 // ranks, 64), embed)
    heads = [get(part, "k_proj.weight", max(1, 2 // ranks) * 16, 64) for part in parts]
    k = get(whole, "k_proj.weight", 32, 64)
    expected = [k[16 * (rank * 2 // ranks) :][:16] for rank in range(ranks)]  # four ranks: each head is held by two
    assert all(torch.equal(a, b) for a, b in zip(heads, expected, strict=True))


def test_a_vocabulary_that_does_not_divide_is_padded_with_zeros() -> None:
    odd = replace(QWEN3, vocab=321)
    last = get(weights(odd, 1, 2), "embed_tokens.weight", 161, 64)
    assert torch.equal(last[:160], get(weights(odd), "embed_tokens.weight", 321, 64)[161:])
    assert not last[160:].any()


def test_column_split_concatenates_and_row_split_sums_up_to_rounding() -> None:
    whole, parts = weights(QWEN3), [weights(QWEN3, rank, 2) for rank in range(2)]
    x = torch.randn(5, 96, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    up = get(whole, "gate_proj.weight", 96, 64)
    split = torch.cat([x[:, :64] @ get(p, "gate_proj.weight", 48, 64).T for p in parts], -1)
    assert torch.equal(split, x[:, :64] @ up.T)
    down = x @ get(whole, "down_proj.weight", 64, 96).T
    summed = sum(x[:, 48 * i :][:, :48] @ get(p, "down_proj.weight", 64, 48).T for i, p in enumerate(parts))
    difference = (summed - down).abs().max().item()
    # Each partial sum is rounded to bf16 before they are added: the difference is there, and below two roundings.
    assert 0 < difference <= 2 * 2**-8 * down.abs().max().item()


def test_quantised_weights_are_within_half_a_step() -> None:
    result = weights(QWEN3)
    plain_weight = get(result, "o_proj.weight", 64, 64).float()
    for dtype, unpack in (("int8", lambda w: w), ("int4", unpack_int4)):
        integers = unpack(get(result, "o_proj.weight", 64, 64, dtype=dtype))  # type: ignore[arg-type]
        scale = get(result, "o_proj.scale", 64, dtype=dtype)[:, None]  # type: ignore[arg-type]
        assert ((integers.float() * scale - plain_weight).abs() <= scale * 0.5001).all()


# ---- a Hugging Face folder ----


def names_of(model: Model) -> list[str]:
    """The Hugging Face names of all tensors of `model`."""
    names = ["model.embed_tokens.weight", "model.norm.weight"]
    if not model.tied_embeddings:
        names.append("lm_head.weight")
    for layer in range(model.layers):
        at = f"model.layers.{layer}"
        names += [f"{at}.{n}.weight" for n in ("input_layernorm", "post_attention_layernorm")]
        names += [f"{at}.mlp.{n}_proj.weight" for n in ("gate", "up", "down")]
        names += [f"{at}.self_attn.{n}_proj.weight" for n in "qkvo"]
        names += [f"{at}.self_attn.{n}_proj.bias" for n in "qkv" if model.qkv_bias]
        names += [f"{at}.self_attn.{n}_norm.weight" for n in "qk" if model.qk_norm]
    return names


def folder(path: Path, model: Model, shards: int = 1, **config: object) -> Path:
    """`model` with random weights as Hugging Face lays it out."""
    source, names = RandomCheckpoint(model, 5), names_of(model)
    path.mkdir(exist_ok=True)
    fields = {
        "model_type": model.model_type, "hidden_size": model.hidden, "intermediate_size": model.intermediate,
        "num_hidden_layers": model.layers, "num_attention_heads": model.heads, "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim, "vocab_size": model.vocab, "max_position_embeddings": model.max_position,
        "tie_word_embeddings": model.tied_embeddings, "torch_dtype": "bfloat16", **config,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(fields))
    tensors = {name: source.tensor(name).to(torch.bfloat16) for name in names}
    if shards == 1:
        save_file(tensors, path / "model.safetensors")
        return path
    where = {name: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, name in enumerate(names)}
    for file in set(where.values()):
        save_file({n: t for n, t in tensors.items() if where[n] == file}, path / file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return path


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
def test_a_hugging_face_folder_gives_its_own_tokens(tmp_path: Path, model: Model, shards: int) -> None:
    at = folder(tmp_path / "model", replace(model, dtype="bf16"), shards)
    read = load_model(str(at))
    result = checkpoint_of(str(at), None, read, 0)
    assert isinstance(result, SafetensorsCheckpoint)
    runs = []
    for checkpoint in (result, RandomCheckpoint(read, 5)):
        at_work = session(plain(), read)
        at_work.weights.checkpoint = checkpoint
        runs.append(at_work.prefill(prompts()))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])


def test_a_model_without_files_gets_seeded_weights() -> None:
    assert isinstance(checkpoint_of("Qwen3-8B", None, QWEN3, 0), RandomCheckpoint)


def test_bad_folders_are_refused_in_one_line(tmp_path: Path) -> None:
    at = folder(tmp_path / "model", QWEN2)

    def refusal() -> str:
        with pytest.raises(ScenarioError) as caught:
            get(weights(QWEN2, checkpoint=checkpoint_of(str(at), None, QWEN2, 0)), "q_proj.weight", 32, 64)
        (line,) = caught.value.messages
        assert "\n" not in line
        return line

    whole = (at / "model.safetensors").read_bytes()
    (at / "model.safetensors").write_bytes(whole[:1000])
    assert "no safetensors checkpoint" in refusal()
    save_file({"model.norm.weight": torch.ones(64)}, at / "model.safetensors")
    assert refusal().endswith("no tensor model.layers.1.self_attn.q_proj.weight")
    save_file({"model.layers.1.self_attn.q_proj.weight": torch.ones(8, 64)}, at / "model.safetensors")
    assert "the checkpoint has shape [8, 64], the model [32, 64]" in refusal()
    (at / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    assert "gone.safetensors is not there" in refusal()


# ---- a GGUF file ----


def gguf_folder(path: Path, model: Model, architecture: str) -> Path:
    """`model` with random weights as llama.cpp's converter writes it, in float32, and its config next to it."""
    source = RandomCheckpoint(model, 5)
    path.mkdir()
    writer = gguf.GGUFWriter(path / "model.gguf", architecture)
    writer.add_embedding_length(model.hidden)
    writer.add_feed_forward_length(model.intermediate)
    writer.add_block_count(model.layers)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_context_length(model.max_position)
    writer.add_layer_norm_rms_eps(model.norm_eps)
    writer.add_rope_freq_base(model.rope_theta)
    for name in names_of(model):
        value = source.tensor(name)
        if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            heads = model.heads if ".q_proj." in name else model.kv_heads
            value = value.view(heads, 2, -1, model.hidden).transpose(1, 2).reshape(value.shape)
        writer.add_tensor(gguf_name(name), value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (path / "config.json").write_text(json.dumps(GgufCheckpoint(path / "model.gguf").config()))
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gguf_file_gives_its_own_tokens(tmp_path: Path, family: str) -> None:
    model = replace(FAMILIES[family], dtype="bf16", rope_scaling=None)
    at = gguf_folder(tmp_path / "model", model, family)
    read = load_model(str(at))
    assert replace(read, name=model.name, model_type=model.model_type, rotary_dim=0) == model
    runs = []
    for checkpoint in (checkpoint_of(str(at), None, read, 0), RandomCheckpoint(model, 5)):
        at_work = session(plain(), read)
        at_work.weights.checkpoint = checkpoint
        runs.append(at_work.prefill(prompts())[1])
    assert torch.equal(runs[0], runs[1])


def test_bad_gguf_files_are_refused_in_one_line(tmp_path: Path) -> None:
    at = gguf_folder(tmp_path / "model", QWEN2, "qwen2")
    file = at / "model.gguf"
    gguf_checkpoint = GgufCheckpoint(file)
    with pytest.raises(ScenarioError, match=r"no tensor blk\.9\.attn_q\.weight"):
        gguf_checkpoint.tensor("model.layers.9.self_attn.q_proj.weight")
    whole = file.read_bytes()
    for damaged in (b"", b"GGUF", whole[:200], b"x" * 1000):
        file.write_bytes(damaged)
        with pytest.raises(ScenarioError) as caught:
            GgufCheckpoint(file)
        (line,) = caught.value.messages
        assert "\n" not in line
    file.write_bytes(whole)
    (at / "second.gguf").write_bytes(whole)
    with pytest.raises(ScenarioError, match="2 GGUF files; one is due"):
        checkpoint_of(str(at), None, QWEN2, 0)
