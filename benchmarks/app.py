"""The lab against its bounds: a cold first page, and from a slider's key to the number and to the whole page.

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

#: A cold first page with numbers; from a slider to the new number, and until the whole page stands still: one card
#: and sixteen ranks. Seconds, on two idle cores.
FIRST_PAGE_S, NUMBER_S, PAGE_S, PAGE_OF_16_S = 4.0, 0.3, 1.5, 3.0
MOVES = 7
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--no-first-run")
CHART = '[data-testid="stVegaLiteChart"] canvas, [data-testid="stVegaLiteChart"] svg.marks'
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


STILL = '[data-testid="stApp"][data-test-script-state="notRunning"]'


def moves(page: Any, address: str, scenario: str) -> tuple[list[float], list[float]]:
    """From each key press on the batch slider: seconds until the number is another one, and until the page is still,
    the gains of every switch among it."""
    page.goto(f"{address}/?scenario={scenario}")
    page.wait_for_selector(".wi-value")
    page.wait_for_selector(CHART)
    page.wait_for_selector(STILL, state="attached")
    page.wait_for_timeout(3000)
    page.get_by_role("slider").first.focus()
    numbers, pages = [], []
    for key in ["ArrowRight"] * MOVES:
        before = page.evaluate(NUMBER)
        start = time.perf_counter()
        page.keyboard.press(key)
        changed(page, NUMBER, before)
        numbers.append(time.perf_counter() - start)
        page.wait_for_selector(STILL, state="attached")
        pages.append(time.perf_counter() - start)
        page.wait_for_timeout(1000)
    return numbers, pages


def main() -> None:
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        print(f"no Chromium on this machine ({', '.join(BROWSERS)}): nothing was measured")
        return
    from playwright.sync_api import sync_playwright

    with lab() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, headless=True, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        cold = first_page(page, f"{address}/?scenario=qwen3_8b_decode")
        numbers, pages = moves(page, address, "qwen3_8b_decode")
        _, pages_of_16 = moves(page, address, "qwen3_32b_tp16_decode")
        browser.close()
    rows = (
        ("first page, cold", cold, FIRST_PAGE_S),
        ("slider to number", statistics.median(numbers), NUMBER_S),
        ("whole page, one card", statistics.median(pages), PAGE_S),
        ("whole page, 16 ranks", statistics.median(pages_of_16), PAGE_OF_16_S),
    )
    for name, seconds, bound in rows:
        print(f"{name:22} {seconds:6.2f} s   bound {bound} s   {'PASS' if seconds < bound else 'over'}")
    print(f"numbers from {min(numbers):.2f} to {max(numbers):.2f} s")


if __name__ == "__main__":
    main()
