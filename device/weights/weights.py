"""Weights for the tensors of a Program: found under their Hugging Face names, split over ranks, packed and quantised.

A Program's weights are those of one rank after all passes: `qkv_proj.weight` is q, k and v of this rank on top of each
other, perhaps in INT4. A checkpoint holds whole tensors under Hugging Face names; `Weights` makes one from the other,
by the same rules as scenarios/lowering/parallel.py: outputs of q, k, v, gate, up and the LM head are split by rows,
inputs of o and down by columns, the vocabulary by rows, padded with zeros.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from zlib import crc32

import torch

from device.operators.quant import INT4_MAX, INT8_MAX, pack_int4, quantise_rows
from device.weights.block_scales import BLOCK, FP8, Block, block_of, dequantised
from device.weights.hugging_face import name_of, shape_of
from device.weights.latent_weights import absorbed, heads_in_halves, in_halves, index_in_halves
from device.weights.shared_kv_weights import by_group, table_of_experts
from device.weights.state_weights import rows_of_rank
from scenarios.errors import ScenarioError, printable
from scenarios.files.paths import expanded, is_dir
from scenarios.models.forms import XIELU_BETA
from scenarios.models.model import Model
from scenarios.ops.program import DType, Tensor

#: Packed projections and their parts, in order.
PARTS = {
    "qkv_proj": ("q_proj", "q_a_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj"),
    "qkv_a_proj": ("q_a_proj", "kv_a_proj"), "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}  # fmt: skip
COLUMN_SPLIT = (
    "q_proj", "q_b_proj", "kv_b_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head", "sinks",
    "attention_gate_proj", "o_a_proj",
)  # fmt: skip
KV_SPLIT = ("k_proj", "v_proj")
ROW_SPLIT = ("o_proj", "down_proj")
#: Norms whose weight is the factor itself in families whose other norms multiply by 1 + weight.
PLAIN_NORMS = ("delta_norm", "mamba_norm")
#: Families whose checkpoints have the two elements that turn together next to each other, in grouped-query heads.
PAIRED = ("chatglm", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "glm", "glm4", "helium", "llama4_text")


class Checkpoint(Protocol):
    """Whole tensors by Hugging Face name."""

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor called `name`, in any floating type. Raises ScenarioError where there is none."""

    @property
    def origin(self) -> str:
        """What these values are, for who reads a measurement; after they have been read."""


class RandomCheckpoint:
    """Seeded values for any config, the same for every rank, layout and order of reading.

    Matrices are normal with a spread that keeps activations near 1, norms are near 1, biases small.
    """

    def __init__(self, model: Model, seed: int) -> None:
        self.model, self.seed = model, seed

    def tensor(self, name: str) -> torch.Tensor:
        shape = shape_of(self.model, name)
        random = torch.Generator().manual_seed(crc32(f"{self.seed}/{name}".encode()))
        if name.endswith("tid2eid") and self.model.experts:
            return table_of_experts(shape, self.model.experts.count, random)
        values = torch.randn(shape, generator=random)
        if "norm" in name and not name.endswith("bias"):
            return 0.1 * values + (not self.model.form.unit_offset or "linear_attn.norm" in name)
        if name.endswith(("scale", "layer_scalar")):
            return 1 + 0.1 * values
        if name.endswith(("bias", "sinks", "A_log")):
            return 0.1 * values
        return values if "embed" in name else values * shape[-1] ** -0.5

    @property
    def origin(self) -> str:
        return f"random values of seed {self.seed}"


