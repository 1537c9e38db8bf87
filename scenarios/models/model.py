"""Models: what the lowering, the memory and the weights need to know of a decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scenarios.ops.program import DType

Score = Literal["softmax", "sigmoid"]
#: What one norm of Q or K spans: each head by itself, or all heads of a layer (which ranks share).
QkNorm = Literal["head", "layer"]


@dataclass(frozen=True, slots=True)
class Index:
    """The indexer of sparse attention: `heads` of `dim` elements score all keys, and a query attends to the best
    `top_k`. in_pairs: its rotated dimensions lie in pairs in a checkpoint."""

    heads: int
    dim: int
    top_k: int
    in_pairs: bool = False


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
        return self.row + (self.index.dim if self.index else 0)

    def index_weights(self, hidden: int) -> int:
        """Weights of the indexer's projections: queries, keys and the weights of its heads."""
        if self.index is None:
            return 0
        return self.index.heads * (self.index.dim * self.q_rank + hidden) + hidden * self.index.dim

    @property
    def index_outputs(self) -> int:
        """Outputs of those projections."""
        return self.index.heads * (self.index.dim + 1) + self.index.dim if self.index else 0


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
    gathered: ranks that hold whole experts see all tokens and sum up, instead of sending tokens to each other.
    What only a real router asks for: factor: that constant. normalised: the weights of a token's experts sum to 1.
    groups, kept_groups: a token chooses among the experts of its best groups.
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


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder. Sizes in elements; `layers` decoder layers; `bias` on the QKV projections.

    Of a model split over `tensor_parallel` ranks, heads, kv_heads, intermediate and vocab are those of one rank;
    full_vocab is the whole vocabulary (0 where it is vocab). One that runs in `pipeline_parallel` stages has all its
    layers here; has_embedding and has_head say what one stage holds next to its own (`scenarios.lowering.stages`).
    rotary_dim: dimensions of a head that turn (0: all). rope_scaling: how their angles are scaled, None for not.
    latent: with it kv_heads is 1 and head_dim the rotated part.
    qk_norm_of: what one such norm spans. stored, stored_as: how the checkpoint holds its weights, in words, and the
    `optimizations.weights` nearest to that ("" where they are not quantised). left_out: what the config has besides the
    decoder, in words, "" for nothing.
    experts: those of all but the leading dense layers. data_parallel: replicas of attention; expert_parallel: whether
    whole experts are spread over all ranks of all replicas, which then step together. mtp_layers: prediction layers
    that the checkpoint has next to its decoder layers. joined: of a draft, hidden states that are joined for each token
    (`scenarios.speculation`), 0 for a model that is none.
    """

    name: str
    model_type: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_position: int
    norm_eps: float
    rope_theta: float
    tied_embeddings: bool
    qk_norm: bool
    qkv_bias: bool
    dtype: DType
    tensor_parallel: int = 1
    full_vocab: int = 0
    pipeline_parallel: int = 1
    has_embedding: bool = True
    has_head: bool = True
    rotary_dim: int = 0
    rope_scaling: RopeScaling | None = None
    latent: Latent | None = None
    experts: Experts | None = None
    data_parallel: int = 1
    expert_parallel: bool = False
    qk_norm_of: QkNorm = "head"
    stored: str = ""
    stored_as: str = ""
    left_out: str = ""
    mtp_layers: int = 0
    joined: int = 0

    @property
    def whole_vocab(self) -> int:
        """The vocabulary of the model, over all ranks."""
        return self.full_vocab or self.vocab

    @property
    def ranks(self) -> int:
        """Ranks that step together: a tensor-parallel group, or all groups where experts are spread over them."""
        return self.tensor_parallel * (self.data_parallel if self.expert_parallel else 1)

    @property
    def sends_tokens(self) -> bool:
        """Whether each rank routes its own share of the tokens to the ranks of their experts."""
        return self.expert_parallel and self.ranks > 1 and self.experts is not None and not self.experts.gathered

    @property
    def cards(self) -> int:
        """Cards of the whole deployment."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def rotated(self) -> int:
        """Dimensions of a head that are rotated."""
        return self.rotary_dim or self.head_dim

    @property
    def dense_layers(self) -> int:
        """Layers with a plain MLP."""
        return self.experts.dense_layers if self.experts else self.layers

    @property
    def q_size(self) -> int:
        """Width of the queries of one token."""
        return self.heads * (self.latent.nope_dim + self.latent.rope_dim if self.latent else self.head_dim)

    @property
    def kv_size(self) -> int:
        """Elements of K, and as many of V, of one token in one layer of a grouped-query cache."""
        return self.kv_heads * self.head_dim

    @property
    def qk_norm_size(self) -> int:
        """Weights of a layer's Q and K norms, elements."""
        return 2 * self.head_dim if self.qk_norm_of == "head" else self.q_size + self.kv_size

    @property
    def attended(self) -> int:
        """Width of what attention gives for one token."""
        return self.heads * (self.latent.v_dim if self.latent else self.head_dim)

    @property
    def attention_weights(self) -> int:
        """Weights of the linear layers of one attention, elements (what weight quantisation shrinks)."""
        if self.latent is None:
            return self.hidden * (self.q_size + 2 * self.kv_size) + self.q_size * self.hidden
        latent = self.latent
        query = latent.q_rank * (self.hidden + self.q_size) if latent.q_rank else self.hidden * self.q_size
        return query + self.hidden * latent.row + self.attended * self.hidden + latent.index_weights(self.hidden)

    @property
    def linear_weights(self) -> int:
        """Weights in the linear layers of all decoder layers, elements (what weight quantisation shrinks)."""
        size = self.layers * self.attention_weights + self.dense_layers * 3 * self.hidden * self.intermediate
        if self.experts:
            width = self.experts.held * self.experts.intermediate + self.experts.shared
            size += (self.layers - self.dense_layers) * 3 * self.hidden * width
        return size

    @property
    def linear_outputs(self) -> int:
        """Outputs of all those linear layers, each with one scale where the weights are quantised."""
        if self.latent is None:
            attention = self.q_size + 2 * self.kv_size + self.hidden
        else:
            attention = self.latent.q_rank + self.q_size + self.latent.row + self.hidden + self.latent.index_outputs
        outputs = self.layers * attention + self.dense_layers * (2 * self.intermediate + self.hidden)
        if self.experts:
            experts = self.experts
            routed = experts.held * (2 * experts.intermediate + self.hidden)
            shared = 2 * experts.shared + self.hidden if experts.shared else 0
            outputs += (self.layers - self.dense_layers) * (routed + shared)
        return outputs

    @property
    def other_weights(self) -> int:
        """Embedding, LM head (once where tied), norms, biases, routers and absorbed projections, elements; never
        quantised here."""
        norms = 2 * self.hidden + (self.qk_norm_size if self.qk_norm else 0)
        if self.latent:  # W_UK and W_UV, which attention absorbs, stay in 16 bit
            latent = self.latent
            norms += latent.q_rank + latent.kv_rank + self.heads * latent.kv_rank * (latent.nope_dim + latent.v_dim)
            norms += 2 * latent.index.dim if latent.index else 0  # a layer norm, with its bias
        bias = self.q_size + 2 * self.kv_size if self.qkv_bias else 0
        router = 0
        if self.experts:  # a sigmoid router has a bias that moves the choice
            router = self.experts.count * (self.hidden + (self.experts.score == "sigmoid"))
            router *= self.layers - self.dense_layers
        tables = self.has_embedding + self.has_head
        if self.tied_embeddings and tables == 2:
            tables = 1
        last = self.hidden * self.has_head  # the final norm
        last += self.joined * self.hidden * (self.hidden + 1)  # a draft's joining product, and norms before it
        return self.vocab * self.hidden * tables + self.layers * (norms + bias) + last + router

    def kv_bytes_per_token(self, element_bits: int) -> int:
        """Bytes of K and V that one token adds over all layers, scales not counted."""
        row = self.latent.cached if self.latent else 2 * self.kv_size
        return self.layers * row * element_bits // 8
