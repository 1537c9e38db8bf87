"""How each vector kernel lies on the cores: its program to a function of `sim.kernel.tiling`, in one plain table.

A program of no row here is laid out as the plain one of its shape. Programs of one kind of the catalogue may be two
kernels (a norm with one row on a core, and with several): `program_of` says which one runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil

from scenarios.ops.catalogue import params_name
from scenarios.ops.work import FlatShape, RowsShape, Work
from sim.hardware.sections import KernelParams
from sim.kernel.tiling import elementwise, layout, moe, norms, quant, reduce, rope, select
from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread, by_heads_first, by_rows
from sim.kernel.tiling.swi_glu import swi_glu

#: (work, chip, parameters) -> where the work lies.
Tiling = Callable[[Work, TilingChip, KernelParams], Spread]

#: Width of one rotated head in InterleaveRope: the rotary part of MLA.
ROPE_DIM = 64

#: Elements of a core up to which a compiled Swish x Mul is one tile, so that nothing overlaps: 16 bytes of UB each.
#: More stream as other activations do.
ONE_TILE = 12288
#: Vector instructions an element of a fused run that has an activation in it.
SWISH_OPS = 8

#: Programs that move their rows run by run, and the bytes that a shorter run takes as long as (SplitVD on 910B2: 1,152
#: runs of 32 to 48 bytes take 4.1 us, 48 of a third more bytes 1.8; chosen with these rows in view).
_IN_RUNS = ("slice", "split", "concat")
MIN_RUN_BYTES = 256

#: Splits and concatenations of several rows in such runs go through UB transposed, a column at a time, where they fit
#: this part of it: 17 to 21 ns a column whatever the rows (vector time of SplitVD and ConcatV2D on 910B2, 2.23 and 2.36
#: us for 128 columns of 6 to 192 rows, 1.04 for 64). Counted as so many elements a column.
_TRANSPOSED = ("split", "concat")
TRANSPOSED_PART, COLUMN_ELEMENTS = 4, 700

#: What a row takes beyond its elements in the norm of many short rows, in elements: 0.04 us (norms of Q, 22 to 256 rows
#: of 128 on each core; chosen with these rows in view).
ROW_ELEMENTS = 384

#: Programs that compute in the width of their inputs.
_IN_OWN_WIDTH = ("elementwise", "broadcast", "broadcast_row")

#: Kinds of the catalogue, and names of measured rows, that run a program of another name.
SAME_PROGRAM = {
    "cos": "elementwise_heavy", "sin": "elementwise_heavy", "pow": "elementwise_heavy", "silu": "gelu",
    "fused_elementwise": "swish_mul", "dequant_swiglu_quant": "swiglu", "embedding": "gather",
    "index_select": "gather", "block_gather": "gather", "cache_read": "kv_cache_read",
}  # fmt: skip


#: Programs that a graph compiler makes for each shape, where others come from a library.
_COMPILED = (
    "elementwise elementwise_heavy cast compare integer fill swish_mul sigmoid gelu mish broadcast broadcast_row "
    "masked_fill masked_broadcast expand reduce slice split concat scatter"
)


def is_compiled(name: str) -> bool:
    """Whether a graph compiler makes the kernel of a kind called `name` for its shapes."""
    return common_program(name) in _COMPILED.split()


def common_program(name: str) -> str:
    """The program, or the set of numbers, of a kind called `name`, whatever its shape."""
    shared = SAME_PROGRAM.get(name, name)
    return shared if shared in TILINGS else params_name(shared)


def program_of(work: Work, chip: TilingChip) -> str:
    """The program that runs `work`, as profiles name its three numbers."""
    name, shape = common_program(work.program), work.shape
    if isinstance(shape, FlatShape):
        if name == "swish_mul" and shape.elements > ONE_TILE * chip.vector_cores:
            return "gelu"
        if work.program == "fused_elementwise" and work.vector_ops < SWISH_OPS * shape.elements:
            return "elementwise"
        return name if name in TILINGS else "elementwise"
    assert isinstance(shape, RowsShape)
    match name:
        case "rms_norm" if norms.rms_norm_mode(shape.cols) == "many_rows":
            return "rms_norm_short"
        case "add_rms_norm" if norms.add_rms_norm_mode(shape.rows, shape.cols, chip) != "one_row":
            return "add_rms_norm_rows"
        case "dynamic_quant" if shape.cols % 8:
            return "dynamic_quant_odd"
    return name if name in TILINGS else "row_wise"


def spread_of(program: str, work: Work, chip: TilingChip, params: KernelParams) -> Spread:
    """Cores and fullest core of `work`, run by `program`."""
    return TILINGS[program](work, chip, params)


def counted_elements(program: str, work: Work, spread: Spread, chip: TilingChip) -> float:
    """Elements of the fullest core as the law of `program` counts them: of 32 bit. A register holds twice as many of
    16 bit, which FP16 sums and products are computed in; BF16 is computed in FP32. A run of memory shorter than a burst
    takes as long as one, and a short row's sum and root as long as some elements."""
    shape = work.shape
    if program in _IN_RUNS and work.pieces and work.write_bytes:
        short = MIN_RUN_BYTES * work.pieces / 2 / work.write_bytes  # runs that a run of 256 bytes holds
        if program in _TRANSPOSED and short >= 1 and _transposes(work, chip):
            return float(COLUMN_ELEMENTS * _matrix(work)[1])
        return spread.elements * max(1.0, short)
    if program == "rms_norm_short":
        return spread.elements + ROW_ELEMENTS * spread.rows
    half = isinstance(shape, FlatShape) and shape.widest_bytes <= 2 and program in _IN_OWN_WIDTH
    return spread.elements * (0.5 if half else 1.0)


