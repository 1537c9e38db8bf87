"""What tests wait for on a page of the lab."""

from __future__ import annotations

from typing import Any

WAIT_MS = 60_000
CHART = '[data-testid="stVegaLiteChart"]'
NUMBER = "() => document.querySelector('.wi-value')?.firstChild?.textContent ?? ''"
#: The drawing of the first chart.
PICTURE = f"""() => {{
    const drawn = document.querySelector('{CHART} svg.marks, {CHART} canvas');
    return drawn ? (drawn.tagName === 'CANVAS' ? drawn.toDataURL() : drawn.outerHTML) : '';
}}"""


def drawn(page: Any) -> None:
    """Wait until there is a chart."""
    page.wait_for_selector(f"{CHART} svg.marks, {CHART} canvas")


def wait_other(page: Any, script: str, before: str) -> None:
    page.wait_for_function(f"(before) => {{ const now = ({script})(); return now && now !== before; }}", arg=before)


def wait_number(page: Any, text: str) -> None:
    page.wait_for_function(f"(text) => ({NUMBER})() === text", arg=text)


def settled(page: Any) -> None:
    """Wait until the server has drawn the page to its end."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', state="attached")
