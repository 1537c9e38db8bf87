"""Write the box of sizes that each program's numbers were fitted to: `python -m sim.fitting.ranges`.

The file is a fact about the reference set, not a fit; `sim.kernel.ranges` widens intervals outside the boxes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from sim.fitting.kernels import Sample, read_samples, read_torchair
from sim.kernel.ranges import ANY, RANGES_FILE, Box, program_name, sizes_of


def boxes_of(samples: Iterable[Sample]) -> dict[tuple[str, str], Box]:
    """The box of each program on each device, and on any."""
    sizes: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for sample in samples:
        own = sizes_of(sample.work)
        if own:
            for device in (ANY, sample.hardware):
                sizes.setdefault((device, program_name(sample.work)), set()).add(own)
    return {key: Box.around(shapes) for key, shapes in sizes.items()}


def fitted_samples() -> list[Sample]:
    """The reference rows that the shipped numbers are fitted to."""
    return [*read_samples(use="yes"), *read_torchair(), *read_samples(use="alone")]


def write(path: Path = RANGES_FILE) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("device", "program", "shapes", "sizes"), lineterminator="\n")
        writer.writeheader()
        for (device, program), box in sorted(boxes_of(fitted_samples()).items()):
            sides = " ".join(f"{low}-{high}" for low, high in box.sides)
            writer.writerow({"device": device, "program": program, "shapes": box.shapes, "sizes": sides})


if __name__ == "__main__":
    write()
