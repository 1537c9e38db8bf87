"""A calibrated profile as a file: every number of it with its source, whole, so that it needs no other file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, printable, quoted
from scenarios.exchange.timings import Timings
from scenarios.files.atomic import write_text
from scenarios.files.paths import is_dir
from sim.fitting.calibrated import Calibrated, Found, calibrated
from sim.fitting.robust import scipy
from sim.hardware.files import rounded
from sim.hardware.profile import SECTIONS, HardwareProfile, Number, hardware_names, load_hardware
from sim.hardware.sections import KernelParams

#: Ends the name of the file that holds the rows, next to the profile.
ROWS = ".rows.json"


def ready(backend: str, out: Path, hardware: str) -> tuple[Path, HardwareProfile]:
    """(the file of the rows, the base profile), before anything is measured.

    hardware: the base's name or file; "" for the one that is shipped for the device. Raises ScenarioError where scipy
    is missing, `out` is no place for a file, or the base is for another device.
    """
    scipy()
    if not out.name or is_dir(out):
        raise ScenarioError([f"--out {printable(str(out), 200)}: cannot be written: is a folder"])
    known = [name for name in hardware_names() if load_hardware(name).profile.device == backend]
    if not hardware and not known:
        raise ScenarioError([f"--hardware: no profile is shipped for {quoted(backend)}; name one to start from"])
    base = load_hardware(hardware or ("cpu" if "cpu" in known else known[0]))
    if base.profile.device != backend:
        what = f"{base.name} is a profile for {base.profile.device}, and --backend is {printable(backend)}"
        raise ScenarioError([f"--hardware: {what}" + (f"; one for it is {known[0]}" if known else "")])
    return out.with_name(out.name.removesuffix(".yaml") + ROWS), base


def write_profile(out: Path, timings: Timings, base: HardwareProfile) -> Calibrated:
    """Fit a profile to `timings` and write it to `out`, whole or not at all. Raises ScenarioError as `calibrated`."""
    calibration = calibrated(timings, base)
    write_text(out, profile_text(calibration, timings, out.stem or "calibrated"))
    return calibration


def profile_text(calibration: Calibrated, timings: Timings, name: str) -> Iterator[str]:
    """The profile, line by line. name: as results call it."""
    about, base = timings.about, calibration.hardware.profile
    where = f"{about.get('device', 'a CPU')}, torch {about.get('torch', '?')}, {about.get('threads', 1)} thread"
    date = str(about.get("date", ""))
    yield f"# Written by `whatif calibrate --backend {timings.backend}` on {date}: {where}.\n"
    yield f"# {len(timings.rows)} rows of microbenchmarks; what none speaks of is as in the profile {base.name}.\n"
    for what, why in sorted(calibration.unknown.items()):
        yield f"# Not identified: {what}: {why}\n"
    for what, why in timings.refused:
        yield f"# Not timed: {printable(what, 100)}: {printable(why, 200)}\n"
    yield f"name: {json.dumps(name)}\n"
    yield f"description: {json.dumps(f'Calibrated {date} on {where}')}\n"
    yield f"device: {base.device}\n"
    origin = f"whatif calibrate {date}, {where}"
    if "reference_us" in calibration.numbers:
        yield f"reference_us: {_number(calibration.numbers['reference_us'], origin)}\n"
    for section, cls in SECTIONS.items():
        yield f"\n{section}:\n"
        part = getattr(base, section)
        for field in fields(cls):
            name = f"{section}.{field.name}"
            whole = field.type == "int"
            shown = _either(calibration.numbers.get(name), getattr(part, field.name), origin, whole)
            yield f"  {field.name}: {shown}\n"
    yield from _programs(calibration, origin)
    yield "\nfixed_us:\n"
    for key, number in base.fixed_us.items():
        yield f"  {key}: {_either(calibration.numbers.get(f'fixed_us.{key}'), number, origin)}\n"


def _programs(calibration: Calibrated, origin: str) -> Iterator[str]:
    """All programs: those of the base, and those that were fitted, number by number."""
    fitted_numbers: dict[str, dict[str, Found]] = {}
    for name, number in calibration.numbers.items():
        if name.startswith("programs."):
            _, program, effect = name.split(".")
            fitted_numbers.setdefault(program, {})[effect] = number
    base: Mapping[str, Any] = calibration.hardware.profile.programs
    yield "\nprograms:\n"
    for program in sorted({*fitted_numbers, *base}):
        yield f"  {program}:\n"
        for field in fields(KernelParams):
            fitted, kept = fitted_numbers.get(program, {}).get(field.name), getattr(base.get(program), field.name, None)
            if fitted is not None:
                yield f"    {field.name}: {_number(fitted, origin)}\n"
            elif kept is not None:
                yield f"    {field.name}: {_kept(kept)}\n"


def _either(fitted: Found | None, number: Number, origin: str, whole: bool = False) -> str:
    return _kept(number) if fitted is None else _number(fitted, origin, whole)


def _kept(number: Number) -> str:
    text = f"{{value: {number.value}, source: {number.source}, origin: {json.dumps(number.origin, ensure_ascii=False)}"
    if number.low is not None:
        text += f", low: {number.low}"
    if number.high is not None:
        text += f", high: {number.high}"
    return text + "}"


def _number(fitted: Found, origin: str, whole: bool = False) -> str:
    value, low, high = (int(v) if whole else rounded(v) for v in (fitted.value, fitted.low, fitted.high))
    text = f"{{value: {value:g}" if not whole else f"{{value: {value}"
    said = f"{origin}: {fitted.how}"
    text += f", source: {fitted.source}, origin: {json.dumps(said, ensure_ascii=False)}"
    if fitted.source in ("measured", "fitted"):
        text += f", low: {min(low, value):g}, high: {max(high, value):g}"
    return text + "}"
