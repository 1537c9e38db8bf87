"""What the model runner does on the host before each forward: small eager operations, outside any graph.

With a contiguous cache only the position and the mask move on. A paged cache needs the slot of each new token: the list
is the one recorded in the seed's decode profile (torchair ge_graph, Qwen3-8B), 18 aclnn calls, three of them on the AI
CPU, that build mask, lengths, positions and slots.
"""

from __future__ import annotations

from scenarios.ops.program import Batch, Block, Op, Tensor

#: The static causal mask that the fused attention call takes is [2048, 2048] (sparse mode 3), whatever the batch.
MASK_SIDE = 2048


def prepare_contiguous(batch: Batch) -> Block:
    """The preamble with a static cache: the next position, and its column of the mask."""
    lengths = Tensor("lengths", (batch.requests,), "int64")
    return Block(
        "prepare",
        (
            Op("prepare", "prepare.position", (lengths,), (lengths,), op_type="Add"),
            Op("prepare", "prepare.mask_column", (lengths,), (lengths,), op_type="Fill"),
        ),
    )


def prepare_paged(batch: Batch) -> Block:
    """The preamble with a paged cache: 18 ops; the small ones work on a few numbers a request."""
    mask = Tensor("mask_template", (MASK_SIDE, MASK_SIDE), "bool")
    lengths = Tensor("lengths", (batch.requests,), "int64")

    def small(op_type: str, name: str) -> Op:
        return Op("prepare", f"prepare.{name}", (lengths,), (lengths,), op_type=op_type)

    def on_mask(op_type: str, name: str) -> Op:
        return Op("prepare_mask", f"prepare.{name}", (), (mask,), (("mask", True),), op_type=op_type)

    def on_cpu(op_type: str, name: str) -> Op:
        return Op("prepare_cpu", f"prepare.{name}", (lengths,), (lengths,), op_type=op_type)

    return Block(
        "prepare",
        (
            on_mask("OnesLike", "ones"),
            on_mask("Tril", "tril"),
            on_mask("LogicalNot", "invert"),
            small("Add", "kv_length"),
            small("Add", "position"),
            small("Fill", "query_length"),
            on_cpu("Cumsum", "query_offsets"),
            on_cpu("Cumsum", "kv_offsets"),
            small("ZerosLike", "slots"),
            on_cpu("FloorDiv", "block_index"),
            small("BroadcastTo", "block_offset_shape"),
            small("FloorMod", "block_offset"),
            small("ReduceMax", "longest"),
            small("Cast", "index_cast"),
            small("GatherElementsV2", "block_table_lookup"),
            small("Mul", "slot_scale"),
            small("Cast", "slot_cast"),
            small("Add", "slot_add"),
        ),
    )
