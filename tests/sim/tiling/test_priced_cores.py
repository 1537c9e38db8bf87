"""Cores of kernels as they are priced, against the block counts of the reference set.

`test_vector` and `test_cube` hold the rules themselves to profiles; here a row goes the whole way from its printed
shapes to a price, as `whatif validate` takes it.
"""

from __future__ import annotations

from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import read_kernels
from sim.accuracy.rows.op_types import Unpriced, work_of_row
from sim.hardware.profile import load_hardware
from sim.kernel.price import price

#: Op type and shapes of the first input and output: cores priced, cores counted. Casts to INT64 print no type of their
#: output and count as casts to 32 bit; copies of flags are cut as comparisons are, by 2 bytes; images of three channels
#: and of one pixel go 84 to a core, whatever 48 cores could take.
KNOWN_MISSES = {
    ("Cast", "1024", "1024"): (1, 2),
    ("Cast", "4096", "4096"): (4, 8),
    ("BroadcastTo", "1,1,1,4096;4", "1,16,1,4096"): (48, 32),
    ("TransData", "3840,3,14,14", "3840,1,14,14,16"): (48, 46),
    ("TransData", "3840,72,1,1,16", "3840,1152,1,1"): (48, 46),
}
#: RotaryMul starts on all 48 cores for two heads, which no published tiling says.
UNPRICED = {"RotaryMul", "ResizeBilinearV2"}


def test_kernels_are_priced_on_the_cores_that_their_profiles_count() -> None:
    missed: dict[tuple[str, str, str], tuple[int, int]] = {}
    unpriced: set[str] = set()
    exact = 0
    for row in read_kernels(reference_csv("kernels_torchair")):
        if not row.cores:
            continue
        try:
            work = work_of_row(row.op_type, row.input_shapes, row.dtypes, row.kv_tokens, row.output_shapes)
        except Unpriced:
            unpriced.add(row.op_type)
            continue
        cores = price(work, load_hardware(row.hardware), row.code, False).cores
        exact += cores == row.cores
        if cores != row.cores:
            missed[row.op_type, row.input_shapes, row.output_shapes] = (cores, row.cores)
    assert missed == KNOWN_MISSES
    assert unpriced == UNPRICED
    assert exact >= 295
