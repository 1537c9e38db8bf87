"""Which calls a graph compiler joins to one kernel.

Connected runs of elementwise calls with outputs of one size become one kernel, and so does a reduction of rows with
the run that makes them. Read off kernel counts of a compiled Qwen3 text tower of 4B with RMSNorm and RoPE written out
(TorchAir under CANN 9.0 on a 910B2, 36 layers of 73 norms over the hidden size and 72 over heads; profile summaries in
lukaIvanic/paddle_ocr_vl_npu, tmp/21_colqwen3_4b_inference): 73 Cast, 145 Square and no ReduceMean, 290 Mul, 75 Add,
253 AutomaticBufferFusionOp. So a norm over heads is three kernels (square and mean, eps and root, the products), and
one over the hidden size five: its rows, of 2,560, are not joined through a value that others read as well, nor where
a second operand is stretched; sums with the residual stay apart. Which norms have three kernels, and where between 128
and 2,560 elements rows become too long, no count says: assumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from scenarios.ops.catalogue import kind_of, op_type_of
from scenarios.ops.program import Op, Tensor

#: Elements of a row up to which a kernel keeps a value for a later reader too, and stretches several operands.
SHORT_ROW = 256


def fuse_elementwise(readers: Counter[str], ops: Sequence[Op]) -> tuple[Op, ...]:
    """`ops` of one block with runs joined; readers: how often ops of the program read each name."""
    within = reads(ops)
    out: list[Op] = []
    run: list[Op] = []
    for op in ops:
        kind = kind_of(op)
        if run and kind.reduces_rows and _reduced(run, op):
            out += _merge(readers, [*run, op])
            run = []
        elif kind.elementwise and run and _connected(within, run, op):
            run.append(op)
        else:
            out += _merge(readers, run)
            run = [op] if kind.elementwise else []
            out += [] if run else [op]
    return (*out, *_merge(readers, run))


def reads(ops: Iterable[Op]) -> Counter[str]:
    """How often each name is read by these ops, one that comes again left out."""
    once = {id(op): op for op in ops}
    return Counter(tensor.name for op in once.values() for tensor in op.inputs)


def _at_once(last: Op, op: Op) -> bool:
    """An event in between, or another stream, keeps kernels apart."""
    return op.stream == last.stream and not op.waits and not last.records


def _connected(within: Counter[str], run: list[Op], op: Op) -> bool:
    """Whether `op` reads what the run writes, in the same shape, and its kernel may run on. within: reads of the
    block, as other kinds of layers call their tensors alike."""
    last = run[-1]
    if not _at_once(last, op) or op.out.elements != last.out.elements:
        return False
    if {t.name for t in op.inputs}.isdisjoint(t.name for o in run for t in o.outputs):
        return False
    if op.out.shape[-1] <= SHORT_ROW:
        return True
    return within[last.out.name] == 1 and not (_stretches(op) and any(map(_stretches, run)))


def _reduced(run: list[Op], op: Op) -> bool:
    """Whether `op` reduces the rows that the run has just written."""
    return _at_once(run[-1], op) and op.inputs[0].name == run[-1].out.name


def _stretches(op: Op) -> bool:
    """Whether an operand (not a scalar) is smaller than what `op` writes."""
    return any(1 < t.elements < op.out.elements for t in op.inputs)


def _merge(readers: Counter[str], run: list[Op]) -> list[Op]:
    """One op that reads what the run reads from outside and writes what others still need."""
    if len(run) < 2:
        return run
    inside = reads(run)
    written: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}
    for op in run:
        for tensor in op.inputs:
            if tensor.name not in written:
                inputs.setdefault(tensor.name, tensor)
        for tensor in op.outputs:
            written[tensor.name] = tensor
    last = run[-1]
    outputs = tuple(t for name, t in written.items() if readers[name] > inside[name] or name == last.out.name)
    ops = sum(kind_of(op).ops_per_element for op in run)
    name = "+".join(op.name.rsplit(".", 1)[-1] for op in run)
    return [
        Op(
            last.kind if kind_of(last).reduces_rows else "fused_elementwise",
            f"{run[0].name}+{name.split('+', 1)[1]}",
            tuple(inputs.values()),
            outputs,
            (("fused_ops", ops),),
            op_type=_named(run),
            stream=run[0].stream,
            waits=run[0].waits,
            records=last.records,
            parts=tuple(run),
            expert=run[0].expert,
            micro_batch=run[0].micro_batch,
        )
    ]


def _named(run: list[Op]) -> str:
    """The profiler's name of the run's kernel: that of its products or squares, casts aside; "" for the compiler's own
    name of a mixture. A reduction goes by the name of what it reduces."""
    makers = run[:-1] if kind_of(run[-1]).reduces_rows else run
    names = {op_type_of(op) for op in makers if len(op.inputs) > 1 or op.inputs[0].dtype == op.out.dtype}
    return names.pop() if len(names) == 1 else ""
