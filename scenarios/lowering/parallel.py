"""Tensor parallelism: what one of n ranks holds of a model, and the collectives that its Program needs.

Column split (q, k, v, gate, up, LM head): each rank computes other outputs; whoever needs all of them gathers. Row
split (o, down) and the split vocabulary of the embedding: each rank computes a partial sum; the sums are reduced. With
sequence parallelism the reduction is a reduce-scatter over tokens, residual and norms work on a rank's share of the
tokens, and an all-gather brings the tokens together again before the next projection: the same bytes on the links as an
all-reduce.
"""

from __future__ import annotations

from dataclasses import replace

from scenarios.errors import ScenarioError
from scenarios.model import Model
from scenarios.program import Block, Op, Program, Tensor

#: Ops whose output is a partial sum.
ROW_SPLIT = ("o_proj", "down_proj", "embed_tokens")
#: Ops that need all tokens in sequence parallelism: the first reader of each normed activation.
GATHER_BEFORE = ("q_proj", "gate_proj")
#: Values that live on one rank's share of the tokens in sequence parallelism.
_SHARED_OUT = ("residual", "residual_mid", "attention_out", "mlp_out")
_NORMS = ("input_norm", "post_attention_norm", "next_norm")


def shard(model: Model, ranks: int) -> Model:
    """What one of `ranks` tensor-parallel ranks holds; KV heads are repeated where there are fewer than ranks.

    Raises ScenarioError with the reason where the sizes do not divide.
    """
    if ranks == 1:
        return model
    problems = []
    if model.heads % ranks:
        problems.append(f"{model.heads} attention heads do not divide by {ranks}")
    if model.kv_heads % ranks and ranks % model.kv_heads:
        problems.append(f"{model.kv_heads} KV heads neither divide by {ranks} nor repeat evenly over it")
    if model.intermediate % ranks:
        problems.append(f"intermediate size {model.intermediate} does not divide by {ranks}")
    if problems:
        raise ScenarioError([f"{model.name}: {'; '.join(problems)}"])
    return replace(
        model,
        heads=model.heads // ranks,
        kv_heads=max(1, model.kv_heads // ranks),
        intermediate=model.intermediate // ranks,
        vocab=-(-model.vocab // ranks),  # the vocabulary is padded to a multiple of the ranks
        full_vocab=model.vocab,
        tensor_parallel=ranks,
    )


def parallelize(program: Program, ranks: int, sequence_parallel: bool) -> Program:
    """`program` of one rank with its collectives; its tokens must divide by `ranks` for sequence parallelism."""
    rewrite = _scattered if sequence_parallel else _reduced
    blocks = tuple(replace(b, ops=rewrite(b, ranks)) for b in program.blocks)
    return program.with_blocks(blocks, "tensor_parallel")


def collective(kind: str, name: str, inputs: Tensor, output: Tensor, ranks: int) -> Op:
    """One collective over the tensor-parallel group."""
    return Op(kind, name, (inputs,), (output,), (("ranks", ranks),))


def _reduced(block: Block, ranks: int) -> tuple[Op, ...]:
    out: list[Op] = []
    for op in block.ops:
        out.append(op)
        if op.name in ROW_SPLIT:
            out.append(collective("all_reduce", f"{op.name}.all_reduce", op.out, op.out, ranks))
        elif op.name == "lm_head":
            out.append(_gather_logits(op, ranks))
    return tuple(out)


def _scattered(block: Block, ranks: int) -> tuple[Op, ...]:
    out: list[Op] = []
    for op in block.ops:
        if op.name in GATHER_BEFORE:
            out.append(_gather_tokens(op, ranks))
        if block.name == "head" and op is block.ops[0]:
            out.append(_gather_tokens(op, ranks))
        out.append(_on_share(op, ranks))
        if op.name in ROW_SPLIT:
            share = _share(op.out, ranks)
            out[-1] = op
            out.append(collective("reduce_scatter", f"{op.name}.reduce_scatter", op.out, share, ranks))
        elif op.name == "lm_head":
            out.append(_gather_logits(op, ranks))
    return tuple(out)


def _gather_tokens(op: Op, ranks: int) -> Op:
    """All tokens of what `op` reads first, from every rank's share."""
    whole = op.inputs[0]
    return collective("all_gather", f"{op.name}.all_gather", _share(whole, ranks), whole, ranks)


def _gather_logits(op: Op, ranks: int) -> Op:
    rows, vocab = op.out.shape
    return collective("all_gather", "logits_all_gather", op.out, replace(op.out, shape=(rows, vocab * ranks)), ranks)


def _share(tensor: Tensor, ranks: int) -> Tensor:
    return replace(tensor, shape=(tensor.shape[0] // ranks, *tensor.shape[1:]))


def _on_share(op: Op, ranks: int) -> Op:
    """`op` on one rank's share of the tokens, where it belongs to a norm or a residual add."""
    in_norm = op.name.split(".")[0] in _NORMS
    if not in_norm and op.name not in ("add_attention", "add_mlp"):
        return op

    def local(tensor: Tensor) -> Tensor:
        return tensor if tensor.role == "weight" else _share(tensor, ranks)

    return replace(op, inputs=tuple(map(local, op.inputs)), outputs=tuple(map(local, op.outputs)))
