"""What the runner asks of a device, whichever it is.

A backend says what it is (`describe`), how it computes each op (`kernel`), what of a Program it cannot run (`lacks`),
and gives streams, events, time marks, memory and capture. Collectives are those of torch.distributed over `collectives`
(device/ranks/spawn.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from device.operators.kernel import Kernel
from scenarios.models.model import Model
from scenarios.ops.program import Op, Program, Tensor

if TYPE_CHECKING:
    from device.run.call import Call, Unit


class Profiler(Protocol):
    """What a backend's profiler hears."""

    def step(self) -> None:
        """One step is over."""


class Backend(Protocol):
    """One device that walks a Program.

    name: as `--backend` spells it. streams: how many run side by side. devices: how many ranks have a device each,
    None where they share one. collectives: the torch.distributed backend of its ranks.
    """

    name: str
    device: torch.device
    streams: int

    collectives: str

    @property
    def devices(self) -> int | None: ...

    def describe(self) -> dict[str, str | int]:
        """What a result must say of where it was measured: device, torch, threads."""

    def kernel(self, op: Op) -> Kernel:
        """How `op` is computed here. KeyError where it is not: `lacks` says so before a run."""

    def lacks(self, program: Program, model: Model) -> list[str]:
        """What of `program` this backend cannot run, one line each: the switch, why, what to do. model: what one rank
        holds of it."""

    def held(
        self, op: Op, tensor: Tensor, value: torch.Tensor, act: torch.dtype, others: Callable[[Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """`value`, the weight `tensor`, as this backend's kernel of `op` reads it. act: how 16-bit values are held.
        others: gives the other weights of `op`, as the Program keeps them."""

    def units(self, graph: str, calls: Sequence[Call], captures: dict[object, Any]) -> Sequence[Unit]:
        """`calls` as the graph mode issues them. captures: what earlier Programs of the session have captured."""

    def free_bytes(self) -> int:
        """Memory that an allocation may count on, bytes."""

    def synchronize(self) -> None:
        """Wait until all that was issued is done."""

    def stream(self, number: int) -> AbstractContextManager[None]:
        """What is issued inside goes to stream `number`; 0 is the main one."""

    def record(self) -> Any:
        """An event that is over when all that was issued before on the current stream is."""

    def wait(self, event: Any) -> None:
        """What is issued after on the current stream waits for `event`."""

    def keep(self, x: torch.Tensor) -> None:
        """The memory of `x` goes to nobody else before what was issued until now on the current stream is done."""

    def mark(self) -> Any:
        """A point in time on the current stream."""

    def profiler(self, folder: Path, rank: int, steps: int) -> AbstractContextManager[Profiler]:
        """A profiler that lets one step pass to warm up, records `steps` and writes them into `folder` under the name
        of `rank`."""

    def between_ns(self, start: Any, end: Any) -> int:
        """Nanoseconds between two marks, after `synchronize`."""

    def queue(self, ns: float) -> bool:
        """Queue work of about so many nanoseconds on the device, so that what is issued next waits there and not for
        the host. False where a call ends with its work, so that nothing can wait."""

    def is_done(self, mark: Any) -> bool:
        """Whether the device has come to the mark."""

    def busy_ns(self, start: Any, end: Any) -> int:
        """The same without those in which other programs had the processor; all of them on a device of its own."""

    def own_ns(self) -> int:
        """A clock of the host that stands still while other programs have the processor that does the work; a plain
        one where a device does it."""
