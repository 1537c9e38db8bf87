"""The host's preparation of a step, op by op: lengths, positions, mask, and the slots of a paged cache.

The Program calls each of these `lengths` -> `lengths`; here each is the torch call that its name says, on the values of
`Step.values` that the runner sets before the step: `lengths` (tokens of each request in the cache), `token_context` and
`token_offset` (of each row: tokens of its request before the step, its place among the new ones), `token_blocks` (of
each row: its request's block table), `mask` and `mask_column`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.step import Step
from scenarios.ops.program import Op

Values = dict[str, torch.Tensor]


def _positions(values: Values, _: Step) -> None:
    torch.add(values["token_context"], values["token_offset"], out=values["positions"])


def _mask_column(values: Values, _: Step) -> None:
    values["mask"][..., -1].copy_(values["mask_column"])


def _kv_length(values: Values, _: Step) -> None:
    values["kv_lengths"] = values["lengths"] + values["queries"]


def _query_length(values: Values, step: Step) -> None:
    values["query_lengths"] = torch.full_like(values["queries"], step.layout.longest_query)


def _query_offsets(values: Values, _: Step) -> None:
    values["query_offsets"] = values["queries"].cumsum(0)


def _kv_offsets(values: Values, _: Step) -> None:
    values["kv_offsets"] = values["kv_lengths"].cumsum(0)


def _slots(values: Values, _: Step) -> None:
    values["slots"] = torch.zeros_like(values["positions"])


def _block_index(values: Values, _: Step) -> None:
    values["block_index"] = values["positions"] // values["block_size"]


def _block_sizes(values: Values, _: Step) -> None:
    values["block_sizes"] = values["block_size"].expand(values["positions"].shape).contiguous()


def _block_offset(values: Values, _: Step) -> None:
    values["block_offset"] = values["positions"] % values["block_sizes"]


def _longest(values: Values, _: Step) -> None:
    values["longest"] = values["kv_lengths"].max()


def _index_cast(values: Values, _: Step) -> None:
    values["block_index"] = values["block_index"].to(torch.int64).unsqueeze(-1)


def _block_of_token(values: Values, _: Step) -> None:
    values["block"] = values["token_blocks"].gather(1, values["block_index"]).squeeze(-1)


def _slot_scale(values: Values, _: Step) -> None:
    values["block_start"] = values["block"] * values["block_sizes"]


def _slot_cast(values: Values, _: Step) -> None:
    values["block_start"] = values["block_start"].to(torch.int64)


def _slot_add(values: Values, _: Step) -> None:
    torch.add(values["block_start"], values["block_offset"], out=values["slots"])


SMALL: dict[str, Callable[[Values, Step], None]] = {
    "prepare.position": _positions,
    "prepare.mask_column": _mask_column,
    "prepare.kv_length": _kv_length,
    "prepare.query_length": _query_length,
    "prepare.query_offsets": _query_offsets,
    "prepare.kv_offsets": _kv_offsets,
    "prepare.slots": _slots,
    "prepare.block_index": _block_index,
    "prepare.block_offset_shape": _block_sizes,
    "prepare.block_offset": _block_offset,
    "prepare.longest": _longest,
    "prepare.index_cast": _index_cast,
    "prepare.block_table_lookup": _block_of_token,
    "prepare.slot_scale": _slot_scale,
    "prepare.slot_cast": _slot_cast,
    "prepare.slot_add": _slot_add,
}


def _prepare(op: Op, inputs: Inputs, step: Step) -> Outputs:
    SMALL[op.name](step.values, step)
    return tuple(inputs)


def _prepare_mask(op: Op, _: Inputs, step: Step) -> Outputs:
    """The template of the causal mask: True where a key is hidden."""
    side = op.out.shape
    match op.name:
        case "prepare.ones":
            return (torch.ones(side, dtype=torch.bool, device=step.values["lengths"].device),)
        case "prepare.tril":
            return (step.values["mask_template"].tril(),)
        case "prepare.invert":
            return (step.values["mask_template"].logical_not(),)
    raise KeyError(op.name)


def _graph_parameters(op: Op, inputs: Inputs, _: Step) -> Outputs:
    """The lengths into the fixed buffer that a graph reads its parameters from."""
    buffer = inputs[0].new_zeros(op.out.shape)
    buffer[: inputs[0].shape[0]] = inputs[0][: buffer.shape[0]]
    return (buffer,)


KERNELS = {
    "prepare": Kernel(_prepare),
    "prepare_cpu": Kernel(_prepare),
    "prepare_mask": Kernel(_prepare_mask),
    "graph_parameters": Kernel(_graph_parameters, "composed"),
}
