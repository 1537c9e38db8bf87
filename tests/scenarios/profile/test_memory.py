"""Large traces in bounded memory: the whole process, measured from outside. Speed is `benchmarks/profiles.py`'s."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.profiles import write_trace

#: A child that imports a trace and prints how many events it kept and its own peak, MB.
CHILD = """
import resource, sys
from scenarios.profile.read import read_captures
from sim.imported.result import import_result
found = read_captures(sys.argv[1])
import_result(found, None)
print(len(found.captures[0].events), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux only")


def imported(path: Path, root: Path) -> tuple[int, float]:
    """Events kept and peak in MB of a process that imports `path`.

    A child's peak starts with that of the process it is forked from, so a small one stands in between.
    """
    starter = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', *sys.argv[1:]]).returncode)"
    command = [sys.executable, "-c", starter, CHILD, str(path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    events, peak = done.stdout.split()
    return int(events), float(peak)


@pytest.mark.slow
def test_a_trace_of_60_mb_takes_a_fraction_of_it(tmp_path: Path, root: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    for folder, megabytes in ((small, 1), (large, 60)):
        folder.mkdir()
        write_trace(folder / "trace_view.json", megabytes)
    (few, base), (many, peak) = (imported(folder, root) for folder in (small, large))
    assert many > 40 * few
    assert peak < 110
    # An event of 200 bytes in the file is a row of about 37 bytes, and joining and sorting them takes as much again.
    assert peak - base < 0.5 * 60


@pytest.mark.study
@pytest.mark.timeout(900)
def test_a_gigabyte_is_imported_in_100_mb(tmp_path: Path, root: Path) -> None:
    write_trace(tmp_path / "trace_view.json", 1000)
    events, peak = imported(tmp_path, root)
    assert 1_000 < events < 100_000  # of the step that is looked at and its neighbours
    assert peak < 100
