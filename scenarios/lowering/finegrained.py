"""Weights that neighbouring replicas share, product by product (vLLM-Ascend's fine-grained tensor parallelism).

Replicas that share experts step together, each with its own tokens. A group of n of them may hold a slice each of a
weight that all of them need; then each computes its slice for the tokens of all:

    LM head       gather rows; product by columns; all-to-all: rows of all columns come back
    o projection  all-to-all: a slice of columns of all rows; product by rows; reduce-scatter
    embedding     gather token ids; rows of this slice of the vocabulary; reduce-scatter
    plain MLP     gather rows; products by columns, then by rows; reduce-scatter

Calls and copies around them are those of vLLM-Ascend 0.18 (`ops/linear_op.py`, `ops/vocab_parallel_embedding.py`): the
o projection transposes what it sends, clears what it receives into and copies the sums that it scatters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scenarios.finegrained_settings import FinegrainedTp
from scenarios.lowering.parallel import collective
from scenarios.models.model import Model
from scenarios.ops.program import Block, Op, Program, Tensor
from scenarios.settings import Settings

_WHERE = "engine.finegrained_tp_config"
#: Plain products that read an MLP's input, by name.
_FIRST = ("gate_proj", "up_proj")


def share_products(program: Program, config: FinegrainedTp) -> Program:
    """`program` of one replica with the products of `config` shared."""
    return program.rewritten(lambda block: _shared(block, config), "finegrained_tp")


def _shared(block: Block, config: FinegrainedTp) -> tuple[Op, ...]:
    ops = block.ops
    if config.mlp_tensor_parallel_size > 1:
        ops = _mlp(ops, config.mlp_tensor_parallel_size)
    rewrites = {
        "embed_tokens": (_embedding, config.embedding_tensor_parallel_size),
        "o_proj": (_out_projection, config.oproj_tensor_parallel_size),
        "lm_head": (_head, config.lmhead_tensor_parallel_size),
    }
    rewritten: list[Op] = []
    for op in ops:
        rewrite, ranks = rewrites.get(op.name, (_embedding, 1))
        rewritten += rewrite(op, ranks) if ranks > 1 else (op,)
    return tuple(rewritten) if len(rewritten) != len(block.ops) else block.ops


def _of_all(tensor: Tensor, ranks: int, columns: int = 1) -> Tensor:
    """What `tensor` is for the rows of all replicas, with its last dimension in `columns` slices."""
    rows, *rest = tensor.shape
    if rest:
        rest[-1] = -(-rest[-1] // columns)
    return replace(tensor, name=f"{tensor.name}_of_all", shape=(rows * ranks, *rest))


def _slice(weight: Tensor, ranks: int, axis: int) -> Tensor:
    """A rank's slice of a weight [outputs, inputs]."""
    shape = list(weight.shape)
    shape[axis] = -(-shape[axis] // ranks)
    return replace(weight, shape=tuple(shape))


def _embedding(op: Op, ranks: int) -> tuple[Op, ...]:
    table, ids = op.inputs
    all_ids, rows = _of_all(ids, ranks), _of_all(op.out, ranks)
    return (
        collective("all_gather", f"{op.name}.all_gather", ids, all_ids, ranks),
        replace(op, inputs=(_slice(table, ranks, 0), all_ids), outputs=(rows,)),
        collective("reduce_scatter", f"{op.name}.reduce_scatter", rows, op.out, ranks),
    )


def _head(op: Op, ranks: int) -> tuple[Op, ...]:
    x, weight, *bias = op.inputs
    whole, logits = _of_all(x, ranks), _of_all(op.out, ranks, ranks)
    return (
        collective("all_gather", f"{op.name}.all_gather", x, whole, ranks),
        replace(op, inputs=(whole, _slice(weight, ranks, 0), *bias), outputs=(logits,)),
        collective("all_to_all", f"{op.name}.all_to_all", logits, op.out, ranks),
    )


def _out_projection(op: Op, ranks: int) -> tuple[Op, ...]:
    x, weight, *bias = op.inputs
    rows, width = x.shape
    sent = replace(x, name=f"{x.name}_by_rank", shape=(ranks, rows, width // ranks))
    received, sums = _of_all(x, ranks, ranks), _of_all(op.out, ranks)
    scattered = replace(sums, name=f"{sums.name}_copied")
    return (
        Op("transpose", f"{op.name}.by_rank", (x,), (sent,)),
        Op("muls", f"{op.name}.clear", (received,), (received,), (("value", 0.0),), op_type="ZerosLike"),
        collective("all_to_all", f"{op.name}.all_to_all", sent, received, ranks),
        replace(op, inputs=(received, _slice(weight, ranks, 1), *bias), outputs=(sums,)),
        Op("muls", f"{op.name}.copy", (sums,), (scattered,), (("value", 1.0),), op_type="TensorMove"),
        collective("reduce_scatter", f"{op.name}.reduce_scatter", scattered, op.out, ranks),
    )


def _mlp(ops: tuple[Op, ...], ranks: int) -> tuple[Op, ...]:
    """`ops` with those from the first product of a plain MLP to its last on a slice of it and the rows of all."""
    names = [op.name for op in ops]
    start = next((i for i, name in enumerate(names) if name in _FIRST), -1)
    if start < 0:
        return ops
    end = names.index("down_proj")
    x, out = ops[start].inputs[0], ops[end].out
    whole, sums = _of_all(x, ranks), _of_all(out, ranks)

    def narrow(tensor: Tensor) -> Tensor:
        return whole if tensor.name == x.name else _of_all(tensor, ranks, ranks)

    def sliced(op: Op) -> Op:
        if op.name in _FIRST:
            return replace(op, inputs=(whole, _slice(op.inputs[1], ranks, 0)), outputs=(narrow(op.out),))
        if op.name == "down_proj":
            return replace(op, inputs=(narrow(op.inputs[0]), _slice(op.inputs[1], ranks, 1)), outputs=(sums,))
        return replace(op, inputs=tuple(map(narrow, op.inputs)), outputs=tuple(map(narrow, op.outputs)))

    return (
        *ops[:start],
        collective("all_gather", "mlp.all_gather", x, whole, ranks),
        *map(sliced, ops[start : end + 1]),
        collective("reduce_scatter", "mlp.reduce_scatter", sums, out, ranks),
        *ops[end + 1 :],
    )


def finegrained_problems(scenario: Settings, model: Model) -> Iterator[tuple[str, str]]:
    """What is wrong between `engine.finegrained_tp_config` and the model: (field, what) pairs."""
    config = scenario.engine.finegrained_tp_config
    if config is None:
        return
    if not config.sizes:
        yield _WHERE, "has no effect where every size is 1: remove it"
    replicas = model.data_parallel
    for name, size in config.sizes.items():
        if reason := _refused(model, name) or (
            f"must divide the {replicas} replicas, got {size}" if replicas % size else _divides(model, name, size)
        ):
            yield f"{_WHERE}.{name}", reason


def _refused(model: Model, name: str) -> str:
    if not model.expert_parallel or model.data_parallel == 1:
        return "needs replicas that step together: engine.data_parallel_size above 1 and enable_expert_parallel"
    if model.tensor_parallel > 1 or model.pipeline_parallel > 1:
        return "needs engine.tensor_parallel_size 1 and pipeline_parallel_size 1, as vLLM-Ascend's"
    if name.startswith(("lmhead", "embedding")) and model.tied_embeddings:
        return f"is not modelled for {model.name}, whose LM head is its embedding"
    plain = any(one.experts is None and one.form.has_mlp for one, _ in model.runs)
    biased = model.form.mlp_bias or model.form.down_bias
    if name.startswith("mlp") and (not plain or biased):
        return f"finds no plain MLP without biases in {model.name}"
    if name.startswith("oproj") and any(one.state for one, _ in model.runs):
        return f"is not modelled for the layers with a state of {model.name}"
    return ""


def _divides(model: Model, name: str, size: int) -> str:
    width = {"oproj": model.attended, "mlp": model.intermediate}.get(name.partition("_")[0], 0)
    return f"must divide {width}, got {size}" if width % size else ""
