"""The lab against its bounds: a cold first page, and from a slider's key to the redrawn number and timeline.

    python benchmarks/app.py

Needs a Chromium. Nothing here fails a build: the machine, and whatever else runs on it, decides the numbers.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FIRST_PAGE_S, REDRAW_S = 4.0, 0.5
MOVES = 12
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--no-first-run")
CHART = '[data-testid="stVegaLiteChart"] canvas, [data-testid="stVegaLiteChart"] svg.marks'
#: What the timeline looks like now: its drawing, or its pixels.
PICTURE = f"""() => {{
    const drawn = document.querySelector('{CHART}');
    return drawn ? (drawn.tagName === 'CANVAS' ? drawn.toDataURL() : drawn.outerHTML) : '';
}}"""
NUMBER = "() => document.querySelector('.wi-value')?.innerText ?? ''"


@contextmanager
def lab() -> Iterator[str]:
    """The address of a lab that was just started."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", "import cli; cli.main()", "app", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                if urllib.request.urlopen(f"{address}/_stcore/health").read() == b"ok":
                    break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def changed(page: Any, script: str, before: str) -> None:
    page.wait_for_function(f"(before) => {{ const now = ({script})(); return now && now !== before; }}", arg=before)


def first_page(page: Any, address: str) -> float:
    """Seconds from asking for the page to its first numbers and its first chart."""
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(".wi-value")
    page.wait_for_selector(CHART)
    return time.perf_counter() - start


def redraws(page: Any) -> list[float]:
    """Seconds from each key press on the batch slider until number and timeline are other ones."""
    page.wait_for_timeout(3000)
    page.get_by_role("slider").first.focus()
    seconds = []
    for key in ["ArrowRight"] * MOVES:
        number, picture = page.evaluate(NUMBER), page.evaluate(PICTURE)
        start = time.perf_counter()
        page.keyboard.press(key)
        changed(page, NUMBER, number)
        changed(page, PICTURE, picture)
        seconds.append(time.perf_counter() - start)
        page.wait_for_timeout(1500)
    return seconds


def main() -> None:
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        print(f"no Chromium on this machine ({', '.join(BROWSERS)}): nothing was measured")
        return
    from playwright.sync_api import sync_playwright

    with lab() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, headless=True, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        cold = first_page(page, address)
        moves = redraws(page)
        browser.close()
    median = statistics.median(moves)
    for name, seconds, bound in (("first page, cold", cold, FIRST_PAGE_S), ("slider to redrawn", median, REDRAW_S)):
        print(f"{name:20} {seconds:6.2f} s   bound {bound} s   {'PASS' if seconds < bound else 'over'}")
    print(f"redraws from {min(moves):.2f} to {max(moves):.2f} s")


if __name__ == "__main__":
    main()
