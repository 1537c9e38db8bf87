"""What the host gives a step: token ids, lengths, masks, tables. The Program's own preparation works on these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from device.operators.attention import by_distance, in_sight, visible_keys
from device.run.kv_cache import KvTensors
from device.run.runner import read_tensor, reads, rows_of
from device.run.windows import batches
from device.step.rotary import angle_scale, frequencies
from device.step.step import ALONE, Groups, Layout, Step
from scenarios.models.model import Model
from scenarios.ops.counting import whole_number
from scenarios.ops.program import DType, Op, Program


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one step: their numbers, the tokens of each that are in the cache, and its new ones."""

    numbers: tuple[int, ...]
    contexts: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]

    @property
    def queries(self) -> tuple[int, ...]:
        return tuple(len(tokens) for tokens in self.tokens)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step runs: the device, how it holds the Program's types, and this rank among the others."""

    device: torch.device
    dtypes: Mapping[DType, torch.dtype]
    groups: Groups = ALONE

    @property
    def rank(self) -> int:
        """Among the ranks that share each layer."""
        return self.groups.tensor.rank if self.groups.tensor else 0

    def numbers(self, values: Sequence[object], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """A tensor of `values` on the device."""
        return self.moved(torch.tensor(values, dtype=dtype))

    def moved(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor of the host on the device; to a GPU from pinned memory, so that the host need not wait."""
        if self.device.type == "cuda":
            return value.pin_memory().to(self.device, non_blocking=True)
        return value.to(self.device)


def step_of(
    program: Program, requests: Requests, cache: KvTensors, model: Model, place: Place, act: DType, seed: int
) -> Step:
    """The step that `program` makes of `requests`, whose tokens the cache's allocator has placed already."""
    layout = Layout(
        requests.numbers, cache.rows(requests.numbers), requests.queries, requests.contexts, rows_of(program)
    )
    values = _tokens(layout, requests, place)
    values |= _cache_places(layout, cache, place)
    visible = _visible(layout, place)
    values |= _mask(program, layout, visible, place, act)
    values |= _tables(program, model, place, act)
    values |= _sampling(program, layout, model, place, seed)
    start = place.rank * model.vocab
    whole = Step(
        layout,
        place.dtypes,
        values=values,
        model=model,
        visible=visible,
        causal=_causal(layout),
        vocab_start=start,
        groups=place.groups,
    )
    parts = (
        replace(whole, layout=part, visible=_visible(part, place), causal=_causal(part))
        for part in _part_layouts(program, layout)
    )
    return replace(whole, parts=tuple(parts))


def _causal(layout: Layout) -> bool:
    """Whether what is seen is the plain triangle."""
    return layout.is_uniform and not layout.contexts[0] and layout.queries[0] > 1


def _part_layouts(program: Program, layout: Layout) -> Iterator[Layout]:
    """The layouts of the micro-batches of `program`, request by request in their order; a prompt that is cut stays in
    its row of the cache."""
    first = 0
    for batch in batches(program):
        pairs = [(group.query, group.context) for group in batch.groups for _ in range(group.count)]
        of = slice(first, first + len(pairs))
        first += len(pairs) if len(layout.requests) > 1 else 0
        queries, contexts = (tuple(pair[i] for pair in pairs) for i in (0, 1))
        yield Layout(layout.requests[of], layout.cache_rows[of], queries, contexts, batch.tokens)


def _tokens(layout: Layout, requests: Requests, place: Place) -> dict[str, torch.Tensor]:
    padding = [0] * (layout.rows - layout.tokens)
    pairs = list(zip(layout.contexts, layout.queries, strict=True))
    ends = torch.tensor(layout.queries).cumsum(0) - 1
    return {
        "input_ids": place.numbers([*(t for tokens in requests.tokens for t in tokens), *padding]),
        "positions": place.numbers([0] * layout.rows),
        "token_context": place.numbers([*(c for c, q in pairs for _ in range(q)), *padding]),
        "token_offset": place.numbers([*(i for _, q in pairs for i in range(q)), *padding]),
        "lengths": place.numbers(layout.contexts),
        "queries": place.numbers(layout.queries),
        "last_index": place.moved(ends),
    }


def _cache_places(layout: Layout, cache: KvTensors, place: Place) -> dict[str, torch.Tensor]:
    """The slots of a contiguous cache; what a paged one's are found from. Padding goes to the spare place."""
    spare = layout.rows - layout.tokens
    if not cache.block_size:
        slots = cache.slots(layout.requests, layout.contexts, layout.queries)
        return {"slots": place.numbers([*slots, *[cache.spare_slot] * spare])}
    tables = cache.block_table(layout.requests)
    unused = [cache.spare_slot // cache.block_size] * cache.blocks_per_request
    by_row = [table for table, q in zip(tables, layout.queries, strict=True) for _ in range(q)]
    return {
        "block_table": place.numbers(tables, torch.int32),
        "token_blocks": place.numbers([*by_row, *[unused] * spare], torch.int32),
        "block_size": place.moved(torch.tensor(cache.block_size, dtype=torch.int32)),
    }


def _visible(layout: Layout, place: Place) -> torch.Tensor | None:
    """Which keys each query sees; None where one query sees all there are."""
    if layout.is_uniform and layout.queries[0] == 1:
        return None
    return visible_keys(layout, place.device)


def _mask(
    program: Program, layout: Layout, visible: torch.Tensor | None, place: Place, act: DType
) -> dict[str, torch.Tensor]:
    """The mask that unfused attention adds; where the preparation moves it on, its last column is still closed."""
    shape = (len(layout.requests), 1, layout.longest_query)
    keys = layout.longest_keys if reads(program, "mask") else 1
    dtype = place.dtypes[act]
    mask = torch.zeros((*shape, keys), dtype=dtype, device=place.device)
    if visible is not None and keys > 1:
        mask.masked_fill_(~visible, torch.finfo(dtype).min)
    others = {}
    for name, op in _other_masks(program).items():
        window, chunk, heads = (whole_number(op, key, 0) for key in ("window", "chunk", "alibi"))
        shown = in_sight(layout, place.device, window, chunk)
        other = torch.zeros(shown.shape, dtype=dtype, device=place.device)
        if heads:
            mine = op.inputs[1].shape[1]
            other = by_distance(layout, place.device, heads)[:, place.rank * mine :][:, :mine].to(dtype)
        others[name] = other.masked_fill_(~shown, torch.finfo(dtype).min)
    column = mask[..., -1].clone()
    if any(op.name == "prepare.mask_column" for op in program.block("prepare").ops):
        mask[..., -1] = torch.finfo(dtype).min
    return {"mask": mask, "mask_column": column, **others}


def _other_masks(program: Program) -> dict[str, Op]:
    """Masks of layers that see some of the keys, or scores with biases by distance: the op that adds one, by name."""
    return {
        op.inputs[1].name: op
        for block in program.blocks
        for whole in block.ops
        for op in (whole.parts or (whole,))
        if op.whole == "attn.mask" and op.attrs
    }


def _tables(program: Program, model: Model, place: Place, act: DType) -> dict[str, torch.Tensor]:
    """Frequencies of the rotary embedding, and its cosines and sines where they are looked up."""
    tables = {}
    if index := next((one.shared_kv.index for one in model.kinds if one.shared_kv and one.shared_kv.index), None):
        tables["hadamard"] = place.moved(hadamard(index.dim).to(place.dtypes[act]))
    for which, one in model.turns.items():
        each = frequencies(one)
        tables[f"inv_freq{which}"] = place.moved(each)
        if table := read_tensor(program, f"cos{which}_table"):
            angles = torch.arange(table.shape[0], dtype=torch.float32).unsqueeze(-1) * each
            angles, scale = torch.cat((angles, angles), -1), angle_scale(one)
            for name, values in (("cos", angles.cos() * scale), ("sin", angles.sin() * scale)):
                tables[f"{name}{which}_table"] = place.moved(values.to(place.dtypes[act]))
    return tables


def hadamard(size: int) -> torch.Tensor:
    """Hadamard's matrix of a power of two, of ones and minus ones (Sylvester's order)."""
    matrix = torch.ones((1, 1))
    while len(matrix) < size:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return matrix


def _sampling(program: Program, layout: Layout, model: Model, place: Place, seed: int) -> dict[str, torch.Tensor]:
    if not reads(program, "noise"):
        return {}
    requests = len(layout.requests)
    random = torch.Generator().manual_seed(seed)
    noise = torch.empty(requests, model.whole_vocab).exponential_(generator=random)
    return {"temperature": torch.ones((requests, 1), device=place.device), "noise": place.moved(noise)}
