"""The lab with Perfetto next to it: `streamlit run` serves the `app` of this file.

Every page comes with a policy that forbids other hosts: whatever a profile is called, its reader's browser asks nothing
of anybody.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app_pages.parts import perfetto

#: This server and nothing else. Streamlit's page has a script of its own in it, and Vega and Perfetto compile theirs.
POLICY = (
    "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval'; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)


class Offline:
    """Sends `POLICY` with every answer, and no address of these pages to whoever a reader goes on to."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = POLICY
                headers["Referrer-Policy"] = "no-referrer"
            await send(message)

        await self._app(scope, receive, with_policy)


async def trace(request: Request) -> Response:
    """A kept trace, for Perfetto on the same page."""
    text = perfetto.kept(request.path_params["digest"])
    if text is None:
        return PlainTextResponse("no such trace", status_code=404)
    return Response(text, media_type="application/json")


def routes() -> list[BaseRoute]:
    """What is served next to the lab."""
    folder = perfetto.folder()
    if folder is None:
        return []
    return [Route("/trace/{digest}.json", trace), Mount("/perfetto", StaticFiles(directory=folder, html=True))]


app = st.App(Path(__file__).parents[2] / "app.py", routes=routes(), middleware=[Middleware(Offline)])
