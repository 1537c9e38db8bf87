"""Pin the reference files: `python -m benchmarks.documents.checksums` writes CHECKSUMS, a test compares with
`differing()`."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from sim.accuracy.reference import FOLDER


def digests(folder: Path = FOLDER) -> dict[str, str]:
    """SHA-256 of each reference file, by name."""
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.csv"))}


def differing(folder: Path = FOLDER) -> list[str]:
    """Names of files that are new, gone or not what CHECKSUMS says."""
    lines = (line.split() for line in (folder / "CHECKSUMS").read_text().splitlines())
    pinned = {name: digest for digest, name in lines}
    present = digests(folder)
    return sorted(name for name in pinned.keys() | present.keys() if pinned.get(name) != present.get(name))


if __name__ == "__main__":
    (FOLDER / "CHECKSUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in digests().items()))
