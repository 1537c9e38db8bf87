"""A hardware profile with other numbers in it, by their dotted names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams


def with_numbers(hw: HardwareProfile, numbers: Mapping[str, float]) -> HardwareProfile:
    """`hw` with `numbers` under dotted names: `memory.hbm_gbps`, `fixed_us.ai_cpu`, `programs.swiglu.start_us`."""
    sections: dict[str, dict[str, float]] = {}
    programs: dict[str, dict[str, float]] = {}
    fixed = dict(hw.fixed_us)
    for name, value in numbers.items():
        match name.split("."):
            case ["programs", program, effect]:
                programs.setdefault(program, {})[effect] = value
            case ["fixed_us", key]:
                fixed[key] = value
            case [section, field]:
                sections.setdefault(section, {})[field] = value
    parts: dict[str, Any] = {name: replace(getattr(hw, name), **values) for name, values in sections.items()}
    params = {
        name: replace(hw.programs.get(name, KernelParams()), **values)  # type: ignore[arg-type]
        for name, values in programs.items()
    }
    return replace(hw, programs={**hw.programs, **params}, fixed_us=fixed, **parts)