class SafetensorsCheckpoint:
    """A Hugging Face folder: model.safetensors, or the files that model.safetensors.index.json names. Read-only, no
    pickle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            from safetensors import safe_open
        except ModuleNotFoundError:
            raise ScenarioError(
                [f"{folder}: safetensors is not installed; pip install 'ascend-whatif[device]'"]
            ) from None
        self._open = safe_open
        self._files = _files_of(folder)
        self._block: Block | None = None

    def tensor(self, name: str) -> torch.Tensor:
        tensor, file = self._stored(name)
        if tensor.dtype in FP8:
            return self._from_fp8(name, tensor, file)
        if tensor.dtype.itemsize < 2 or not tensor.is_floating_point():
            what = (
                f"{printable(name, 100)} is quantised; a checkpoint in 16 bits, or in FP8 with a scale a block, is due"
            )
            raise ScenarioError([f"{file}: {what}"])
        return tensor

    @property
    def origin(self) -> str:
        """FP8 is said where it was read."""
        rows, columns = self._block or BLOCK
        fp8 = f"; FP8 in blocks of {rows} x {columns}, read as bf16" if self._block else ""
        return f"safetensors of {printable(self.folder.resolve().name)}{fp8}"

    def _stored(self, name: str) -> tuple[torch.Tensor, Path]:
        """A tensor as it lies in its file, and the file."""
        file = self._files.get(name)
        if file is None:
            raise ScenarioError([f"{self.folder}: no tensor {printable(name, 100)}"])
        try:
            with self._open(file, framework="pt") as opened:
                tensor: torch.Tensor = opened.get_tensor(name)
        except Exception as error:  # the library raises its own type for a file that is cut or forged
            raise ScenarioError([f"{file}: cannot be read: {printable(str(error), 200)}"]) from None
        return tensor, file

    def _from_fp8(self, name: str, values: torch.Tensor, file: Path) -> torch.Tensor:
        self._block = self._block or block_of(self.folder / "config.json")
        if f"{name}_scale_inv" not in self._files:
            raise ScenarioError([f"{file}: {printable(name, 100)} is FP8 without {printable(name, 100)}_scale_inv"])
        scale, scale_file = self._stored(f"{name}_scale_inv")
        try:
            return dequantised(printable(name, 100), values, scale, self._block)
        except ScenarioError as error:
            raise ScenarioError([f"{scale_file}: {line}" for line in error.messages]) from None

    def __contains__(self, name: str) -> bool:
        return name in self._files


def _files_of(folder: Path) -> dict[str, Path]:
    """The file of each tensor."""
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file():
            named = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            files = {str(name): folder / Path(str(file)).name for name, file in named.items()}
            if missing := sorted({str(file) for file in files.values() if not file.is_file()}):
                raise ScenarioError([f"{index}: {missing[0]} is not there"])
            return files
        from safetensors import safe_open

        file = folder / "model.safetensors"
        with safe_open(file, framework="pt") as opened:
            return dict.fromkeys(opened.keys(), file)
    except ScenarioError:
        raise
    except Exception as error:
        raise ScenarioError([f"{folder}: no safetensors checkpoint: {printable(str(error), 200)}"]) from None


def checkpoint_of(name: str, base_folder: Path | None, model: Model, seed: int) -> Checkpoint:
    """The checkpoint of a scenario's model: of its folder where that holds safetensors or one GGUF file, else seeded
    random values.

    name: the scenario's `model`. base_folder: the folder that a relative path starts from.
    """
    for root in (base_folder, Path()):
        folder = expanded(root / name if root is not None else Path(name))
        if is_dir(folder) and any(folder.glob("*.safetensors")):
            return SafetensorsCheckpoint(folder)
        if is_dir(folder) and (files := sorted(folder.glob("*.gguf"))):
            from device.weights.gguf_file import GgufCheckpoint

            if len(files) > 1:
                raise ScenarioError([f"{folder}: {len(files)} GGUF files; one is due, in one piece"])
            return GgufCheckpoint(files[0])
    return RandomCheckpoint(model, seed)


class Weights:
    """The weights of one rank's Program, made when they are first asked for and kept.

    model: the whole model. shard: what one rank holds of it. expert_rank: its number among those that whole experts are
    spread over, in order. dtypes: how the Program's types are held; values are rounded to the type that the Program
    names before they are widened. in_pairs: the Program rotates latent attention's pairs as they lie in a checkpoint,
    not in halves.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        model: Model,
        shard: Model,
        rank: int,
        dtypes: Mapping[DType, torch.dtype],
        stored: Mapping[DType, torch.dtype],
        device: torch.device,
        expert_rank: int = 0,
        in_pairs: bool = False,
    ) -> None:
        self.in_pairs = in_pairs
        self.checkpoint, self.model, self.shard, self.rank = checkpoint, model, shard, rank
        self.expert_rank = expert_rank
        self.dtypes, self.stored, self.device = dtypes, stored, device
        self._kept: dict[tuple[str, int, DType], torch.Tensor] = {}
        self._scales: dict[tuple[str, int, DType], torch.Tensor] = {}

    def fork(self) -> Weights:
        """The same weights, those made so far shared; what is made from here on is its own."""
        weights = Weights(
            checkpoint=self.checkpoint,
            model=self.model,
            shard=self.shard,
            rank=self.rank,
            dtypes=self.dtypes,
            stored=self.stored,
            device=self.device,
            expert_rank=self.expert_rank,
            in_pairs=self.in_pairs,
        )
        weights._kept, weights._scales = dict(self._kept), dict(self._scales)
        return weights

    def get(self, tensor: Tensor, layer: int, like: DType, width: DType | None = None) -> torch.Tensor:
        """The weight that `tensor` names, of `layer`.

        like: the 16-bit type of the program's weights. width: for a scale, the type of the weight that it belongs to.
        """
        name, _, part = tensor.name.rpartition(".")
        if part == "ones":  # of a norm without weights
            return torch.ones(tensor.shape, dtype=self.dtypes[tensor.dtype], device=self.device)
        if part == "scale":
            assert width is not None
            self._quantised(name, layer, like, width)
            return self._scales[name, layer, width]
        if tensor.dtype in ("int8", "int4"):
            return self._quantised(name, layer, like, tensor.dtype)
        key = (tensor.name, layer, tensor.dtype)
        if key not in self._kept:
            value = self._whole(name, part, layer).to(self.stored[tensor.dtype]).to(self.dtypes[tensor.dtype])
            self._kept[key] = self._checked(value.contiguous(), tensor).to(self.device)
        return self._kept[key]

    def _quantised(self, name: str, layer: int, like: DType, width: DType) -> torch.Tensor:
        """Integers of `name`; its scales, one an output, are kept next to them."""
        key = (name, layer, width)
        if key not in self._kept:
            value = self._whole(name, "weight", layer).to(self.stored[like])
            if width == "int4" and value.shape[-1] % 2:
                raise ScenarioError([f"{name}: INT4 lies in pairs, and its rows have {value.shape[-1]} elements"])
            integers, scale = quantise_rows(value, INT8_MAX if width == "int8" else INT4_MAX)
            self._kept[key] = (integers if width == "int8" else pack_int4(integers)).to(self.device)
            self._scales[key] = scale.squeeze(-1).to(self.device)
        return self._kept[key]

    def _checked(self, value: torch.Tensor, tensor: Tensor) -> torch.Tensor:
        if value.shape != tensor.shape:
            raise ScenarioError(
                [f"{tensor.name}: the checkpoint has shape {list(value.shape)}, the model {list(tensor.shape)}"]
            )
        return value

    def _whole(self, name: str, kind: str, layer: int) -> torch.Tensor:
        """This rank's part of `name` in the checkpoint's type; packed projections are put together, experts stacked."""
        prefix, dot, last = name.rpartition(".")
        names = [f"{prefix}{dot}{part}" for part in self._parts(last, layer)]
        experts = self.model.experts
        if prefix != "experts" or experts is None:
            return torch.cat([self._part(part, kind, layer) for part in names])
        held = self.shard.experts.held if self.shard.experts else experts.count
        first = self.expert_rank * held if self.shard.expert_parallel else 0
        numbered = ([part.replace("experts.", f"experts.{i}.") for part in names] for i in range(first, first + held))
        return torch.stack([torch.cat([self._part(part, kind, layer) for part in one]) for one in numbered])

    def _part(self, name: str, kind: str, layer: int) -> torch.Tensor:
        last, latent = name.rpartition(".")[2], self.model.latent
        stored = "weight" if kind in ("k", "v") else kind
        value = self.checkpoint.tensor(name_of(self.model, name, stored, layer))
        if self.model.form.unit_offset and last.endswith("norm") and last not in PLAIN_NORMS and kind != "bias":
            value = value + 1
        if last == "router_norm":
            value = value * self.model.hidden**-0.5
        if last in ("xielu_p", "xielu_n"):
            value = torch.nn.functional.softplus(value.float()) + XIELU_BETA * (last == "xielu_n")
        if last == "conv1d" and value.ndim == 3:
            value = value.squeeze(1)
        if self.model.model_type in PAIRED and last in ("q_proj", "k_proj"):
            value = heads_in_halves(value, self.model.at(layer))
        if self.model.model_type in PAIRED and self.model.qk_norm_of == "own" and last in ("q_norm", "k_norm"):
            value = heads_in_halves(value.flatten(), self.model.at(layer)).view(value.shape)
        if latent and not self.in_pairs:
            value = in_halves(last, value, latent)
        if latent and latent.index:
            value = index_in_halves(last, value, latent)
        if not self._is_whole(name):
            value = self._mine(last, value, layer)
        if last == "o_a_proj":
            value = by_group(value, self.shard)
        return absorbed(kind, value, latent) if latent and kind != stored else value

    def _is_whole(self, name: str) -> bool:
        """Whether a rank holds all of `name` where experts are spread: the routed ones, and the shared one unless its
        sum is reduced with theirs."""
        experts = self.shard.experts
        if not self.shard.expert_parallel or experts is None:
            return False
        return name.startswith("experts.") or (name.startswith("shared.") and not experts.gathered)

    def _parts(self, name: str, layer: int) -> tuple[str, ...]:
        """What a packed projection is made of; values that are keys have no projection of their own."""
        parts = PARTS.get(name, (name,))
        if name == "qkv_proj":
            own = {f"{part}_proj" for part, _ in self.model.at(layer).projections}
            return tuple(part for part in parts if part in own)
        return parts

    def _mine(self, name: str, value: torch.Tensor, layer: int) -> torch.Tensor:
        """What this rank holds of `value`, of `layer`."""
        ranks, rank = self.shard.tensor_parallel, self.rank
        if ranks == 1:
            return value
        kind = self.model.order[layer] if self.model.kinds and 0 <= layer < self.model.layers else -1
        shard, whole = (model.kinds[kind] if model.kinds else model for model in (self.shard, self.model))
        if whole.state is not None and (own := rows_of_rank(whole.state, name, value, ranks, rank)) is not None:
            return own
        if name in ROW_SPLIT:
            if value.ndim == 1:  # a bias joins the sum over the ranks once
                return value if rank == 0 else torch.zeros_like(value)
            return value.chunk(ranks, 1)[rank]
        if shard.qk_norm_of == "own" and name == "k_norm":
            return value[rank * len(value) // ranks :][: shard.kv_heads]
        if shard.qk_norm_of != "head" and name == "q_norm":
            return value.chunk(ranks)[rank]
        if name in KV_SPLIT or (shard.qk_norm_of == "layer" and name == "k_norm"):
            dim = shard.value_dim if name == "v_proj" else shard.head_dim
            heads = value.shape[0] // dim
            first = rank * heads // ranks  # fewer heads than ranks: several ranks hold the same one
            return value[first * dim :][: shard.kv_heads * dim]
        if name in COLUMN_SPLIT:
            rows = -(-value.shape[0] // ranks)
            mine = value[rank * rows : (rank + 1) * rows]
            return torch.cat((mine, mine.new_zeros((rows - mine.shape[0], *mine.shape[1:]))))
        return value
