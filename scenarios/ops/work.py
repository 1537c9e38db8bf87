"""What an operation asks of a device, whatever the device: element counts, flops and bytes. No times.

The catalogue makes a `Work` from an `Op`; the simulator prices it, reports compare it to a roofline.
"""

from __future__ import annotations

from typing import Literal

from scenarios.ops.program import DType, Format, Group
from scenarios.records import dataclass

Unit = Literal["cube", "vector", "mix", "ai_cpu", "copy", "link"]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
Exchange = Literal["moe_dispatch", "moe_combine"]


@dataclass(frozen=True, slots=True)
class MatmulShape:
    """`batch` products [m, k] x [k, n]; the right side is a weight (cold, in HBM) or an activation.

    weight_rows: what its rows in memory are, `n` (as PyTorch keeps a linear layer) or `k` (transposed ahead, as a graph
    compiler keeps constants). It decides how a library lays the product over the cores.
    """

    batch: int
    m: int
    k: int
    n: int
    dtype: DType
    weight_dtype: DType
    weight_format: Format
    weight_rows: Literal["n", "k"] = "n"


@dataclass(frozen=True, slots=True)
class FfnShape:
    """A gated feed-forward layer in one kernel: [m, hidden] x [hidden, 2 intermediate], halves gated to
    [m, intermediate], x [intermediate, hidden]."""

    m: int
    hidden: int
    intermediate: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class RowsShape:
    """`rows` independent rows of `cols` elements; each row is reduced as a whole, so a core takes whole rows."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class FlatShape:
    """`elements` independent elements that may be cut anywhere.

    cols: length of the last dimension, 0 where unknown. widest_bytes: of the widest type that the kernel computes with
    (BF16 is computed in FP32).
    """

    elements: int
    cols: int = 0
    widest_bytes: int = 4


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Fused attention over groups of requests; `block_size` 0 means a contiguous cache.

    static_tokens: rows of each request in a static cache that the kernel reads whole, whatever the lengths, because it
    gets a mask and no lengths (IncreFlashAttention in a static graph); 0 where it reads what there is.
    cache_prefetched: the cache has been on its way into L2 since it was last written.
    """

    groups: tuple[Group, ...]
    heads: int
    kv_heads: int
    head_dim: int
    kv_dtype: DType
    block_size: int
    static_tokens: int = 0
    cache_prefetched: bool = False


@dataclass(frozen=True, slots=True)
class FixedShape:
    """A kernel whose time does not depend on a shape (AI CPU kernels of the preamble, the graph's parameter update)."""

    key: str


@dataclass(frozen=True, slots=True)
class CollectiveShape:
    """A collective over `ranks`; `bytes` of the whole tensor: what is reduced, what is there after gathering, or what
    one rank sends to all.

    The ranks are dies first, first + stride, and so on, numbered through the cluster. imbalance: bytes of the busiest
    rank over the mean, of an all-to-all. mode: the expansion mode asked for.
    """

    op: Collective
    bytes: int
    ranks: int
    first: int = 0
    stride: int = 1
    imbalance: float = 1.0
    mode: str = "auto"


@dataclass(frozen=True, slots=True)
class GroupedShape:
    """Products [load, k] x [k, n], one for each expert that has a load; `loads` fall."""

    loads: tuple[int, ...]
    k: int
    n: int
    dtype: DType
    weight_dtype: DType
    weight_format: Format


@dataclass(frozen=True, slots=True)
class ExchangeShape:
    """Rows between a rank's tokens and their experts on `ranks` ranks: `tokens` of this rank, `top_k` rows of `hidden`
    elements each. core_share: of the vector cores, what the kernel may take."""

    op: Exchange
    tokens: int
    top_k: int
    hidden: int
    dtype: DType
    ranks: int
    core_share: float = 1.0


@dataclass(frozen=True, slots=True)
class MatmulCollectiveShape:
    """A product whose rows are reduced over the ranks while later rows are still multiplied, in one kernel."""

    matmul: MatmulShape
    collective: CollectiveShape


Shape = (
    ExchangeShape
    | MatmulCollectiveShape
    | GroupedShape
    | CollectiveShape
    | MatmulShape
    | FfnShape
    | RowsShape
    | FlatShape
    | AttentionShape
    | FixedShape
)


@dataclass(frozen=True, slots=True)
class Work:
    """The demand of one kernel.

    cube_flops: multiply and add counted apart. vector_ops: element operations. cold_read_bytes: weights, KV cache and
    tables, which come from HBM. warm_read_bytes: activations that an earlier kernel has just written; they come from L2
    where they fit. write_bytes: outputs. All bytes are those that cross the border of the cores (global memory), once
    each. program: which kernel program runs it (a kind of the catalogue or a program of the hardware profile; "" picks
    one by the shape). pieces: separate runs of memory that the traffic is cut into where it is not contiguous (slices,
    transposes); each costs a DMA start. prefetched_bytes: part of the cold reads that a prefetch has sent to L2 ahead,
    together with prefetched_together_bytes in all (more than L2 keeps is lost again before it is read).
    """

    unit: Unit
    shape: Shape
    cube_flops: int = 0
    vector_ops: int = 0
    cold_read_bytes: int = 0
    warm_read_bytes: int = 0
    write_bytes: int = 0
    program: str = ""
    pieces: int = 0
    prefetched_bytes: int = 0
    prefetched_together_bytes: int = 0

    @property
    def gm_bytes(self) -> int:
        """Global-memory traffic: HBM and L2 together, bytes."""
        return self.cold_read_bytes + self.warm_read_bytes + self.write_bytes
