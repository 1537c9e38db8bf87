"""Parts of a model: experts, latent attention with its indexer, scaled rotary angles."""

from __future__ import annotations

from typing import Literal

from scenarios.models.forms import Activation
from scenarios.records import dataclass

Score = Literal["softmax", "sigmoid", "sqrtsoftplus"]
#: What one norm of Q or K spans: each head by itself, all heads of a layer (which ranks share), or each head by itself
#: as a layer norm with weights of its own (Command R+).
QkNorm = Literal["head", "layer", "own"]


@dataclass(frozen=True, slots=True)
class Index:
    """The indexer of sparse attention: `heads` of `dim` elements score all keys, and a query attends to the best
    `top_k`. in_pairs: its rotated dimensions lie in pairs in a checkpoint. borrows: the keys are those that an earlier
    layer chose: there is no indexer here (GLM-5.2)."""

    heads: int
    dim: int
    top_k: int
    in_pairs: bool = False
    borrows: bool = False


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (MLA): K and V are kept as one latent row per token, with a rotated part next to it.

    Sizes in elements. q_rank: of the query's low-rank projection, 0 where there is none. kv_rank: of the latent row.
    nope_dim, rope_dim: plain and rotated part of a query head; v_dim: of a value head. index: of sparse attention, None
    where a query attends to all keys.
    """

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    index: Index | None = None

    @property
    def row(self) -> int:
        """Elements that the cache holds of a token in one layer."""
        return self.kv_rank + self.rope_dim

    @property
    def cached(self) -> int:
        """Elements that the caches hold of a token in one layer: the row, and the indexer's key."""
        return self.row + (self.own_index.dim if self.own_index else 0)

    @property
    def own_index(self) -> Index | None:
        """The indexer of this layer; None where it has none or takes over what another chose."""
        return None if self.index is None or self.index.borrows else self.index

    def index_weights(self, hidden: int) -> int:
        """Weights of the indexer's projections: queries, keys and the weights of its heads."""
        index = self.own_index
        return index.heads * (index.dim * self.q_rank + hidden) + hidden * index.dim if index else 0

    @property
    def index_outputs(self) -> int:
        """Outputs of those projections."""
        index = self.own_index
        return index.heads * (index.dim + 1) + index.dim if index else 0


