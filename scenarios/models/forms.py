"""What the layers of some families have beyond the usual decoder: plain data, whose defaults are that decoder.

The usual one: pre-norms, grouped-query attention over all keys, rotary angles in each layer, a SwiGLU without biases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

#: What stands between gate and up of an MLP: silu and gelu gate; clamped is gpt-oss's SwiGLU (alpha 1.702, up + 1,
#: both limited); relu2 squares a relu and has no gate at all.
Activation = Literal["silu", "gelu", "clamped", "relu2"]
StateDType = Literal["bf16", "fp16", "fp32"]

#: Steepness of gpt-oss's gate (its reference code).
CLAMPED_ALPHA = 1.702


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """What attention of a layer has besides projections, rotary angles and softmax.

    window: keys that a query sees at most, its own included, 0 for all. chunk: a query sees the keys of its own chunk
    of so many positions, 0 for all. sinks: a learned score of each head in the softmax that no value belongs to. scale:
    of the scores, 0 for 1 / sqrt(head_dim). soft_cap: scores are cap x tanh(score / cap), 0 for none. gated: what is
    attended is multiplied by the sigmoid of a further projection. out_bias: the output projection has a bias.
    norm_last: Q and K are normed behind the rotary angles. weightless: those norms have no weights. value_norm: values
    are normed too, without weights. keys_are_values: values are the keys before norm and angles. rotates: whether
    queries and keys turn with their position. borrows: K and V are those of an earlier layer.
    """

    window: int = 0
    chunk: int = 0
    sinks: bool = False
    scale: float = 0.0
    soft_cap: float = 0.0
    gated: bool = False
    out_bias: bool = False
    norm_last: bool = False
    weightless: bool = False
    value_norm: bool = False
    keys_are_values: bool = False
    rotates: bool = True
    borrows: bool = False

    def kept(self, tokens: int) -> int:
        """Tokens of a request of `tokens` whose K and V the cache must hold."""
        return min(tokens, self.window or self.chunk or tokens)


@dataclass(frozen=True, slots=True)
class LayerForm:
    """What stands around attention and MLP of a layer.

    attends, has_mlp: whether it has the one and the other (Nemotron-H's layers have one of both). pre_norms: norms
    before them. post_norms: norms behind them, before the residual add. activation: of the MLP. limit: of the clamped
    activation. mlp_bias: its projections have biases. residual_scale: what each of them is multiplied by before it is
    added. unit_offset: norms multiply by 1 + weight.
    """

    attends: bool = True
    has_mlp: bool = True
    pre_norms: bool = True
    post_norms: bool = False
    activation: Activation = "silu"
    limit: float = 0.0
    mlp_bias: bool = False
    residual_scale: float = 1.0
    unit_offset: bool = False


@dataclass(frozen=True, slots=True)
class Ends:
    """What stands before and behind the layers. embed_scale: of the embedded tokens. logit_cap: logits are cap x
    tanh(logit / cap), 0 for none. logit_scale: what logits are multiplied by before that."""

    embed_scale: float = 1.0
    logit_cap: float = 0.0
    logit_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """A layer of the gated delta rule (Gated DeltaNet, arXiv:2412.06464): a state of each value head in place of keys.

    key_heads, value_heads: of this rank, each of key_dim and value_dim elements; a key head serves several value heads.
    kernel: width of the causal convolution over Q, K and V. dtype: of the state in memory. interleaved: a checkpoint
    holds Q, K, V and gate of a key head next to each other (Qwen3-Next), not each by itself (Qwen3.5).
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    dtype: StateDType = "fp32"
    interleaved: bool = False

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Of the convolution: queries, keys and values."""
        return 2 * self.keys + self.values

    def shard(self, ranks: int) -> GatedDelta:
        """What one of `ranks` holds of it: whole heads."""
        return replace(self, key_heads=self.key_heads // ranks, value_heads=self.value_heads // ranks)

    def problems(self, ranks: int) -> Iterator[str]:
        """Why its heads do not divide by `ranks`."""
        if self.key_heads % ranks or self.value_heads % ranks:
            yield f"{self.key_heads} key heads and {self.value_heads} value heads of its state do not divide by {ranks}"

    def weights(self, hidden: int) -> int:
        """Of its linear layers: Q, K, V, the gate of the output, its two scalars a head, and the output."""
        return hidden * (self.channels + self.values + 2 * self.value_heads) + self.values * hidden

    def outputs(self, hidden: int) -> int:
        return self.channels + self.values + 2 * self.value_heads + hidden

    @property
    def other_weights(self) -> int:
        """Convolution, decay and time bias of each head, norm of the output."""
        return self.channels * self.kernel + 2 * self.value_heads + self.value_dim

    @property
    def state_bytes(self) -> int:
        """Of one request in one layer: the recurrent state, and the last inputs of the convolution in 16 bits."""
        size = 4 if self.dtype == "fp32" else 2
        return self.value_heads * self.key_dim * self.value_dim * size + (self.kernel - 1) * self.channels * 2


#: The usual decoder.
USUAL_ATTENTION, USUAL_LAYER, USUAL_ENDS = AttentionForm(), LayerForm(), Ends()
