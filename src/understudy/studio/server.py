"""The server of the page: routes, answers and errors. The `Guard` decides who may ask, and the `Desk` answers."""

import errno
import functools
import importlib
import importlib.resources
import json
import os
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from understudy.errors import ConfigError, UnderstudyError
from understudy.run.atomic import write_file
from understudy.studio.desk import REPORTS, Desk
from understudy.studio.guard import CERTIFICATE_POLICY, REPORT_POLICY, Door, Guard

MAX_BYTES = 4_000_000
"""The largest request that is read: a schema with very long lists of categories."""

PAGE = importlib.resources.files("understudy.studio").joinpath("page")


def make_app(desk: Desk, door: Door) -> ASGIApp:
    """The guarded application."""

    def answers(act: Callable[..., object], *, takes_content: bool = False) -> Callable[..., Any]:
        """An endpoint that runs `act` in a thread, since planning takes seconds, and sends what it returns as JSON."""

        async def endpoint(request: Request) -> Response:
            given = await _read_json(request) if request.method == "POST" else {}
            content = {"given": given} if takes_content else {}
            return JSONResponse(await run_in_threadpool(act, **request.path_params, **content))

        return endpoint

    def send_file(request: Request) -> Response:  # not a coroutine: in a thread too
        return _file_response(desk, request.path_params["number"], request.path_params["name"])

    run = "/runs/{number:int}"
    shown: Mapping[str, Callable[..., object]] = {
        "/state": desk.describe,
        "/schema": desk.describe_schema,
        "/book": desk.describe_book,
        "/runs": desk.runs,
        run: desk.run,
        f"{run}/preview": desk.preview,
    }
    changed = {f"{run}/cancel": desk.cancel, f"{run}/resume": desk.resume, f"{run}/discard": desk.discard}
    changed_as_given: Mapping[str, Callable[..., object]] = {
        "/schema": functools.partial(_check_schema, desk),
        "/plan": desk.plan,
        "/runs": desk.start,
        f"{run}/report/{{kind}}": desk.report,
    }
    api = [
        *(Route(path, answers(act)) for path, act in shown.items()),
        *(Route(path, answers(act), methods=["POST"]) for path, act in changed.items()),
        *(Route(path, answers(act, takes_content=True), methods=["POST"]) for path, act in changed_as_given.items()),
        Route(f"{run}/files/{{name}}", send_file),
    ]
    page = StaticFiles(directory=str(PAGE), html=True)
    routes = [Mount(door.path, routes=[Mount("/api", routes=api), Mount("/", app=page)])]
    handlers = {UnderstudyError: _refuse, HTTPException: _http_error, Exception: _fail}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), door)


def _check_schema(desk: Desk, given: Mapping[str, Any]) -> object:
    base = str(given.get("base"))
    if isinstance(given.get("toml"), str):
        return desk.check_toml(given["toml"], base)
    form = given.get("form")
    return desk.check_form(form if isinstance(form, dict) else {}, base, save=given.get("save") is True)


async def _read_json(request: Request) -> Mapping[str, Any]:
    """The object that a request holds. Only JSON is read, which no form of another site can send."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "Expected JSON.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise HTTPException(413, "The request is too large.")
    try:
        given = json.loads(bytes(body) or b"{}")
    except (ValueError, RecursionError):
        raise HTTPException(400, "The request is not valid JSON.") from None
    if not isinstance(given, dict):
        raise HTTPException(400, "Expected a JSON object.")
    return given


def _file_response(desk: Desk, number: int, name: str) -> Response:
    """A file of a run: pages to look at, each in its own sandbox, and everything else to download."""
    file = desk.file(number, name)
    policies = {"certificate.html": CERTIFICATE_POLICY} | {f"{kind}.html": REPORT_POLICY for kind in REPORTS}
    if name in policies:
        headers = {"content-security-policy": policies[name]}
        return FileResponse(file, media_type="text/html; charset=utf-8", headers=headers)
    return FileResponse(file, media_type="application/octet-stream", filename=name)


async def _refuse(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": " ".join(str(error).split())}, 400)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


async def _fail(request: Request, error: Exception) -> Response:
    """The text of an unexpected error may quote a value of the table: only its type is sent."""
    return JSONResponse({"error": f"Internal error ({type(error).__name__}). Please report it."}, 500)


def listen(port: int) -> socket.socket:
    """A socket of this machine alone; 0 chooses a free port."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(("127.0.0.1", port))
        opened.listen(128)
    except OSError as error:
        opened.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"Port {port} is in use. Choose another with --port, or leave it out for a free one.", setting="port"
            ) from None
        raise ConfigError(f"Cannot listen on port {port}: {error.strerror}. Choose another with --port.") from None
    return opened


def serve(desk: Desk, opened: socket.socket, *, browser: bool, tell: Callable[[str], None]) -> None:
    """Serves the page until Ctrl-C. A run in progress continues."""
    door = Door(opened.getsockname()[1])
    app = make_app(desk, door)
    tell(f"Studio of {desk.source}, for this machine only. Stop it with Ctrl-C.")
    tell(f"Everything is written to {desk.folder}{os.sep}, which only you can open.")
    config = uvicorn.Config(app, log_level="error", access_log=False, server_header=False, lifespan="off")
    server = uvicorn.Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    # The libraries that the first plan would wait for.
    threading.Thread(target=importlib.import_module, args=("understudy.api",), daemon=True).start()
    # From the moment that the address is known, Ctrl-C ends the server in order, also before it has started.
    before = signal.signal(signal.SIGINT, stop)
    try:
        tell(door.url)
        if browser:  # in a thread: a browser in the terminal would keep the server from starting
            page = _opening_page(desk.folder, door).as_uri()
            threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
        server.run(sockets=[opened])
    finally:
        signal.signal(signal.SIGINT, before)
        (desk.folder / "open.html").unlink(missing_ok=True)
    if desk.jobs.running() is not None:
        tell("A run is still in progress. Start the studio again to see it.")


def _opening_page(folder: Path, door: Door) -> Path:
    """A page that leads to the address: the token must not be in the command line of a browser, which all users see."""
    page = folder / "open.html"
    text = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={door.url}">'
    write_file(page, text.encode(), force=True, mode=0o600)
    return page
