"""Where the code of a measured kernel was when it started: what a row says about the kernels before it.

A kernel of a static graph has little code. Each layer runs the same programs, whose code stays in L2, unless the keys
that attention reads between two layers push it out, or those and the layer's weights the code of kernels that the
compiler made for their shapes; what runs once a step (masks, tables of positions, the first norm) finds none. Right
after a kernel of the same program it is still in the cores.
"""

from __future__ import annotations

from sim.accuracy.rows.row import Shape, Unpriced, parse_shapes
from sim.kernel.time import Code, pushes_code_out, runs_out

#: Columns of the longest head that a model norms; longer rows are the residual stream.
MAX_HEAD_DIM = 256
#: Op types that every layer of a static graph issues. Norms of heads are, too.
_LAYERED = (
    "AddRmsNorm", "InplaceAddRmsNorm", "ApplyRotaryPosEmb", "RotaryPositionEmbedding", "InterleaveRope", "Scatter",
    "KvRmsNormRopeCache", "Split", "AutomaticBufferFusionOp", "Swi", "DequantSwi", "DynamicQuant", "AscendQuant", "Moe",
    "StridedSliceD",
)  # fmt: skip
#: Those of them that the graph compiler makes.
_COMPILED = ("Scatter", "Split", "AutomaticBufferFusionOp")
#: Bytes of weights that a layer streams, by how the model's name starts; the smallest seen where it is not known.
LAYER_BYTES = {"PaddleOCR-VL": 28_000_000, "Qwen3-8B": 386_000_000, "Qwen3-30B-A3B": 57_000_000}
#: Those of them that a layer issues more than once, so that not all of a layer passes L2 in between: of the two halves
#: of a packed product the second is cut right after the first.
_TWICE = ("AddRmsNorm", "InplaceAddRmsNorm", "RmsNorm", "StridedSliceD")
#: Fewest bytes of a token in the cache of a layer: keys and values of two heads of 128 in 16 bit.
MIN_TOKEN_BYTES = 2 * 2 * 128 * 2
#: What notes say of the first kernel of a program in a step.
_FIRST = ("cold", "first call")


def code_of_row(
    op_type: str, input_shapes: str, mode: str = "", note: str = "", cached_tokens: int = 0, model: str = ""
) -> Code:
    """Where the code was, from a row's mode (`ge_graph` is a static graph) and note (`cold`, `first call`, `warm`,
    `twin`). A mean over all positions is one of kernels whose code is near.

    cached_tokens: tokens of all requests in the cache of its step, 0 where unknown. model: whose step it is.
    """
    words = note.lower().replace("cold ones included", "")
    if "twin" in words or repeats(op_type, input_shapes):
        return "twin"
    if "ge_graph" not in mode:
        return "cold"
    if any(word in words for word in _FIRST):
        return "first"
    layered = op_type.startswith(_LAYERED) or _normed_heads(op_type, input_shapes)
    keys = cached_tokens * MIN_TOKEN_BYTES
    evicted = runs_out(keys + layer_bytes(model)) if op_type.startswith(_COMPILED) else pushes_code_out(keys)
    if layered and not op_type.startswith(_TWICE) and evicted:
        return "first"
    return "near" if layered or "warm" in words else "first"


def layer_bytes(model: str) -> int:
    """Weights that a layer of `model` streams in a decode step of one token on one card of those that were profiled."""
    known = (size for name, size in LAYER_BYTES.items() if model.startswith(name))
    return next(known, min(LAYER_BYTES.values()))


def repeats(op_type: str, input_shapes: str) -> bool:
    """Whether the same program ran just before this kernel, as far as its shape tells.

    A norm of [tokens, 1, head_dim] is K's norm in a model with one KV head on this rank; it follows Q's norm. Longer
    rows are the residual stream of one token a request.
    """
    first = _normed_heads(op_type, input_shapes)
    return len(first) == 3 and first[1] == 1


def _normed_heads(op_type: str, input_shapes: str) -> Shape:
    """The shape of the heads that are normed; () for another kernel, and where the shapes cannot be read."""
    if op_type != "RmsNorm":
        return ()
    try:
        first = parse_shapes(input_shapes)[0]
    except Unpriced:
        return ()
    return first if first and first[-1] <= MAX_HEAD_DIM else ()