def _transposes(work: Work, chip: TilingChip) -> bool:
    """Whether runs are short enough, and several rows few enough, for UB to hold them transposed."""
    return _matrix(work)[0] > 1 and work.write_bytes <= chip.ub_bytes // TRANSPOSED_PART


def _matrix(work: Work) -> tuple[int, int]:
    """(rows, columns) of the work: a flat one by its last dimension, one row where that is unknown."""
    shape = work.shape
    if isinstance(shape, RowsShape):
        return shape.rows, shape.cols
    assert isinstance(shape, FlatShape)
    cols = shape.cols or shape.elements
    return max(1, ceil(shape.elements / cols)), min(cols, shape.elements)


def _elements(work: Work) -> int:
    rows, cols = _matrix(work)
    return work.shape.elements if isinstance(work.shape, FlatShape) else rows * cols


def _item_bytes(work: Work) -> int:
    """Bytes of an element that is written; 2 where nothing is."""
    size = round(work.write_bytes / max(1, _elements(work)))
    return min((1, 2, 4, 8), key=lambda width: abs(width - size)) if size else 2


def _cut(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    widest = work.shape.widest_bytes if isinstance(work.shape, FlatShape) else 4
    return elementwise.elementwise(_elements(work), widest, chip)


def _stretched(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    axes = tuple(size for size in _matrix(work) if size > 1)
    size = _item_bytes(work)
    if size == 1 and isinstance(work.shape, FlatShape):  # flags: cut by what is compared
        size = work.shape.widest_bytes
    return elementwise.broadcast(axes or (1,), size, chip)


def _everywhere(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    return elementwise.on_every_core(_elements(work), chip)


def _rows(rule: Callable[[int, int, int], Spread], work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    return rule(*_matrix(work), chip.vector_cores)


def _rows_on(rule: Callable[[int, int, TilingChip], Spread], work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    return rule(*_matrix(work), chip)


def _moved(rule: Callable[[int, int, TilingChip], Spread], work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    return rule(_elements(work), _item_bytes(work), chip)


def _sliced(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    """The kept columns lie in rows of at least twice as many."""
    rows, cols = _matrix(work)
    return layout.slice_((rows, 2 * cols), (rows, cols), _item_bytes(work), chip)


def _joined(
    rule: Callable[[int, int, int, TilingChip], Spread], work: Work, chip: TilingChip, _: KernelParams
) -> Spread:
    return rule(*_matrix(work), _item_bytes(work), chip)


def _gated(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    rows, cols = _matrix(work)
    return swi_glu(rows, cols, chip, 4 if work.gm_bytes >= 6 * _elements(work) else 2)


def _fractal(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    shape = work.shape
    if isinstance(shape, FlatShape) and shape.cols:
        return by_rows(*_matrix(work), chip.vector_cores)
    return layout.trans_data_other(_elements(work), chip)


def _reduced(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    rows, cols = _matrix(work)
    return reduce.reduce(rows, cols, 1, chip)


def _largest(work: Work, chip: TilingChip, params: KernelParams) -> Spread:
    return select.arg_max(*_matrix(work), chip, max(1, params.rows_multiple))


def _picked(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    return select.gather(*_matrix(work), chip, _item_bytes(work))


def _rotated_pairs(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    requests, cols = _matrix(work)
    return rope.interleave_rope(requests, max(1, cols // ROPE_DIM), 1, min(cols, ROPE_DIM), chip)


def _token_rows(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    tokens, cols = _matrix(work)
    return rope.kv_rms_norm_rope_cache(tokens, chip, cols)


def _expanded(work: Work, chip: TilingChip, _: KernelParams) -> Spread:
    rows, cols = _matrix(work)
    return moe.moe_init_routing(rows, 1, cols, chip)


_BY_ROWS, _ONE_OR_MORE = partial(_rows, by_rows), partial(_rows, by_heads_first)

TILINGS: dict[str, Tiling] = {
    **dict.fromkeys(
        (
            "elementwise", "elementwise_heavy", "cast", "compare", "integer", "fill", "masked_fill", "as_strided",
            "swish_mul", "sigmoid", "gelu", "mish",
        ),
        _cut,
    ),
    **dict.fromkeys(("broadcast", "broadcast_row", "masked_broadcast", "expand"), _stretched),
    **dict.fromkeys(("index", "range"), _everywhere),
    "copy": partial(_moved, layout.tensor_move),
    "transpose": partial(_moved, layout.transpose),
    "trans_data": _fractal,
    "slice": _sliced,
    "split": partial(_joined, layout.split_v),
    "concat": partial(_joined, layout.concat_d),
    "swiglu": _gated,
    "static_quant": partial(_rows_on, quant.ascend_quant_v2),
    **dict.fromkeys(("dynamic_quant", "dynamic_quant_odd"), partial(_rows_on, quant.dynamic_quant)),
    **dict.fromkeys(
        ("rms_norm", "rms_norm_short", "add_rms_norm", "add_rms_norm_rows", "add_rms_norm_dynamic_quant"),
        partial(_rows_on, norms.rms_norm),
    ),
    **dict.fromkeys(("row_wise", "top_k_top_p", "moe_gating_top_k", "rope"), _BY_ROWS),
    **dict.fromkeys(("scatter", "qkv_norm_rope_cache"), _BY_ROWS),
    **dict.fromkeys(("kv_cache_write", "kv_cache_read", "triton_rope", "triton_qkv_norm_rope"), _ONE_OR_MORE),
    "reduce": _reduced,
    "softmax": partial(_rows_on, reduce.softmax),
    "argmax": _largest,
    "sort": partial(_rows_on, select.sort),
    "gather": _picked,
    "interleave_rope": _rotated_pairs,
    "kv_norm_rope_cache": _token_rows,
    "moe_init_routing": _expanded,
}  # fmt: skip
