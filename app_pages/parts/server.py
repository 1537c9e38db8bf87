"""Starting the lab: the flags that make it safe by default, and what stands in the way said in one line."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import socket
import threading
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, printable
from scenarios.files.paths import is_dir

PAGES = Path(__file__).parents[1]
#: The lab with the policy of its pages, and with Perfetto where the package that brings it is installed.
SCRIPT = PAGES / "parts" / "asgi.py"

#: The environment variable with the folder whose profiles the profile page offers.
FOLDER = "WHATIF_PROFILES"

#: Loopback only, nothing sent home, no files watched, uploads bounded, no developer's menu, no traceback on a page.
FLAGS: tuple[tuple[str, str], ...] = (
    ("server.address", "127.0.0.1"),
    ("server.headless", "true"),
    ("server.fileWatcherType", "none"),
    ("server.maxUploadSize", "200"),
    ("server.maxMessageSize", "200"),
    ("server.allowedHosts", "localhost"),
    ("server.allowedHosts", "127.0.0.1"),
    ("browser.gatherUsageStats", "false"),
    ("client.toolbarMode", "minimal"),
    ("client.showErrorDetails", "none"),
    # A full collection behind every run of a page is a tenth of a second in which nothing is sent.
    ("runner.postScriptGC", "false"),
    ("theme.base", str(PAGES / "theme.toml")),
)


def start(port: int, profiles: Path | None = None) -> None:
    """Serve the lab on 127.0.0.1:`port` until it is interrupted. profiles: the folder that the profile page offers.

    Raises ScenarioError where streamlit is not installed, the port is taken or the folder is none.
    """
    if profiles is not None:
        if not is_dir(profiles):
            raise ScenarioError([f"--profiles {printable(str(profiles), 200)}: is no folder"])
        os.environ[FOLDER] = str(profiles.resolve())
    if importlib.util.find_spec("streamlit") is None:
        raise ScenarioError(["app: streamlit is not installed; pip install 'ascend-whatif[app]'"])
    refuse_taken(port)
    from streamlit.web.cli import main

    send_at_once()
    threading.Thread(target=prepare, daemon=True).start()
    main(command(port), prog_name="streamlit")


def send_at_once() -> None:
    """Have the server send what is small without waiting for more of it. asyncio switches Nagle's algorithm off for
    sockets whose protocol says TCP; Streamlit's listening socket leaves it at 0, and what it accepts does too: a
    message would wait up to 40 ms for the acknowledgement of the one before it."""
    try:
        serving: Any = importlib.import_module("streamlit.web.server.starlette.starlette_server")
        bind = serving._bind_socket
    except (ImportError, AttributeError):  # another Streamlit, which binds elsewhere: slower, and right
        return

    def bound(address: str, port: int, backlog: int) -> socket.socket:
        listening: socket.socket = bind(address, port, backlog)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what it accepts has it from it
        return listening

    serving._bind_socket = bound


#: As the interpreter has it: a collection of the 100,000 objects that commands wait for would stop a page.
COLLECT_AFTER = 700, 10, 10


def prepare() -> None:
    """Have what the first page needs before it is asked for: its modules, the answer that it opens with, and the
    measured rows. What is there then stays: the garbage collector, which would stop a page, no longer looks through it.
    """
    for module in ("pandas", "pyarrow", "app_pages.parts.lab.gains", "app_pages.parts.lab.files"):
        importlib.import_module(module)
    from app_pages.parts import answers
    from app_pages.parts.state import Question

    answers.first(Question())
    answers.measured(Question())
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def command(port: int) -> list[str]:
    """The arguments of `streamlit` that serve the lab."""
    return ["run", str(SCRIPT), f"--server.port={port}", *(f"--{key}={value}" for key, value in FLAGS)]


def refuse_taken(port: int) -> None:
    """Raise ScenarioError where nothing can listen on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ScenarioError([f"--port {port}: cannot listen on it: {why}; name another one"]) from None
