"""Tensor parallelism: what one of n ranks holds of a model, and the collectives that its Program needs.

Column-parallel (q, k, v, gate, up, LM head): each rank computes other outputs; whoever needs all of them gathers.
Row-parallel (o, down), and the split vocabulary of the embedding: each rank computes a partial sum; the sums are
reduced. Experts are sliced the same way, or spread whole over all ranks of all replicas: then each rank routes its own
share of the tokens and the shares are gathered. With sequence parallelism the reduction is a reduce-scatter over
tokens, residual and norms work on a rank's share of the tokens, and an all-gather brings the tokens together again
before the next projection: the same bytes on the links as an all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from scenarios.errors import ScenarioError
from scenarios.models.model import Experts, Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Block, Op, Program, Tensor
from scenarios.settings import Engine

#: Values that are partial sums on each rank: of a row-parallel product, of experts sliced over the ranks.
PARTIAL = ("attention_out", "mlp_out", "dense_out", "experts_out")
#: Ops that need all tokens in sequence parallelism: the first reader of each normed activation.
GATHER_BEFORE = ("q_proj", "q_a_proj", "in_proj_qkvz", "in_proj_qkv", "in_proj", "gate_proj", "up_proj", "router")
#: What works on a rank's share of the tokens: norms, and what is done to the residual.
_ON_SHARE = (
    "input_norm", "post_attention_norm", "next_norm", "attention_out_norm", "mlp_out_norm", "scale_attention",
    "scale_mlp", "add_attention", "add_mlp", "layer_scale",
)  # fmt: skip


@lru_cache(maxsize=64)  # the points of a sweep are of few
def shard(model: Model, ranks: int, replicas: int = 1, expert_parallel: bool = False, gathered: bool = False) -> Model:
    """What one rank holds of a model on `replicas` groups of `ranks` tensor-parallel ranks.

    KV heads are repeated where there are fewer than ranks; the latent rows of MLA are held by every rank. With
    expert_parallel each of all ranks holds whole experts, and the shared expert whole (a slice of it where tokens are
    gathered instead of sent); else each holds a slice of every expert. Raises ScenarioError with the reason where the
    sizes do not divide.
    """
    if expert_parallel and not model.experts:
        raise ScenarioError([f"{model.name} has no experts to spread over ranks"])
    each = model.kinds or (model,)
    problems = dict.fromkeys(
        problem
        for kind in each
        for problem in (*_attention_problems(kind, ranks), *_mlp_problems(kind, ranks, replicas, expert_parallel))
    )
    if problems:
        raise ScenarioError([f"{model.name}: {'; '.join(problems)}"])
    kinds = tuple(_sharded(kind, ranks, replicas, expert_parallel, gathered) for kind in model.kinds)
    return replace(_sharded(model, ranks, replicas, expert_parallel, gathered), kinds=kinds)


def _sharded(model: Model, ranks: int, replicas: int, expert_parallel: bool, gathered: bool) -> Model:
    """`shard` of a model whose layers are alike, or of what all layers have in common."""
    model = replace(model, data_parallel=replicas)
    if model.experts:
        model = replace(model, experts=_experts(model.experts, ranks, replicas, expert_parallel, gathered))
    if ranks == 1:
        return replace(model, expert_parallel=expert_parallel)
    return replace(
        model,
        heads=model.heads // ranks,
        kv_heads=max(1, model.kv_heads // ranks),
        intermediate=model.intermediate // ranks,
        vocab=-(-model.vocab // ranks),  # the vocabulary is padded to a multiple of the ranks
        full_vocab=model.vocab,
        tensor_parallel=ranks,
        expert_parallel=expert_parallel,
        state=model.state and model.state.shard(ranks),
        shared_kv=model.shared_kv and replace(model.shared_kv, groups=model.shared_kv.groups // ranks),
    )


def shard_of(engine: Engine, model: Model, ranks: int, replicas: int = 1) -> Model:
    """What a rank of `engine` holds of `model`: of its replica of `ranks`, and of the experts that `replicas` share.

    Raises ScenarioError as `shard`.
    """
    gathered = engine.all2all_backend == "allgather_reducescatter"
    return shard(model, ranks, replicas, engine.enable_expert_parallel, gathered)


def _attention_problems(model: Model, ranks: int) -> Iterator[str]:
    if model.state is not None:
        yield from model.state.problems(ranks)
        return
    if model.shared_kv and model.shared_kv.groups % ranks:
        yield f"{model.shared_kv.groups} groups of heads (o_groups) do not divide by {ranks}"
    if model.heads % ranks:
        yield f"{model.heads} attention heads do not divide by {ranks}"
    if model.kv_heads % ranks and ranks % model.kv_heads:
        yield f"{model.kv_heads} KV heads neither divide by {ranks} nor repeat evenly over it"


def _mlp_problems(model: Model, ranks: int, replicas: int, expert_parallel: bool) -> Iterator[str]:
    experts = model.experts
    if (experts is None or experts.dense_layers or experts.with_plain) and model.intermediate % ranks:
        yield f"intermediate size {model.intermediate} does not divide by {ranks}"
    if experts is None:
        return
    if expert_parallel and experts.with_plain:
        yield "experts next to a plain MLP are not spread over ranks (enable_expert_parallel) here"
    if expert_parallel and experts.count % (ranks * replicas):
        yield f"{experts.count} experts do not divide by the {ranks * replicas} ranks that share them"
    if not expert_parallel and (experts.intermediate % ranks or experts.shared % ranks):
        width = experts.intermediate
        yield f"expert width {width} does not divide by {ranks}: spread whole ones (enable_expert_parallel)"


def _experts(experts: Experts, ranks: int, replicas: int, spread: bool, gathered: bool) -> Experts:
    if spread:
        shared = experts.shared // ranks if gathered else experts.shared
        return replace(experts, held=experts.count // (ranks * replicas), shared=shared, gathered=gathered)
    return replace(experts, intermediate=experts.intermediate // ranks, shared=experts.shared // ranks)


def parallelize(program: Program, model: Model, sequence_parallel: bool) -> Program:
    """`program` of one rank with its collectives; its tokens must divide by the ranks for sequence parallelism."""
    rewrite = _scattered if sequence_parallel else _reduced
    return program.rewritten(lambda block: rewrite(block, model), "tensor_parallel")


def expanded(program: Program, mode: str) -> Program:
    """`program` with its collectives asked to run in expansion mode `mode`; auto leaves the choice to HCCL."""
    if mode == "auto":
        return program

    def asked(op: Op) -> Op:
        collective = kind_of(op).is_collective
        return replace(op, attrs=(*op.attrs, ("mode", mode))) if collective else op

    return program.rewritten(lambda block: tuple(map(asked, block.ops)))


def collective(kind: str, name: str, inputs: Tensor, output: Tensor, ranks: int) -> Op:
    """One collective over the tensor-parallel group."""
    return Op(kind, name, (inputs,), (output,), (("ranks", ranks),))


def _is_partial(op: Op) -> bool:
    """Whether the op's output is a sum that the ranks share: projections back to the residual, and the embedding."""
    return op.out.name in PARTIAL or op.kind == "embedding" if op.outputs else False


