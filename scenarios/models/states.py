"""Layers that keep a state of each request in place of keys and values: what they hold, and what a rank has of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from scenarios.records import dataclass

StateDType = Literal["bf16", "fp16", "fp32"]


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
    def decays_by_element(self) -> bool:
        """Whether each element of a key has a decay of its own."""
        return False

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

    @property
    def matrix(self) -> tuple[int, int, int]:
        """The recurrent state of a request: heads, and the two sides of the matrix of each."""
        return self.value_heads, self.key_dim, self.value_dim

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


@dataclass(frozen=True, slots=True)
class KimiDelta(GatedDelta):
    """A layer of Kimi Delta Attention (arXiv:2510.26692): as many heads of keys as of values; each element of a key has
    a decay of its own. rank: of the projections of decay and gate."""

    rank: int = 128

    @property
    def decays_by_element(self) -> bool:
        return True

    def weights(self, hidden: int) -> int:
        """Of its linear layers: Q, K, V and beta, both projections of decay and of gate, and the output."""
        low = self.rank * (2 * hidden + self.keys + self.values)
        return hidden * (self.channels + self.value_heads) + low + self.values * hidden

    def outputs(self, hidden: int) -> int:
        return self.channels + self.value_heads + 2 * self.rank + self.keys + self.values + hidden

    @property
    def other_weights(self) -> int:
        """Convolution, decay of each head, bias of each element, norm of the output."""
        return self.channels * self.kernel + self.value_heads + self.keys + self.value_dim


@dataclass(frozen=True, slots=True)
class Mamba2:
    """A Mamba-2 layer (arXiv:2405.21060): `heads` of `head_dim` channels, each with a state of `state_dim` a channel;
    `groups` of heads share B and C. kernel: width of the causal convolution. chunk: tokens that a prefill takes at
    once.
    """

    heads: int
    head_dim: int
    groups: int
    state_dim: int
    kernel: int
    chunk: int = 256
    dtype: StateDType = "bf16"

    def shard(self, ranks: int) -> Mamba2:
        return replace(self, heads=self.heads // ranks, groups=self.groups // ranks)

    def problems(self, ranks: int) -> Iterator[str]:
        """Why its heads do not divide by `ranks`; groups have their own norm, and are not cut."""
        if self.heads % ranks or self.groups % ranks:
            yield f"{self.heads} Mamba heads in {self.groups} groups do not divide by {ranks}"

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Of the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state_dim

    @property
    def matrix(self) -> tuple[int, int, int]:
        return self.heads, self.head_dim, self.state_dim

    def weights(self, hidden: int) -> int:
        """Of its linear layers: gate, x, B, C and time step of each head, and the output."""
        return hidden * (self.inner + self.channels + self.heads) + self.inner * hidden

    def outputs(self, hidden: int) -> int:
        return self.inner + self.channels + self.heads + hidden

    @property
    def other_weights(self) -> int:
        """Convolution with its bias; decay, skip and time bias of each head; the norm."""
        return self.channels * (self.kernel + 1) + 3 * self.heads + self.inner

    @property
    def state_bytes(self) -> int:
        return state_bytes(self.matrix, self.dtype) + (self.kernel - 1) * self.channels * 2


@dataclass(frozen=True, slots=True)
class ShortConv:
    """A gated short convolution (LFM2): `channels`, each over the last `kernel` tokens; it has no other state."""

    channels: int
    kernel: int

    def shard(self, ranks: int) -> ShortConv:
        return replace(self, channels=self.channels // ranks)

    def problems(self, ranks: int) -> Iterator[str]:
        if self.channels % ranks:
            yield f"{self.channels} channels do not divide by {ranks}"

    @property
    def matrix(self) -> None:
        return None

    def weights(self, hidden: int) -> int:
        return 4 * hidden * self.channels

    def outputs(self, hidden: int) -> int:
        return 3 * self.channels + hidden

    @property
    def other_weights(self) -> int:
        return self.channels * self.kernel

    @property
    def state_bytes(self) -> int:
        return (self.kernel - 1) * self.channels * 2


State = GatedDelta | Mamba2 | ShortConv


def state_bytes(matrix: tuple[int, int, int], dtype: StateDType) -> int:
    """Of a state of one request in one layer."""
    return matrix[0] * matrix[1] * matrix[2] * (4 if dtype == "fp32" else 2)
