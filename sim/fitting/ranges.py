"""Write the box of sizes that each program's numbers were fitted to: `python -m sim.fitting.ranges`.

The file is a fact about the reference set, not a fit; `sim.kernel.ranges` widens intervals outside the boxes.
"""

from __future__ import annotations

import csv
from pathlib import Path

from scenarios.ops.catalogue import params_name
from sim.fitting.kernels import Sample, read_samples
from sim.kernel.ranges import ANY, RANGES_FILE, sizes_of


def ranges_of(samples: list[Sample]) -> list[dict[str, str | int]]:
    """A line for each device and program: shapes, and the smallest and largest of each size."""
    sizes: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for sample in samples:
        own = sizes_of(sample.work)
        if own:
            for device in (ANY, sample.hardware):
                sizes.setdefault((device, params_name(sample.work.program)), set()).add(own)
    return [
        {"device": device, "program": program, "shapes": len(shapes), "sizes": _sides(shapes)}
        for (device, program), shapes in sorted(sizes.items())
    ]


def _sides(shapes: set[tuple[int, ...]]) -> str:
    return " ".join(f"{min(side)}-{max(side)}" for side in zip(*shapes, strict=True))


def fitted_samples() -> list[Sample]:
    """The reference rows that the shipped numbers are fitted to."""
    return [*read_samples(use="yes"), *read_samples(use="alone")]


def write(path: Path = RANGES_FILE) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("device", "program", "shapes", "sizes"), lineterminator="\n")
        writer.writeheader()
        writer.writerows(ranges_of(fitted_samples()))


if __name__ == "__main__":
    write()
