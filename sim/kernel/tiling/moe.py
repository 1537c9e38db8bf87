"""Routing of mixture-of-experts layers.

Sources, hicann/ops-transformer at c29bc106: `moe/moe_init_routing_v2/op_host/moe_init_routing_v2_tiling.cpp`,
`moe/moe_init_routing_v3/op_host/moe_init_routing_v3_tiling.cpp`,
`moe/moe_finalize_routing_v2/op_host/moe_finalize_routing_v2_tiling_membase.cpp`,
`moe/moe_gating_top_k/op_host/moe_gating_top_k_tiling.cpp`, `moe/moe_gating_top_k_softmax/op_host/
moe_gating_top_k_softmax_tiling_e_k_full_load.cpp`, `moe/moe_re_routing/op_host/moe_re_routing_membase_tiling.cpp`,
`moe/moe_token_permute/op_host/moe_token_permute_tiling.cpp`, `moe/moe_token_unpermute/op_host/
moe_token_unpermute_tiling.cpp`, and in `mc2/`, each under `op_host/op_tiling/`: `moe_distribute_dispatch_v2_tiling.cpp`
and `moe_distribute_combine_v2_tiling.cpp`. Transcribed only: no block count of them is at hand.
"""

from __future__ import annotations

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread, by_heads_first, by_rows, on_all

#: Elements that one core sorts at once: 32 bytes of UB an element, in multiples of 32.
SORT_BYTES = 32


def moe_init_routing(tokens: int, top_k: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of MoeInitRouting V2 and V3: started on all; rows and elements are those of the copy of expanded tokens."""
    return on_all(by_rows(tokens * top_k, cols, chip.vector_cores), chip.vector_cores)


def moe_init_routing_sort_cores(tokens: int, top_k: int, chip: TilingChip) -> int:
    """Cores that sort the chosen experts: one while they fit it, then a power of four."""
    held = (chip.ub_bytes - chip.vector_cores * 32) // SORT_BYTES // 32 * 32
    wanted = -(-tokens * top_k // held)
    cores = 1
    while cores < wanted:
        cores *= 4
    return min(cores, chip.vector_cores)


def moe_finalize_routing(tokens: int, top_k: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of MoeFinalizeRouting V1 and V2: whole tokens, each the sum of its top_k rows."""
    return by_rows(tokens, top_k * cols, chip.vector_cores)


def moe_gating_top_k(tokens: int, experts: int, chip: TilingChip) -> Spread:
    """Cores of MoeGatingTopK and MoeGatingTopKSoftmax: whole tokens."""
    return by_rows(tokens, experts, chip.vector_cores)


def moe_re_routing(ranks: int, tokens: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of MoeReRouting: whole source ranks, so that of 8 ranks 8 cores copy, whatever the tokens.

    rows and elements: where each rank sent as many tokens.
    """
    dealt = by_rows(ranks, 1, chip.vector_cores)
    rows = min(tokens, dealt.rows * -(-tokens // max(1, ranks)))
    return Spread(dealt.started, dealt.busy, rows, rows * cols)


def moe_token_permute(tokens: int, top_k: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of MoeTokenPermute: started on all; a token is read once and copied top_k times, one token more to some."""
    return on_all(by_heads_first(tokens, top_k * cols, chip.vector_cores), chip.vector_cores)


def moe_distribute(tokens: int, top_k: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of MoeDistributeDispatch and MoeDistributeCombine, V1 and V2: started on all that the stream may take; rows
    and elements are those of the (token, expert) pairs dealt over them."""
    return on_all(by_heads_first(tokens * top_k, cols, chip.vector_cores), chip.vector_cores)


def moe_token_unpermute(tokens: int, top_k: int, cols: int, chip: TilingChip) -> Spread:
    """Cores of MoeTokenUnpermute: one token or more to a core."""
    return by_heads_first(tokens, top_k * cols, chip.vector_cores)
