"""What the rooms of the program ask about a kind of operation; `scenarios.ops.catalogue` has one of these for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from scenarios.ops.families import Family
from scenarios.ops.program import Op
from scenarios.ops.work import Unit, Work
from scenarios.records import dataclass

#: What class of call the host makes: a plain aten op, a matmul, a fused npu_ op, a collective, or none of its own (an
#: inner kernel that another call launches).
HostClass = Literal["aten", "matmul", "npu", "collective", "inner"]
#: The part of a layer that a kind belongs to whatever its cores: what pictures colour.
Part = Literal["", "attention", "norm", "cache", "experts", "graph"]
#: Whether shapes follow the cached length: not, or in one call that is given the lengths, or with operands that grow.
OverCache = Literal["", "fixed", "growing"]
#: What goes from rank to rank: nothing, whole sums, each rank's share of the sums, the shares themselves, tokens for
#: experts, tensors for the next pipeline stage.
Exchanged = Literal["", "sums", "shares of sums", "shares", "tokens", "stages"]
#: Where torch on a CPU or GPU has one kernel of it: in itself, by torch.compile, or nowhere.
TorchKernel = Literal["own", "compiled", "none"]


@dataclass(frozen=True, slots=True)
class OpKind:
    """One kind of operation.

    op_type: the profiler's name where the op gives none. unit: the cores that run it. elementwise: a graph compiler may
    fuse it with its neighbours. reduces_rows: each row to one value, which a graph compiler does in the kernel that
    makes the rows. ops_per_element: vector instructions per element of the largest operand. api: the torch or torch_npu
    call behind it. routed: its price differs by layer and rank, as the tokens choose their experts. reads_choice: it is
    laid out by that choice, which only the device knows. family: of kernels. switch: what asks for this kind, under
    `optimizations`. params: the kernel parameters of the hardware profile that price it, where they are not called like
    the kind. dense: a product with one weight, whatever its types. picks_rows: reads rows by index, from all over a
    table. twin: two in a row (the norms of Q and K) share one program in the cores' caches. as_mix: the device starts
    it as a kernel of both kinds of cores, though one kind does the work. token_by_token: it changes a state with each
    token, for the requests that decode; others go through it by chunks, in another kind. quantises_sent: it quantises
    what it sends, where its reader wants INT8.
    """

    name: str
    op_type: str
    unit: Unit
    work: Callable[[Op, OpKind], Work]
    host: HostClass = "aten"
    elementwise: bool = False
    reduces_rows: bool = False
    ops_per_element: int = 1
    api: str = ""
    routed: bool = False
    reads_choice: bool = False
    family: Family = "vector"
    part: Part = ""
    switch: str = ""
    params: str = ""
    dense: bool = False
    picks_rows: bool = False
    twin: bool = False
    as_mix: bool = False
    token_by_token: bool = False
    quantises_sent: bool = False
    over_cache: OverCache = ""
    exchanges: Exchanged = ""
    torch_kernel: TorchKernel = "own"

    @property
    def is_collective(self) -> bool:
        """Whether its ranks meet in one call on the links."""
        return self.unit == "link"

    @property
    def sends_in_a_kernel(self) -> bool:
        """Whether a kernel of vector cores sends tokens to their experts or back (dispatch, combine)."""
        return self.exchanges == "tokens" and self.is_collective and self.host == "npu"

    @property
    def uses_cube(self) -> bool:
        """Whether it multiplies on the cube cores."""
        return self.unit in ("cube", "mix")

    @property
    def reduces(self) -> bool:
        """Whether it sums what the ranks hold."""
        return self.exchanges in ("sums", "shares of sums")

    @property
    def cuts_rows(self) -> bool:
        """Whether a rank has some of the rows before or after it."""
        return self.exchanges in ("shares of sums", "shares")
