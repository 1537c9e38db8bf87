"""What the layers of some families have beyond the usual decoder: plain data, whose defaults are that decoder.

The usual one: pre-norms, grouped-query attention over all keys, rotary angles in each layer, a SwiGLU without biases.
"""

from __future__ import annotations

from typing import Literal

from scenarios.records import dataclass

#: What stands between gate and up of an MLP: silu and gelu gate; clamped is gpt-oss's SwiGLU (alpha 1.702, up + 1,
#: both limited); capped is a SwiGLU whose halves are limited (Step-3.5); relu2
#: squares a relu, gelu_alone is a GELU, and xielu (arXiv:2411.13010) is a parabola above zero and an exponential below:
#: these have no gate at all. limited is capped with the gate limited before its SiLU (DeepSeek-V4).
Activation = Literal["silu", "gelu", "clamped", "capped", "limited", "relu2", "gelu_alone", "xielu"]
#: What opens and closes attention's output: nothing, a part of the query's projection, or a projection of its own with
#: one number for each element or each head.
Gate = Literal["", "packed", "element", "head"]

#: What an MLP projects its input to, by its activation.
PROJECTED: dict[Activation, tuple[str, ...]] = {
    "silu": ("gate", "up"),
    "gelu": ("gate", "up"),
    "clamped": ("gate", "up"),
    "capped": ("gate", "up"),
    "limited": ("gate", "up"),
    "relu2": ("up",),
    "gelu_alone": ("up",),
    "xielu": ("up",),
}

#: Of xIELU: the slope at zero, and the largest number whose exponential is taken (the paper's code).
XIELU_BETA, XIELU_EPS = 0.5, -1e-6
#: Steepness of gpt-oss's gate (its reference code).
CLAMPED_ALPHA = 1.702


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """What attention of a layer has besides projections, rotary angles and softmax.

    window: keys that a query sees at most, its own included, 0 for all. chunk: a query sees the keys of its own chunk
    of so many positions, 0 for all. sinks: a learned score of each head in the softmax that no value belongs to. scale:
    of the scores, 0 for 1 / sqrt(head_dim). soft_cap: scores are cap x tanh(score / cap), 0 for none. gate: what is
    attended is multiplied by the sigmoid of it. out_bias: the output projection has a bias.
    norm_last: Q and K are normed behind the rotary angles. weightless: those norms have no weights. value_norm: values
    are normed too, without weights. keys_are_values: values are the keys before norm and angles. rotates: whether
    queries and keys turn with their position. borrows: K and V are those of an earlier layer. value_dim: elements of a
    value head, 0 for as many as of a key head. value_scale: what values are multiplied by. alibi: heads of the whole
    model whose scores have biases by distance (ALiBi, arXiv:2108.12409), 0 for none. q_rank: of a query's low-rank
    projection with a norm behind its first half, 0 where it has one product.
    """

    window: int = 0
    chunk: int = 0
    sinks: bool = False
    scale: float = 0.0
    soft_cap: float = 0.0
    gate: Gate = ""
    out_bias: bool = False
    norm_last: bool = False
    weightless: bool = False
    value_norm: bool = False
    keys_are_values: bool = False
    rotates: bool = True
    borrows: bool = False
    value_dim: int = 0
    value_scale: float = 1.0
    alibi: int = 0
    q_rank: int = 0

    def kept(self, tokens: int) -> int:
        """Tokens of a request of `tokens` whose K and V the cache must hold."""
        return min(tokens, self.window or self.chunk or tokens)


@dataclass(frozen=True, slots=True)
class HyperConnections:
    """Manifold-constrained hyper-connections (mHC, DeepSeek-V4): the residual is `streams` rows of a token. Attention
    and MLP read a weighed sum of them; what they give is added to each, weighed, behind a mix of the streams by a
    matrix whose rows and columns sum to 1 after `iterations` of Sinkhorn and Knopp. eps: added to what divides."""

    streams: int
    iterations: int
    eps: float

    @property
    def mixed(self) -> int:
        """Numbers that one projection gives for a token: weights of the sum, of what is added, and the matrix."""
        return (2 + self.streams) * self.streams

    def weights(self, hidden: int) -> int:
        """Of the two places of a layer: the projection of all streams, its bias and its three factors."""
        return 2 * (self.mixed * (self.streams * hidden + 1) + 3)

    def head_weights(self, hidden: int) -> int:
        """Of the weighed sum behind the layers."""
        return self.streams * (self.streams * hidden + 1) + 1


@dataclass(frozen=True, slots=True)
class LayerForm:
    """What stands around attention and MLP of a layer.

    attends, has_mlp: whether it has the one and the other (Nemotron-H's layers have one of both). pre_norms: norms
    before them. post_norms: norms behind them, before the residual add. activation: of the MLP. limit: of the clamped,
    capped and limited activation. mlp_bias: its projections have biases; down_bias: the last one has. residual_scale:
    what each of them is multiplied by before it is added. unit_offset: norms multiply by 1 + weight. layer_norm: those
    over the hidden size are layer norms, which take the mean off too; norm_bias: they add a bias. parallel: attention
    and MLP read the same norm. layer_scale: the residual is multiplied by a learned number behind each layer. hyper:
    the residual is several streams, None for one.
    """

    attends: bool = True
    has_mlp: bool = True
    pre_norms: bool = True
    post_norms: bool = False
    activation: Activation = "silu"
    limit: float = 0.0
    mlp_bias: bool = False
    down_bias: bool = False
    residual_scale: float = 1.0
    unit_offset: bool = False
    layer_norm: bool = False
    norm_bias: bool = False
    parallel: bool = False
    layer_scale: bool = False
    hyper: HyperConnections | None = None

    @property
    def streams(self) -> int:
        """Rows of the residual of a token."""
        return self.hyper.streams if self.hyper else 1


@dataclass(frozen=True, slots=True)
class Ends:
    """What stands before and behind the layers. embed_scale: of the embedded tokens. logit_cap: logits are cap x
    tanh(logit / cap), 0 for none. logit_scale: what logits are multiplied by before that."""

    embed_scale: float = 1.0
    logit_cap: float = 0.0
    logit_scale: float = 1.0


#: The usual decoder.
USUAL_ATTENTION, USUAL_LAYER, USUAL_ENDS = AttentionForm(), LayerForm(), Ends()
