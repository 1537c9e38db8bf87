"""What a number of a hardware profile may be: one bound for each unit, so that no typing error prices a step.

The bounds are wide (assumed): they refuse what no device has, a decimal for a count, a zero that a time is divided by.
"""

from __future__ import annotations

#: (smallest, largest) by the end of a number's name, the first that fits; rates are divided by and never 0.
_OF_UNIT: tuple[tuple[str, float, float], ...] = (
    ("_gbps", 1e-3, 1e6),
    ("_mhz", 1, 1e5),
    ("_us", 0, 1e9),
    ("_ns", 0, 1e9),
    ("sigma", 0, 5),
    ("_bytes", 0, 2**50),
    ("_share", 0, 1),
)
#: Numbers that are no quantity of their unit: counts, switches, and what is divided by.
_OF_NAME: dict[tuple[str, str], tuple[float, float]] = {
    **{("Chip", name): (1, 65_536) for name in ("cube_cores", "vector_cores", "ai_cpu_cores")},
    **{("Chip", name): (1, 4096) for name in ("cube_m", "cube_n", "cube_k", "vector_bytes")},
    **{("Chip", name): (1024, 2**40) for name in ("ub_bytes", "l1_bytes", "l0c_bytes")},
    ("Chip", "hbm_capacity_bytes"): (2**20, 2**50),
    ("Chip", "hbm_visible_bytes"): (2**20, 2**50),
    ("Memory", "nz_flat_share"): (1e-3, 1),
    ("Memory", "vector_hbm_share"): (1e-3, 1),
    ("Memory", "nd_tall_share"): (1e-3, 1),
    ("Memory", "nd_odd_share"): (1e-3, 1),
    ("Kernel", "register_cycles"): (0, 1000),
    ("Kernel", "cube_efficiency"): (1e-3, 1),
    ("Kernel", "overlap_power"): (1, 64),
    ("Host", "queue_depth"): (1, 2**24),
    ("Collective", "full_mesh"): (0, 1),
    ("Collective", "ai_cpu_default"): (0, 1),
    ("Collective", "aiv_busy_share"): (0, 100),
    **{("Collective", f"dies_per_{group}"): (1, 65_536) for group in ("card", "server", "pod")},
    **{
        ("Collective", f"aiv_{name}"): (1, 65_536)
        for name in ("cores_per_rank", "min_cores", "min_reduce_cores", "max_cores")
    },
    # of engine profiles
    **{("Device", name): (1e-3, 1e3) for name in ("scale", "dispatch_scale")},
    **{("Cpu", name): (1e-2, 65_536) for name in ("cores", "threads", "threads_per_rank")},
    ("KernelParams", "rows_multiple"): (0, 65_536),
}


def bounds_of(section: str, name: str) -> tuple[float, float]:
    """(smallest, largest) value of the number `name` of a section, both allowed. Raises KeyError for a number whose
    unit has no bound."""
    if (section, name) in _OF_NAME:
        return _OF_NAME[section, name]
    for end, smallest, largest in _OF_UNIT:
        if name.endswith(end):
            return smallest, largest
    raise KeyError(f"{section}.{name}: its unit has no bound; name one in sim/hardware/bounds.py")
