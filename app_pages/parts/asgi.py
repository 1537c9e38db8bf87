"""The lab with Perfetto next to it: `streamlit run` serves the `app` of this file."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from app_pages.parts import perfetto


class Offline(StaticFiles):
    """Files whose scripts may ask nothing of other machines: Perfetto's page would, for its makers' own use."""

    POLICY = "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval'"

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Content-Security-Policy"] = self.POLICY
        return response


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
    return [Route("/trace/{digest}.json", trace), Mount("/perfetto", Offline(directory=folder, html=True))]


app = st.App(Path(__file__).parents[2] / "app.py", routes=routes())
