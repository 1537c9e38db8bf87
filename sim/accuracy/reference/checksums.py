"""Pin the reference files: `python -m sim.accuracy.reference.checksums` writes CHECKSUMS, `differing()` compares with
it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
PINNED = HERE / "CHECKSUMS"


def digests() -> dict[str, str]:
    """SHA-256 of each reference file, by name."""
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(HERE.glob("*.csv"))}


def differing() -> list[str]:
    """Names of files that are new, gone or not what CHECKSUMS says."""
    lines = (line.split() for line in PINNED.read_text().splitlines())
    pinned = {name: digest for digest, name in lines}
    found = digests()
    return sorted(name for name in pinned.keys() | found.keys() if pinned.get(name) != found.get(name))


if __name__ == "__main__":
    PINNED.write_text("".join(f"{digest}  {name}\n" for name, digest in digests().items()))
