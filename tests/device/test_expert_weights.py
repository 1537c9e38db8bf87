"""Experts and latent attention out of a Hugging Face folder: names, stacks, rotated pairs, absorbed projections."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from device.weights.hugging_face import SPARSE_BLOCK
from device.weights.latent_weights import absorbed, in_halves
from device.weights.weights import RandomCheckpoint, SafetensorsCheckpoint, checkpoint_of
from scenarios.models.families import FAMILIES
from scenarios.models.hf_config import load_model
from scenarios.models.model import Latent, Model
from tests.device.making import WITH_EXPERTS, plain, prompts, session


def names_of(model: Model) -> list[str]:
    """The Hugging Face names of all tensors of a model with experts, as its modelling file has them."""
    assert model.experts is not None
    names = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    for layer in range(model.layers):
        at = f"model.layers.{layer}"
        names += [f"{at}.{n}.weight" for n in ("input_layernorm", "post_attention_layernorm")]
        names += [f"{at}.self_attn.{n}.weight" for n in attention_of(model)]
        names += [f"{at}.self_attn.{n}_proj.bias" for n in "qkv" if model.qkv_bias]
        names += [f"{at}.self_attn.indexer.k_norm.bias"] if model.latent and model.latent.index else []
        mlps = ["mlp"]
        if layer >= model.dense_layers:
            mlps = [f"mlp.experts.{i}" for i in range(model.experts.count)]
            mlps += ["mlp.shared_experts"] if model.experts.shared else []
            names.append(f"{at}.mlp.gate.weight")
            names += [f"{at}.mlp.gate.e_score_correction_bias"] if model.experts.score == "sigmoid" else []
        names += [f"{at}.{mlp}.{n}_proj.weight" for mlp in mlps for n in ("gate", "up", "down")]
    return [in_sparse_block(name) for name in names] if model.model_type in SPARSE_BLOCK else names


def in_sparse_block(name: str) -> str:
    """Mixtral and MiniMax-M2 name their experts in their own way."""
    for usual, own in (
        (".mlp.", ".block_sparse_moe."),
        ("gate_proj", "w1"),
        ("up_proj", "w3"),
        ("down_proj", "w2"),
        ("gate.e_score", "e_score"),
    ):
        name = name.replace(usual, own)
    return name


def attention_of(model: Model) -> list[str]:
    if model.latent is None:
        return [f"{n}_proj" for n in "qkvo"] + [f"{n}_norm" for n in "qk" if model.qk_norm]
    query = ["q_a_proj", "q_a_layernorm", "q_b_proj"] if model.latent.q_rank else ["q_proj"]
    if model.latent.index:
        query += [f"indexer.{n}" for n in ("wq_b", "wk", "k_norm", "weights_proj")]
    return [*query, "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"]


def folder(path: Path, model: Model) -> Path:
    """`model` with random weights and the config.json of its family."""
    experts, latent = model.experts, model.latent
    assert experts is not None
    path.mkdir()
    width = experts.intermediate if model.model_type in SPARSE_BLOCK else model.intermediate
    fields: dict[str, object] = {
        "model_type": model.model_type, "hidden_size": model.hidden, "intermediate_size": width,
        "num_hidden_layers": model.layers, "num_attention_heads": model.heads, "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim, "vocab_size": model.vocab, "max_position_embeddings": model.max_position,
        "attention_bias": model.qkv_bias, "partial_rotary_factor": model.rotated / model.head_dim,
        FAMILIES[model.model_type].experts: experts.count, "use_qk_norm": model.qk_norm,
        "num_experts_per_tok": experts.top_k, "moe_intermediate_size": experts.intermediate,
        "first_k_dense_replace": experts.dense_layers, "routed_scaling_factor": experts.factor,
        "norm_topk_prob": experts.normalised,
        "n_group": experts.groups, "topk_group": experts.kept_groups,
    }  # fmt: skip
    if experts.shared:
        fields["n_shared_experts"] = 1
    if latent:
        fields |= {
            "q_lora_rank": latent.q_rank or None,
            "kv_lora_rank": latent.kv_rank,
            "qk_nope_head_dim": latent.nope_dim,
            "qk_rope_head_dim": latent.rope_dim,
            "v_head_dim": latent.v_dim,
        }
    if latent and latent.index:
        index = latent.index
        fields |= {"index_n_heads": index.heads, "index_head_dim": index.dim, "index_topk": index.top_k}
        fields["indexer_rope_interleave"] = index.in_pairs
    (path / "config.json").write_text(json.dumps(fields))
    source = RandomCheckpoint(model, 5)
    tensors = {name: source.tensor(name) for name in names_of(model)}
    save_file(
        {n: t if n.endswith("correction_bias") else t.to(torch.bfloat16) for n, t in tensors.items()},
        path / "model.safetensors",
    )
    return path


def with_shared_of_one_width(model: Model) -> Model:
    """A config counts the shared expert in widths of a routed one."""
    experts = model.experts
    assert experts is not None
    return replace(model, experts=replace(experts, shared=experts.intermediate if experts.shared else 0))


@pytest.mark.parametrize("model", WITH_EXPERTS.values(), ids=WITH_EXPERTS)
def test_a_hugging_face_folder_gives_its_own_tokens(tmp_path: Path, model: Model) -> None:
    model = with_shared_of_one_width(model)
    at = folder(tmp_path / "model", model)
    read = load_model(str(at))
    assert read.experts == model.experts
    assert read.latent == model.latent
    result = checkpoint_of(str(at), None, read, 0)
    assert isinstance(result, SafetensorsCheckpoint)
    runs = []
    for checkpoint in (result, RandomCheckpoint(read, 5)):
        at_work = session(plain(read), read)
        at_work.weights.checkpoint = checkpoint
        runs.append(at_work.prefill(prompts()))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])


def test_rotated_pairs_become_halves() -> None:
    latent = Latent(q_rank=0, kv_rank=1, nope_dim=1, rope_dim=4, v_dim=1)
    rows = torch.arange(10.0)[:, None]  # two heads of one plain and four rotated rows
    assert in_halves("q_proj", rows, latent).flatten().tolist() == [0, 1, 3, 2, 4, 5, 6, 8, 7, 9]
    assert in_halves("kv_a_proj", rows[:5], latent).flatten().tolist() == [0, 1, 3, 2, 4]
    assert in_halves("o_proj", rows, latent) is rows


def test_kv_b_is_cut_into_what_attention_absorbs() -> None:
    latent = Latent(q_rank=0, kv_rank=3, nope_dim=2, rope_dim=2, v_dim=1)
    whole = torch.arange(18.0).view(6, 3)  # two heads of two K rows and one V row
    assert absorbed("k", whole, latent).tolist() == [whole[:2].tolist(), whole[3:5].tolist()]
    assert absorbed("v", whole, latent).flatten(1).tolist() == [whole[2].tolist(), whole[5].tolist()]
    assert absorbed("v", whole, latent).shape == (2, 3, 1)
