"""Models: what the lowering, the memory and the weights need to know of a decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

from scenarios.models.forms import (
    PROJECTED,
    USUAL_ATTENTION,
    USUAL_ENDS,
    USUAL_LAYER,
    AttentionForm,
    Ends,
    LayerForm,
)
from scenarios.models.kept import Part
from scenarios.models.parts import Experts, Index, Latent, QkNorm, RopeScaling, Score, SharedKv
from scenarios.models.states import State
from scenarios.ops.program import DType
from scenarios.records import dataclass

__all__ = ["Experts", "Index", "Latent", "Model", "QkNorm", "RopeScaling", "Score", "SharedKv"]


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder. Sizes in elements; `layers` decoder layers; `bias` on the QKV projections.

    Of a model split over `tensor_parallel` ranks, heads, kv_heads, intermediate and vocab are those of one rank;
    full_vocab is the whole vocabulary (0 where it is vocab). One that runs in `pipeline_parallel` stages has all its
    layers here; has_embedding and has_head say what one stage holds next to its own (`scenarios.lowering.stages`).
    rotary_dim: dimensions of a head that turn (0: all). rope_scaling: how their angles are scaled, None for not.
    latent: with it kv_heads is 1 and head_dim the rotated part. shared_kv: one row for keys and values, with compressed
    ones next to it. qk_norm_of: what one such norm spans. stored,
    stored_as: how the checkpoint holds its weights, in words, and the `optimizations.weights` nearest to that ("" where
    they are not quantised); keeps: parts of a layer that it has in 16 bits all the same. left_out: what the config has
    besides the decoder, in words, "" for nothing. attention, form, ends: what the layers, and what stands around them,
    have beyond the usual. state: a recurrent one in place of attention over a cache. kinds, order: of layers that
    differ, the model of one layer of each kind, and the kind of each layer; empty where all are alike. kind: what such
    a kind is called. angles: which rotary angles of the step it turns by, "" for those of the whole model. experts:
    those of all but the leading dense layers. data_parallel: replicas of attention; expert_parallel: whether whole
    experts are spread over all ranks of all replicas, which then step together. mtp_layers: prediction layers that the
    checkpoint has next to its decoder layers. joined: of a draft, hidden states that are joined for each token
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
    shared_kv: SharedKv | None = None
    experts: Experts | None = None
    data_parallel: int = 1
    expert_parallel: bool = False
    qk_norm_of: QkNorm = "head"
    stored: str = ""
    stored_as: str = ""
    keeps: frozenset[Part] = frozenset()
    left_out: str = ""
    mtp_layers: int = 0
    joined: int = 0
    attention: AttentionForm = USUAL_ATTENTION
    form: LayerForm = USUAL_LAYER
    ends: Ends = USUAL_ENDS
    state: State | None = None
    kinds: tuple[Model, ...] = ()
    order: tuple[int, ...] = ()
    kind: str = ""
    angles: str = ""

    @property
    def runs(self) -> tuple[tuple[Model, int], ...]:
        """The layers in order: (the model of one of them, how many that are alike follow each other)."""
        if self.kinds:
            return tuple((self.kinds[kind], len(list(same))) for kind, same in groupby(self.order))
        if self.experts is None:
            return ((self, self.layers),) if self.layers else ()
        dense, sparse = self.experts.dense_layers, self.layers - self.experts.dense_layers
        runs = ((replace(self, experts=None), dense), (self, sparse))
        return tuple((model, count) for model, count in runs if count)

    @property
    def turns(self) -> dict[str, Model]:
        """A layer's model for each set of rotary angles, by the set's name."""
        return {one.angles: one for one in self.kinds or (self,) if one.attention.rotates and one.state is None}

    def at(self, layer: int) -> Model:
        """The model of one layer like `layer`, itself where all are alike."""
        return self.kinds[self.order[layer]] if self.kinds else self

    def part(self, start: int, count: int) -> Model:
        """`count` of its layers from `start` on."""
        experts = self.experts
        if experts and not self.kinds:
            experts = replace(experts, dense_layers=max(0, min(experts.dense_layers - start, count)))
        return replace(self, layers=count, experts=experts, order=self.order[start : start + count])

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
        """Elements of K of one token in one layer of a grouped-query cache."""
        return self.kv_heads * self.head_dim

    @property
    def value_dim(self) -> int:
        """Elements of a value head of grouped-query attention."""
        return self.attention.value_dim or self.head_dim

    @property
    def v_size(self) -> int:
        """Elements of V, as of K."""
        return self.kv_heads * self.value_dim

    @property
    def qk_norm_size(self) -> int:
        """Weights of a layer's Q and K norms, elements: what a norm spans, and of each head where it has its own."""
        return 2 * self.head_dim if self.qk_norm_of == "head" else self.q_size + self.kv_size

    @property
    def attended(self) -> int:
        """Width of what attention gives for one token."""
        if self.shared_kv:
            return self.shared_kv.groups * self.shared_kv.out_rank
        return self.heads * (self.latent.v_dim if self.latent else self.value_dim)

    @property
    def has_cache(self) -> bool:
        """Whether a layer writes K and V (or a latent row) of each token."""
        return self.form.attends and self.state is None and not self.attention.borrows

    @property
    def q_width(self) -> int:
        """Outputs of the query's projection: with a gate of attention's output as many again."""
        return self.q_size * (2 if self.attention.gate == "packed" else 1)

    @property
    def gate_width(self) -> int:
        """Outputs of the projection of attention's gate, 0 where it has none of its own."""
        return {"head": self.heads, "element": self.attended}.get(self.attention.gate, 0)

    @property
    def projections(self) -> tuple[tuple[str, int], ...]:
        """Linear layers of grouped-query attention that read its input, and their outputs."""
        both = (("k", self.kv_size), ("v", self.v_size))
        kv = () if self.attention.borrows else both[:1] if self.attention.keys_are_values else both
        query = ("q_a", self.attention.q_rank) if self.attention.q_rank else ("q", self.q_width)
        return (query, *kv)

    @property
    def attention_weights(self) -> int:
        """Weights of the linear layers of one attention, elements (what weight quantisation shrinks)."""
        if not self.form.attends:
            return 0
        if self.state is not None:
            return self.state.weights(self.hidden)
        if self.shared_kv is not None:
            return self.shared_kv.quantised(self.hidden, self.heads, self.head_dim)
        if self.latent is None:
            inputs = sum(size for _, size in self.projections) + self.gate_width
            low = self.attention.q_rank * self.q_width
            return self.hidden * inputs + low + self.attended * self.hidden
        latent = self.latent
        query = latent.q_rank * (self.hidden + self.q_size) if latent.q_rank else self.hidden * self.q_size
        return query + self.hidden * latent.row + self.attended * self.hidden + latent.index_weights(self.hidden)

    @property
    def _attention_outputs(self) -> int:
        if not self.form.attends:
            return 0
        if self.state is not None:
            return self.state.outputs(self.hidden)
        if self.shared_kv is not None:
            return self.shared_kv.outputs(self.hidden, self.heads, self.head_dim)
        if self.latent is None:
            low = self.q_width if self.attention.q_rank else 0
            return sum(size for _, size in self.projections) + low + self.gate_width + self.hidden
        return self.latent.q_rank + self.q_size + self.latent.row + self.hidden + self.latent.index_outputs

    @property
    def matrices(self) -> int:
        """Projections of a plain MLP: gate, up and down, or the last two."""
        return len(PROJECTED[self.form.activation]) + 1

    @property
    def _mlp_weights(self) -> int:
        """Linear weights of the MLP of one layer: of a layer with experts those of this rank."""
        if not self.form.has_mlp:
            return 0
        experts = self.experts
        if experts is None:
            return self.matrices * self.hidden * self.intermediate
        routed = self.matrices * experts.reads(self.hidden) * experts.held * experts.intermediate
        width = experts.shared + self.intermediate * experts.with_plain
        return routed + self.matrices * self.hidden * width + 2 * self.hidden * experts.latent

    @property
    def _mlp_outputs(self) -> int:
        if not self.form.has_mlp:
            return 0
        wide = self.matrices - 1
        if self.experts is None:
            return wide * self.intermediate + self.hidden
        shared = wide * self.experts.shared + self.hidden if self.experts.shared else 0
        shared += wide * self.intermediate + self.hidden if self.experts.with_plain else 0
        shared += (self.hidden + self.experts.latent) * bool(self.experts.latent)
        return self.experts.held * (wide * self.experts.intermediate + self.experts.reads(self.hidden)) + shared

    @property
    def linear_weights(self) -> int:
        """Weights in the linear layers of all decoder layers, elements (what weight quantisation shrinks)."""
        return sum(count * (one.attention_weights + one._mlp_weights) for one, count in self.runs)

    @property
    def linear_outputs(self) -> int:
        """Outputs of all those linear layers, each with one scale where the weights are quantised."""
        return sum(count * (one._attention_outputs + one._mlp_outputs) for one, count in self.runs)

    def kept_in(self, weights: str) -> frozenset[Part]:
        """Parts of a layer that stay in 16 bits where linear layers are computed as `weights`: those of the checkpoint
        where that is its format."""
        return self.keeps if weights == self.stored_as else frozenset()

    def kept_weights(self, parts: frozenset[Part]) -> tuple[int, int]:
        """(weights, outputs) of the linear layers of `parts` in all decoder layers."""
        sizes = [(count, one._of_part(part)) for one, count in self.runs for part in parts]
        return sum(count * size for count, (size, _) in sizes), sum(count * outputs for count, (_, outputs) in sizes)

    def _of_part(self, part: Part) -> tuple[int, int]:
        """(weights, outputs) of the linear layers of one part of this layer, or of one product of it."""
        part, _, product = part.partition(".")
        if product:
            return self._of_product(part, product)
        if part == "attention":
            return self.attention_weights, self._attention_outputs
        experts = self.experts
        if part == "mlp" and experts is None:
            return self._mlp_weights, self._mlp_outputs
        if part == "experts":
            return self._routed
        width = 0
        if experts:
            width = experts.shared if part == "shared" else self.intermediate * experts.with_plain
        return self.matrices * self.hidden * width, ((self.matrices - 1) * width + self.hidden) * bool(width)

    @property
    def _routed(self) -> tuple[int, int]:
        """(weights, outputs) of the routed experts of this layer."""
        experts = self.experts
        if experts is None or not self.form.has_mlp:
            return 0, 0
        reads = experts.reads(self.hidden)
        outputs = experts.held * ((self.matrices - 1) * experts.intermediate + reads)
        return self.matrices * reads * experts.held * experts.intermediate, outputs

    def _of_product(self, part: Part, product: str) -> tuple[int, int]:
        """(weights, outputs) of one product of a part: those of a part have as many weights each but for attention."""
        if part == "attention":
            sizes = self._attention_products.get(product, (0, 0))
            return sizes[0] * sizes[1], sizes[1]
        weights, outputs = self._of_part(part)
        narrow = product == "down_proj"
        each = self.hidden if part != "experts" or self.experts is None else self.experts.reads(self.hidden)
        down = each * (self.experts.held if part == "experts" and self.experts else 1) * bool(weights)
        return weights // self.matrices, down if narrow else (outputs - down) // (self.matrices - 1)

    @property
    def _attention_products(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of the products of this layer's attention, by name."""
        if not self.form.attends:
            return {}
        if self.state is not None:
            return {"o_proj": (self.state.weights(self.hidden) // self.hidden - self._state_inputs, self.hidden)}
        out = {"o_proj": (self.attended, self.hidden)}
        if self.shared_kv is not None:
            rank = self.shared_kv.q_rank
            low = {"q_a_proj": (self.hidden, rank), "q_b_proj": (rank, self.q_size)}
            return out | low | {"kv_proj": (self.hidden, self.head_dim)}
        if self.latent is None:
            low = {"q_b_proj": (self.attention.q_rank, self.q_width)} if self.attention.q_rank else {}
            return out | low | {f"{name}_proj": (self.hidden, size) for name, size in self.projections}
        latent = self.latent
        low = {"q_a_proj": (self.hidden, latent.q_rank), "q_b_proj": (latent.q_rank, self.q_size)}
        query = low if latent.q_rank else {"q_proj": (self.hidden, self.q_size)}
        return out | query | {"kv_a_proj": (self.hidden, latent.row)}

    @property
    def _state_inputs(self) -> int:
        """Outputs of the products that a layer with a state reads its input with."""
        return self.state.outputs(self.hidden) - self.hidden if self.state else 0

    @property
    def _attention_others(self) -> int:
        """Norms and biases inside attention, of latent attention the absorbed projections, of one layer."""
        if not self.form.attends:
            return 0
        if self.state is not None:
            return self.state.other_weights
        if self.shared_kv is not None:
            return self.shared_kv.others(self.hidden, self.heads, self.head_dim)
        size = self.attention.q_rank + (self.qk_norm_size if self.qk_norm and not self.attention.weightless else 0)
        if self.latent:  # W_UK and W_UV, which attention absorbs, stay in 16 bit
            latent = self.latent
            size += latent.q_rank + latent.kv_rank + self.heads * latent.kv_rank * (latent.nope_dim + latent.v_dim)
            size += 2 * latent.own_index.dim if latent.own_index else 0  # a layer norm, with its bias
        if self.qkv_bias:
            size += sum(width for _, width in self.projections)
        return size + self.heads * self.attention.sinks + self.hidden * self.attention.out_bias

    @property
    def _mlp_others(self) -> int:
        """Router, gate of the shared expert and biases of the MLP of one layer."""
        if not self.form.has_mlp:
            return 0
        experts = self.experts
        if experts is None:
            biases = self._mlp_outputs * self.form.mlp_bias or self.hidden * self.form.down_bias
            return biases + 2 * (self.form.activation == "xielu")  # its two numbers
        router = experts.count * (self.hidden + experts.router_bias + experts.moves_choice)
        # Next to a plain MLP: three norms more, and the router's own.
        alongside = 4 * self.hidden * experts.with_plain + experts.count * experts.scales_choice
        return router + self.hidden * experts.shared_gate + self._mlp_outputs * experts.bias + alongside

    @property
    def norms_of_layer(self) -> int:
        """Norms over the hidden size around attention and MLP."""
        before = 1 if self.form.parallel else self.form.attends + self.form.has_mlp
        return before * self.form.pre_norms + (self.form.attends + self.form.has_mlp) * self.form.post_norms

    @property
    def norm_size(self) -> int:
        """Weights of one of them."""
        return self.hidden * (1 + self.form.norm_bias)

    @property
    def other_weights(self) -> int:
        """Embedding, LM head (once where tied), norms, biases, routers and absorbed projections, elements; never
        quantised here."""
        layers = sum(
            count
            * (one.norms_of_layer * self.norm_size + one._attention_others + one._mlp_others + one.form.layer_scale)
            for one, count in self.runs
        )
        if hyper := self.form.hyper:  # engines keep these in 32 bits: 0.02 % of DeepSeek-V4's bytes
            layers += self.layers * hyper.weights(self.hidden) + self.has_head * hyper.head_weights(self.hidden)
        tables = self.has_embedding + self.has_head
        if self.tied_embeddings and tables == 2:
            tables = 1
        last = self.norm_size * self.has_head  # the final norm
        last += self.joined * self.hidden * (self.hidden + 1)  # a draft's joining product, and norms before it
        return self.vocab * self.hidden * tables + layers + last

    @property
    def cached_elements(self) -> int:
        """Elements of K and V (or of the latent row) that one layer keeps of a token."""
        if not self.has_cache:
            return 0
        if self.shared_kv:
            return self.head_dim
        return self.latent.cached if self.latent else self.kv_size + self.v_size

    @property
    def compressed_bytes_per_token(self) -> float:
        """Bytes that a token adds to the compressed rows of one layer, for good."""
        shared = self.shared_kv
        return shared.row_bytes(self.head_dim) / shared.ratio if shared and shared.ratio else 0.0

    @property
    def fixed_bytes(self) -> int:
        """Bytes that one layer keeps of a request whatever its length."""
        compressing = self.shared_kv.state_bytes(self.head_dim) if self.shared_kv else 0
        return compressing + (self.state.state_bytes if self.state else 0)

    def _kept_bytes(self, tokens: int, bytes_per_token: int) -> int:
        """Bytes that one layer keeps of a request of `tokens`."""
        if self.state:
            return self.fixed_bytes
        rows = self.shared_kv.rows(tokens) * self.shared_kv.row_bytes(self.head_dim) if self.shared_kv else 0
        return self.attention.kept(tokens) * bytes_per_token + rows + self.fixed_bytes

    def kv_bytes_per_token(self, element_bits: int) -> int:
        """Bytes of K and V that one token adds over all layers, scales not counted; of layers with windows, until those
        are full."""
        compressed = sum(count * one.compressed_bytes_per_token for one, count in self.runs)
        return sum(count * one.cached_elements for one, count in self.runs) * element_bits // 8 + int(compressed)

    def kept_bytes(self, tokens: int, bytes_per_token: Callable[[Model], int]) -> int:
        """Bytes of the caches of a request of `tokens`: each layer holds what it can still see, or its state.

        bytes_per_token: of one layer that keeps K and V, compressed rows apart.
        """
        return sum(count * one._kept_bytes(tokens, bytes_per_token(one)) for one, count in self.runs)
