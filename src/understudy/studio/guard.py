"""Who may talk to the server: only a page that it served itself, opened with the token that it printed.

Everything else on the machine or on the web is refused: other sites (by `Origin` and `Sec-Fetch-Site`), names that were
pointed at this address (by `Host`), and processes that do not know the token. Nothing is cached.
"""

import dataclasses
import secrets
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

COOKIE = "understudy_studio"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No script or style inside the page, and nothing from elsewhere."""
CERTIFICATE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"
"""A certificate has its style inside and runs no script; the page shows it in a frame."""
REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; "
    "sandbox allow-scripts"
)
"""A report has a script of its own. In the sandbox it has no origin, so it can ask this server for nothing."""

_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": PAGE_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
}
_READS = ("GET", "HEAD")


@dataclasses.dataclass(frozen=True)
class Door:
    """Where the server listens and what opens it.

    The path is random too: a cookie belongs to a host and a path but not to a port, so other servers of this machine
    would receive it otherwise.
    """

    port: int
    token: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(32))
    path: str = dataclasses.field(default_factory=lambda: f"/{secrets.token_hex(8)}")

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The address to open."""
        return f"{self.origin}{self.path}/?token={self.token}"

    def fits(self, given: str | None) -> bool:
        """Whether this is the token; takes equally long for all wrong ones."""
        return given is not None and secrets.compare_digest(given.encode(), self.token.encode())


class Guard:
    """Refuses every request that did not come from the page, and sets the headers of every response."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope) if scope["type"] == "http" else WebSocketClose()
        await (self._app if answer is None else answer)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """The response to a request that goes no further; None: it may."""
        headers, reads = Headers(scope=scope), scope["method"] in _READS
        if headers.get("host") != f"127.0.0.1:{self._door.port}":
            return _refuse(f"Open the page as {self._door.origin}: another name of this server is refused.")
        if reads and scope["path"] == f"{self._door.path}/" and (token := _token_in(scope)) is not None:
            return self._enter() if self._door.fits(token) else _refuse(_NO_TOKEN)
        if not any(map(self._door.fits, _cookies_in(headers))):
            return _refuse(_NO_TOKEN)
        site = headers.get("sec-fetch-site")
        if site not in (("same-origin", "none", None) if reads else ("same-origin", None)):
            return _refuse("Requests from other pages are refused.")
        if not reads and headers.get("origin") != self._door.origin:
            return _refuse("Requests that change something must come from the page itself.")
        return None

    def _enter(self) -> Response:
        """Exchanges the token in the address for a cookie, and leads to the address without it.

        Not a redirect: after one that began elsewhere, the browser would hold back a cookie for this site alone.
        """
        page = (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Understudy studio</title>'
            '<link rel="icon" href="data:,">'
            f'<meta http-equiv="refresh" content="0; url={self._door.path}/">'
        )
        response = HTMLResponse(page)
        response.set_cookie(COOKIE, self._door.token, path=f"{self._door.path}/", httponly=True, samesite="strict")
        return response


_NO_TOKEN = "Open the address that 'understudy studio' printed: it contains the token of this session."


def _refuse(reason: str) -> Response:
    return PlainTextResponse(f"Refused. {reason}\n", 403)


def _token_in(scope: Scope) -> str | None:
    return next(iter(parse_qs(scope["query_string"].decode("latin-1")).get("token", [])), None)


def _cookies_in(headers: Headers) -> list[str]:
    """All cookies of this name: another server of this machine may have set one for every path."""
    pairs = [part.strip().partition("=") for part in headers.get("cookie", "").split(";")]
    return [value for name, _, value in pairs if name == COOKIE]