def _summed(op: Op) -> str:
    """What a sum over the ranks is named after: its op, or all experts where the last one ends the sum."""
    return op.name if op.expert < 0 else "experts"


def _spreads(block: Block, model: Model) -> bool:
    """Whether a rank has the finished MLP of its own tokens in this block: with expert parallelism."""
    return model.sends_tokens and any(op.name == "router" for op in block.ops)


def _reduced(block: Block, model: Model) -> tuple[Op, ...]:
    ranks, spread = model.tensor_parallel, _spreads(block, model)
    out: list[Op] = []
    for op in block.ops:
        out.append(op)
        if spread and op.outputs and op.out.name == "mlp_out":
            rows = op.out.shape[0] * ranks
            whole = replace(op.out, shape=(rows, *op.out.shape[1:]))
            out.append(collective("all_gather", f"{op.name}.all_gather", op.out, whole, ranks))
        elif _is_partial(op):
            out.append(collective("all_reduce", f"{_summed(op)}.all_reduce", op.out, op.out, ranks))
        elif op.name == "lm_head":
            out.append(_gather_logits(op, ranks))
    return tuple(out)


def _scattered(block: Block, model: Model) -> tuple[Op, ...]:
    ranks, spread = model.tensor_parallel, _spreads(block, model)
    out: list[Op] = []
    gathered: set[str] = set()
    for op in block.ops:
        gathered -= {tensor.name for tensor in op.outputs}
        first = op.name in GATHER_BEFORE and op.inputs[0].name not in gathered
        if first and not (op.name == "router" and spread):
            out.append(_gather_tokens(op, ranks))
            gathered.add(op.inputs[0].name)
        if block.name == "head" and op is block.ops[0]:
            out.append(_gather_tokens(op, ranks))
        out.append(_on_share(op, ranks))
        if spread and op.outputs and op.out.name == "mlp_out":
            continue  # it is this rank's share already
        if _is_partial(op):
            share = _share(op.out, ranks)
            out.append(collective("reduce_scatter", f"{_summed(op)}.reduce_scatter", op.out, share, ranks))
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
    if op.name.split(".")[0] not in _ON_SHARE:
        return op

    def local(tensor: Tensor) -> Tensor:
        return tensor if tensor.role == "weight" else _share(tensor, ranks)

    return replace(op, inputs=tuple(map(local, op.inputs)), outputs=tuple(map(local, op.outputs)))
