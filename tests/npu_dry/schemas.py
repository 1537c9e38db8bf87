"""The signatures of torch_npu's calls in wheels that need not be installed.

    pip download --no-deps --only-binary :all: -d wheels torch-npu==2.9.0
    python -m tests.npu_dry.schemas wheels/*.whl

In the project's own environment this writes schemas.json again, from a wheel of each of `versions.WHEELS`. A library
registers its operators with their schemas, so these stand in it as text: nothing is imported, and no CANN or torch of
another version is needed. What is captured, and whether there is a backend npugraph_ex, is reported by the wheel's own
Python files.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from device.operators.npu.rules import RULES
from device.operators.npu.versions import WHEELS, order

FILE = Path(__file__).parent / "schemas.json"
LIBRARIES = ("torch_npu/lib/libtorch_npu.so", "torch_npu/lib/libop_plugin_atb.so")
#: Calls that lay weights out, next to those of the rules.
LAYING = ("npu_convert_weight_to_int4pack", "npu_format_cast", "npu_trans_quant_param")
#: Calls whose lengths follow the step, and where the wheels keep what hands them over under capture.
LENGTHS = ("npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2")
HANDLERS = re.compile(r"torch_npu/npu/(graphs|_npugraph_handlers/\w+)\.py")
NPUGRAPH_EX = "torch_npu/npu/npugraph_ex/__init__.py"


@dataclass(frozen=True, slots=True)
class Wheel:
    """calls: signature by name. updated: the calls that take new lengths at a replay. npugraph_ex: has that backend."""

    calls: dict[str, str] = field(default_factory=dict)
    updated: tuple[str, ...] = ()
    npugraph_ex: bool = False


def signature(name: str, library: str) -> str | None:
    """`name(Tensor x, ...) -> ...` of the text of a library. A compiler that copies a string in pieces may have cut its
    end: then as far as it goes."""
    whole = re.search(
        rf"(?<!_){name}(\([^\0]*?\) -> (?:\([^()\0]*(?:\(a!\)[^()\0]*)*\)|Tensor(?:\(a!\))?(?:\[\])?))", library
    )
    if whole:
        return (name + whole.group(1)).replace('"', "'")
    cut = re.search(rf"(?<!_){name}\((?:Tensor(?:\([a-z]!\))? [a-z_]+(?:, )?)+", library)
    return f"{cut.group()}..." if cut else None


def read(path: Path) -> Wheel:
    """What a wheel's libraries and Python files say."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        text = "\0".join(wheel.read(name).decode("latin-1") for name in LIBRARIES)
        handlers = "".join(wheel.read(name).decode() for name in names if HANDLERS.fullmatch(name))
    result = {name: signature(name, text) for name in sorted({*RULES, *LAYING})}
    updated = tuple(name for name in LENGTHS if f'"{name}"' in handlers)
    return Wheel({name: text for name, text in result.items() if text}, updated, NPUGRAPH_EX in names)


def document(wheels: dict[str, Wheel]) -> dict[str, Any]:
    """Each signature once, with the versions that have it."""
    calls: dict[str, dict[str, list[str]]] = {}
    for version in sorted(wheels, key=order):
        for name, text in wheels[version].calls.items():
            calls.setdefault(name, {}).setdefault(text, []).append(version)
    facts = {v: {"updated": wheels[v].updated, "npugraph_ex": wheels[v].npugraph_ex} for v in sorted(wheels, key=order)}
    return {"wheels": facts, "calls": dict(sorted(calls.items()))}


def load() -> dict[str, Wheel]:
    """The wheels of schemas.json by version."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    wheels = {
        version: Wheel({}, tuple(facts["updated"]), facts["npugraph_ex"]) for version, facts in stored["wheels"].items()
    }
    for name, signatures in stored["calls"].items():
        for text, versions in signatures.items():
            for version in versions:
                wheels[version].calls[name] = text
    return wheels


def main() -> None:
    wheels = {path.name.split("-")[1]: read(path) for path in map(Path, sys.argv[1:])}
    if missing := {wheel.torch_npu for wheel in WHEELS} - set(wheels):
        raise SystemExit(f"no wheel was given of {', '.join(sorted(missing, key=order))}")
    FILE.write_text(json.dumps(document(wheels), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
