"""The error table of the hardware tests, printed at the end of the run."""

from __future__ import annotations

from typing import Any

#: Under this name a test leaves its lines for the table.
TABLE = "hardware table"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the tests have left, the workers' too."""
    reports = [r for kind in ("passed", "failed", "xfailed") for r in terminalreporter.stats.get(kind, [])]
    lines = [line for report in reports for name, line in getattr(report, "user_properties", ()) if name == TABLE]
    if lines:
        terminalreporter.section("predicted against measured on this hardware")
        for line in lines:
            terminalreporter.write_line(str(line))