@dataclass(frozen=True, slots=True)
class SharedKv:
    """Attention of DeepSeek-V4: one row of a token is key and value of all heads, kept for a window of tokens; next to
    them each `ratio` tokens leave one compressed row, kept for good.

    q_rank: of the query's low-rank projection. groups, out_rank: heads are projected group by group, to out_rank each,
    before the output projection. ratio: 0 where a layer sees its window alone. index: chooses compressed rows, by keys
    that are compressed in the same way, and windows of compression then overlap; None where all are seen.
    """

    q_rank: int
    groups: int
    out_rank: int
    ratio: int = 0
    index: Index | None = None

    @property
    def parts(self) -> int:
        """Rows that a token is projected to for compression: its part of this row and, where they overlap, of the
        next."""
        return 1 + (self.index is not None)

    @property
    def depth(self) -> int:
        """Tokens whose projections the state of the compressor holds."""
        return self.parts * self.ratio

    def rows(self, tokens: int) -> int:
        """Compressed rows of a request of `tokens`."""
        return tokens // self.ratio if self.ratio else 0

    def row_bytes(self, dim: int) -> int:
        """Of one compressed row: 16 bits an element, and the indexer's key in INT8 with a 16-bit scale."""
        return 2 * dim + (self.index.dim + 2 if self.index else 0)

    def state_bytes(self, dim: int) -> int:
        """Of one request: values and scores of the last tokens, in 32 bits, of the row and of the indexer's key."""
        widths = dim + (self.index.dim if self.index else 0)
        return self.depth * 2 * self.parts * widths * 4

    def quantised(self, hidden: int, heads: int, dim: int) -> int:
        """Weights of the projections that engines quantise: both of the query, the row, the output, the indexer's
        queries."""
        query = self.q_rank * (hidden + heads * dim)
        index = self.index.heads * self.index.dim * self.q_rank if self.index else 0
        return query + hidden * dim + self.groups * self.out_rank * hidden + index

    def outputs(self, hidden: int, heads: int, dim: int) -> int:
        """Outputs of those projections."""
        index = self.index.heads * self.index.dim if self.index else 0
        return self.q_rank + heads * dim + dim + hidden + index

    def others(self, hidden: int, heads: int, dim: int) -> int:
        """Weights that stay in 16 bits: the grouped output projection, the compressors (two projections, a bias of each
        place in a window, a norm), the indexer's weights of heads, two norms and the sinks."""
        size = heads * dim * self.out_rank + self.q_rank + dim + heads
        for width in (dim, *((self.index.dim,) if self.index else ())) if self.ratio else ():
            size += self.parts * width * (2 * hidden + self.ratio) + width
        return size + (self.index.heads * hidden if self.index else 0)


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary angles are changed for contexts longer than a model was first trained on (`rope_scaling`).

    kind: linear, llama3 or yarn; any other is named and not computed. factor: of the context's length.
    original_positions: those of the first training. low_factor, high_factor: of llama3, the wavelengths between which
    frequencies change over, as parts of those positions. beta_fast, beta_slow: the same of yarn, in turns over them.
    truncated: yarn changes over between whole dimensions. mscale, mscale_all_dim: yarn's growth of cosines and sines,
    and of DeepSeek's scores. attention_factor: of cosines and sines where the config gives it itself.
    """

    kind: str
    factor: float = 1.0
    original_positions: int = 0
    low_factor: float = 1.0
    high_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncated: bool = True
    mscale: float = 1.0
    mscale_all_dim: float = 0.0
    attention_factor: float | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """The MLP as a mixture of experts.

    count: routed experts of a layer. held: those on this rank. top_k: experts of one token. intermediate: width of one
    expert (this rank's slice of it). shared: width of the expert that every token takes, 0 for none. dense_layers:
    leading layers with a plain MLP. score: how the router scores. scaled: the routed sum is multiplied by a constant.
    gathered: ranks that hold whole experts see all tokens and sum up, instead of sending tokens to each other. What
    only a real router asks for: factor: that constant. normalised: the weights of a token's experts sum to 1. groups,
    kept_groups: a token chooses among the experts of its best groups. router_bias: the router is a linear layer with a
    bias. bias: so are the experts' projections. activation, limit: of an expert, as of `LayerForm`. shared_gate: the
    shared expert is multiplied by the sigmoid of a projection to one number. weighs_input: weights multiply what an
    expert reads, not what it gives (of one expert a token). with_plain: a plain MLP stands next to the experts, each
    with a norm behind it (Gemma 4). choice_bias: a bias moves the choice (None: of all scores but softmax).
    shared_limit: of the shared expert's SwiGLU, 0 for none, None for that of the others. latent: width that tokens are
    brought to before the routed experts and back from behind them, 0 for none (Nemotron 3 Super). one_per_group: a
    token takes the best expert of each of its `top_k` groups (Pangu Pro MoE). scales_choice: weights are multiplied by
    a learned scale of each expert. hashed: a table says which experts a token of the vocabulary has, whatever the
    scores.
    """

    count: int
    held: int
    top_k: int
    intermediate: int
    shared: int
    dense_layers: int
    score: Score
    scaled: bool
    gathered: bool = False
    factor: float = 1.0
    normalised: bool = True
    groups: int = 1
    kept_groups: int = 1
    router_bias: bool = False
    bias: bool = False
    activation: Activation = "silu"
    limit: float = 0.0
    shared_gate: bool = False
    weighs_input: bool = False
    with_plain: bool = False
    choice_bias: bool | None = None
    shared_limit: float | None = None
    latent: int = 0
    one_per_group: bool = False
    scales_choice: bool = False
    hashed: bool = False

    def reads(self, hidden: int) -> int:
        """Width of what a routed expert reads and gives."""
        return self.latent or hidden

    @property
    def shared_activation(self) -> tuple[Activation, float]:
        """Of the expert that every token takes: its activation and its limit."""
        if self.shared_limit is None:
            return self.activation, self.limit
        return ("capped" if self.shared_limit else "silu"), self.shared_limit

    @property
    def moves_choice(self) -> bool:
        """Whether a bias moves the choice and not the weights."""
        usual = self.score != "softmax" and not self.hashed
        return usual if self.choice_bias is None else self.choice_bias
