"""Stand-ins for the shared libraries of CANN, so that an unmodified torch_npu wheel runs with no driver and no CANN.

stub (tier 1): every function returns 0: torch_npu can be imported, with its real schemas and meta kernels.
dry (tiers 2 and 3): dry_rt.c on top: tensors on device `npu` lie in host memory, streams, events, graph capture and
HCCL keep their books, and every call is written to a trace; no operator computes anything.

The names come from the installed wheel: the undefined symbols of its libraries and, for dry, the strings that it looks
up with dlsym. No file of CANN is read and none is contained. Needs cc, nm and readelf (gcc and binutils).
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME = HERE / "dry_rt.c"
#: What torch_npu finds with dlsym, as strings in its libraries.
LOOKED_UP = re.compile(
    rb"(?<=\0)((?:acl|Hccl|Mspti|mspti|Msprof|rt[A-Z]|hal[A-Z]|drv[A-Z]|dsmi_|Dcmi|dcmi)\w{3,120})(?=\0)"
)
#: Opened by name; their symbols are found through libascendcl.so.
OPENED = {"libopapi.so", "libascend_hal.so", "libruntime.so", "libmsprofiler.so", "libnnopbase.so"}
TOOLS = ("cc", "nm", "readelf")


def built(kind: str) -> Path:
    """The folder of the `stub` or `dry` libraries, built where it is not there yet; next to the environment's own
    files.

    Raises RuntimeError where a tool is missing.
    """
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise RuntimeError(f"the stand-ins need {', '.join(missing)}: install gcc and binutils")
    made_of = hashlib.sha256(
        Path(__file__).read_bytes() + RUNTIME.read_bytes() + version("torch-npu").encode()
    ).hexdigest()[:12]
    folder = Path(sys.prefix) / "npu_stubs" / f"{kind}-{made_of}"
    if not folder.is_dir():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _build(kind, partial)
        try:
            partial.rename(folder)
        except OSError:  # another process has built the same in the meantime
            shutil.rmtree(partial)
    return folder


def load(folder: Path) -> None:
    """Load the stand-ins into this process, before torch_npu is imported: that satisfies its libraries by name."""
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    for library in sorted(folder.glob("lib*.so"), key=lambda path: path.name != "libascendcl.so"):
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def read_trace(path: Path) -> list[dict]:
    """The calls of a dry run, in order."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _build(kind: str, folder: Path) -> None:
    wheel = sorted(_package("torch_npu").glob("**/*.so"))
    torch = sorted((_package("torch") / "lib").glob("*.so*"))
    names, libraries = _wanted(wheel, torch)
    sources = [folder / "stubs.c"]
    operators: set[str] = set()
    if kind == "dry":
        for library in wheel:
            names |= {name.decode() for name in LOOKED_UP.findall(library.read_bytes())}
        names -= set(re.findall(r"^X [\w *]*?(\w+)\(", RUNTIME.read_text(encoding="utf-8"), re.M))
        operators = {n for n in names if n.startswith("aclnn") and not n.endswith("WorkspaceSize")}
        libraries |= OPENED
        sources.append(RUNTIME)
    sources[0].write_text("".join(_source(names, operators)), encoding="utf-8")
    whole = folder / "libascendcl.so"
    _run("cc", "-O1", "-w", "-shared", "-fPIC", f"-Wl,-soname,{whole.name}", "-o", whole, *sources, "-lpthread")
    for name in sorted(libraries - {whole.name}):  # empty, but a look-up in one reaches the whole
        _run(
            "cc", "-shared", "-fPIC", "-x", "c", "/dev/null", f"-Wl,-soname,{name}", "-Wl,--no-as-needed",
            "-Wl,-rpath,$ORIGIN", f"-L{folder}", "-lascendcl", "-o", folder / name,
        )  # fmt: skip


def _wanted(wheel: list[Path], torch: list[Path]) -> tuple[set[str], set[str]]:
    """(functions, libraries) that the wheel wants and nothing here has."""
    present = {path.name for path in (*wheel, *torch)}
    lines = [line for line in _run("ldconfig", "-p").splitlines() if "=>" in line]
    system = {line.split()[0]: Path(line.split()[-1]) for line in lines}
    defined = set().union(*(_symbols(path, "--defined-only") for path in (*wheel, *torch)))
    undefined: set[str] = set()
    missing = {"libascendcl.so"}
    for path in wheel:
        undefined |= _symbols(path, "--undefined-only")
        for name in re.findall(r"\(NEEDED\).*\[(.+?)\]", _run("readelf", "-d", path)):
            if name in system:
                defined |= _symbols(system[name], "--defined-only")
            elif name not in present:
                missing.add(name)
    return {name for name in undefined - defined if not name.startswith(("Py", "_Py"))}, missing


def _source(names: set[str], operators: set[str]):
    yield "long dry_launch(const char *, void *); long dry_prepare(const char *);\n"
    for name in sorted(names):
        if name in operators:
            yield f'long {name}(void *w, long z, void *e, void *s) {{ return dry_launch("{name}", s); }}\n'
        elif operators and name.startswith("aclnn") and name.endswith("GetWorkspaceSize"):
            yield f'long {name}(void) {{ return dry_prepare("{name[:-16]}"); }}\n'
        else:
            yield f"long {name}(void) {{ return 0; }}\n"


def _symbols(path: Path, which: str) -> set[str]:
    symbols = set()
    for line in _run("nm", "-D", which, path).splitlines():
        parts = line.split()
        if which == "--defined-only" or parts[-2] == "U":  # a weak one may stay undefined
            symbols.add(parts[-1].split("@")[0])
    return symbols


def _package(name: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"{name} is not installed")
    return Path(spec.submodule_search_locations[0])


def _run(*argv: object) -> str:
    return subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True).stdout
