"""Pipeline parallelism: which layers a stage holds, and what is left of a whole step's Program on one stage.

A stage runs its share of the decoder layers. The first one has the embedding, the last one the final norm, LM head and
sampling. A layer of a Program ends with the residual add and the next layer's input norm. Where the two are one kernel
the cut lies before it, as vLLM cuts: MLP output and residual cross to the next stage, which adds and norms. Where they
are apart it lies between them, and only the residual crosses.

Ranks send what vLLM's `send_tensor_dict` sends: each of the tensor-parallel ranks its share, which the receivers gather
again. In a step that sequence parallelism scatters, a rank's share of the tokens is all that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal

from scenarios.errors import ScenarioError
from scenarios.lowering.parallel import collective
from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Block, Op, Program, Tensor

#: Blocks in which a stage meets its neighbours.
TRANSFERS = ("receive", "send")
#: The block that ends the last layer of the stage before.
CARRIED = "carry"
#: Blocks behind the layers.
_HEAD = ("head", "sample")
#: Ops of the embedding block that only the first stage runs; the rest (rotary angles, graph parameters) all need.
_FIRST_ONLY = ("embed_tokens", "input_norm", "repeat_streams")
#: The ops that end a layer: the residual add, and the norm for the layer after it.
_ADD, _NORM = "add_mlp", "next_norm"


def layers_of_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Decoder layers of each stage, as vLLM shares them out (`get_pp_indices`).

    What does not divide goes one each to the stage before the last, the one before that, and so on: the last stage has
    the LM head already.
    """
    share, rest = divmod(layers, stages)
    return tuple(share + (stages - 1 - rest <= stage < stages - 1) for stage in range(stages))


def split_depth(model: Model, stages: int) -> Model:
    """`model` as one that runs in `stages`. Raises ScenarioError with the reason where there are too few layers."""
    if stages > model.layers:
        raise ScenarioError([f"{model.name}: {model.layers} layers cannot fill {stages} stages"])
    if stages > 1 and not model.form.pre_norms:
        raise ScenarioError([f"{model.name}: stages of layers that norm behind attention alone are not modelled"])
    return replace(model, pipeline_parallel=stages)


def stage_model(model: Model, stage: int) -> Model:
    """What one rank of `stage` holds: its layers, and embedding and LM head where they are."""
    last = model.pipeline_parallel - 1
    counts = layers_of_stages(model.layers, model.pipeline_parallel)
    part = model.part(sum(counts[:stage]), counts[stage])
    return replace(part, has_embedding=stage == 0, has_head=stage == last)


def cut(program: Program, model: Model, stage: int, scattered: bool) -> Program:
    """The part of a whole step that one rank of `stage` issues, with its receives and sends.

    program: the step of all layers, every pass applied. scattered: whether sequence parallelism scatters this step.
    """
    counts = layers_of_stages(model.layers, model.pipeline_parallel)
    ends = tuple(accumulate(counts))
    first, last = stage == 0, stage == len(counts) - 1
    layers = [block for block in program.blocks if block.is_layer]
    mine = _slice(layers, ends[stage] - counts[stage], ends[stage])
    blocks: list[Block] = []
    if not first:
        before = _slice(layers, ends[stage - 1] - 1, ends[stage - 1])[0]
        blocks.append(_receive(before, model, stage, scattered))
    blocks.append(program.block("prepare"))
    blocks.append(program.block("embed") if first else _without_embedding(program.block("embed")))
    if not first:
        blocks.append(Block(CARRIED, before.ops[_boundary(before) :], captured=before.captured))
    if last:
        blocks += [*mine, *(block for block in program.blocks if block.name in _HEAD)]
    else:
        whole = replace(mine[-1], repeat=mine[-1].repeat - 1)
        final = replace(mine[-1], ops=mine[-1].ops[: _boundary(mine[-1])], repeat=1)
        blocks += [*mine[:-1], *([whole] if whole.repeat else []), final]
        blocks.append(_send(mine[-1], model, stage, scattered))
    return program.with_blocks(tuple(blocks), "pipeline_parallel")


def _slice(layers: Sequence[Block], start: int, end: int) -> list[Block]:
    """Layers `start` to `end` of blocks that repeat."""
    blocks: list[Block] = []
    at = 0
    for block in layers:
        count = min(end, at + block.repeat) - max(start, at)
        if count > 0:
            blocks.append(replace(block, repeat=count))
        at += block.repeat
    return blocks


def _boundary(layer: Block) -> int:
    """Index of the first op that belongs to the next stage: none of a layer whose residual is several streams."""
    for index, op in enumerate(layer.ops):
        if op.name == "hc_mlp_post":
            return index + 1
        if op.name == _ADD and kind_of(op).elementwise:
            return index + 1
        if op.name.split("+")[0].split(".")[0] in (_ADD, _NORM):
            return index
    raise ValueError(f"block {layer.name!r} does not end with a residual add and a norm")


def _crossing(layer: Block) -> tuple[Tensor, ...]:
    """What the next stage reads of this layer: activations that ops behind the cut need from before it."""
    cut_at = _boundary(layer)
    if cut_at == len(layer.ops):
        return layer.ops[-1].outputs
    result: set[str] = set()
    needed: dict[str, Tensor] = {}
    for op in layer.ops[cut_at:]:
        for tensor in op.inputs:
            if tensor.role == "activation" and tensor.name not in result:
                needed.setdefault(tensor.name, tensor)
        result |= {tensor.name for tensor in op.outputs}
    return tuple(needed.values())


def _without_embedding(block: Block) -> Block:
    kept = tuple(op for op in block.ops if op.name.split("+")[0].split(".")[0] not in _FIRST_ONLY)
    return replace(block, ops=kept)


def _send(layer: Block, model: Model, stage: int, scattered: bool) -> Block:
    ops = tuple(_transfer("send", tensor, model, stage, scattered) for tensor in _crossing(layer))
    return Block("send", ops)


def _receive(layer: Block, model: Model, stage: int, scattered: bool) -> Block:
    crossing = _crossing(layer)
    ops = [_transfer("receive", tensor, model, stage - 1, scattered) for tensor in crossing]
    if model.tensor_parallel > 1 and not scattered:
        ops += [
            collective("all_gather", f"receive.{t.name}.all_gather", _share(t, model), t, model.tensor_parallel)
            for t in crossing
        ]
    return Block("receive", tuple(ops))


def _transfer(verb: Literal["send", "receive"], tensor: Tensor, model: Model, sender: int, scattered: bool) -> Op:
    """One tensor from a rank of stage `sender` to its neighbour; stages lie one tensor-parallel group apart."""
    part = tensor if scattered else _share(tensor, model)
    ranks = model.tensor_parallel
    attrs = (("ranks", 2), ("first", sender * ranks), ("stride", ranks))
    if verb == "send":
        return Op("send_recv", f"send.{tensor.name}", (part,), (), attrs, "hcom_send_")
    return Op("send_recv", f"receive.{tensor.name}", (), (part,), attrs, "hcom_receive_")


def _share(tensor: Tensor, model: Model) -> Tensor:
    """One rank's share of a tensor that all tensor-parallel ranks hold; whole where it does not divide."""
    rows, columns = tensor.shape
    return replace(tensor, shape=(rows, -(-columns // model.tensor_parallel)))
