"""A headless Chromium, driven over two pipes by the DevTools protocol: no network, and nothing to install but it."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import re
import select
import shutil
import signal
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
PATIENCE = 20.0
"""Seconds that an answer may take."""


class Browser:
    """One tab, with all that it told since the page was opened."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._buffer = read, write, b""
        self._numbers, self._session = itertools.count(1), ""
        self.events: list[dict[str, Any]] = []

    def start(self) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer; events in between are kept."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._write, content) :]
        while True:
            answer = self._message()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, event: str) -> None:
        while not any(each.get("method") == event for each in self.events):
            self.events.append(self._message())

    def _message(self) -> dict[str, Any]:
        limit = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, limit - time.monotonic()))
            part = os.read(self._read, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("The browser does not answer.")
            self._buffer += part
        content, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(content)

    def open(self, page: Path, *, width: int = 1280, height: int = 900) -> None:
        """Shows a file in a window of this size."""
        self.resize(width, height)
        self.events.clear()
        self.send("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def resize(self, width: int, height: int = 900) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def hover(self, selector: str, index: int = 0) -> None:
        """Scrolls to an element and moves the mouse onto its middle."""
        x, y = self.evaluate(
            f"(async () => {{ const e = document.querySelectorAll({json.dumps(selector)})[{index}];"
            " e.scrollIntoView({block: 'center'});"
            " for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);"  # the scrolling is then over
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        code = {"Tab": 9, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "End": 35}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions of scripts."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(parameters["exceptionDetails"]["text"])
                case "Runtime.consoleAPICalled":
                    found.append(str(parameters["args"]))
                case "Log.entryAdded":
                    found.append(parameters["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """What the page asked for, itself included."""
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def screenshot(self, *, top: float = 0, height: float | None = None) -> bytes:
        """The page as it looks, from `top` on; for a person to look at."""
        width, whole = self.evaluate("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": top, "width": width, "height": height or whole - top, "scale": 1}
        answer = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A fresh Chromium that vanishes with the block."""
    assert CHROMIUM is not None
    to_read, from_us = map(_high, os.pipe())
    to_us, to_write = map(_high, os.pipe())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, open(os.devnull, "r+b") as nothing:
        command = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]  # fmt: skip
        given = {0: nothing.fileno(), 1: nothing.fileno(), 2: nothing.fileno(), 3: to_read, 4: to_write}
        actions = [(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in given.items()]
        process = os.posix_spawn(CHROMIUM, command, os.environ, file_actions=actions)
        os.close(to_read)
        os.close(to_write)
        try:
            tab = Browser(to_us, from_us)
            tab.start()
            yield tab
        finally:
            os.close(from_us)  # the browser ends with its pipe
            os.close(to_us)
            _gone(process)


def _high(pipe: int) -> int:
    """The same pipe under a number that is not among those the browser expects."""
    number = fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(pipe)
    return number


def _gone(process: int) -> None:
    limit = time.monotonic() + 5
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if time.monotonic() > limit:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return
        time.sleep(0.02)


# Reading what was printed


def pdf_pages(pdf: bytes) -> list[str]:
    """The text of each page of a PDF that Chromium wrote: glyphs through their fonts' tables back to letters."""
    objects = {int(n): body for n, body in re.findall(rb"\n(\d+) 0 obj\s(.*?)\nendobj", pdf, re.S)}
    pages = [body for body in objects.values() if re.search(rb"/Type\s*/Page\b", body)]
    return [_page_text(page, objects) for page in pages]


def _stream(body: bytes) -> bytes:
    head, _, rest = body.partition(b"stream")
    length = re.search(rb"/Length (\d+)", head)
    assert length is not None
    content = rest.lstrip(b"\r\n")[: int(length[1])]
    return zlib.decompress(content) if b"/FlateDecode" in head else content


def _page_text(page: bytes, objects: dict[int, bytes]) -> str:
    contents = re.search(rb"/Contents (\d+) 0 R", page)
    fonts = re.search(rb"/Font\s*<<(.*?)>>", page, re.S)
    assert contents is not None
    tables = {}
    for name, number in re.findall(rb"/(\w+) (\d+) 0 R", fonts[1] if fonts else b""):
        unicode = re.search(rb"/ToUnicode (\d+) 0 R", objects[int(number)])
        tables[name] = _letters(_stream(objects[int(unicode[1])])) if unicode else {}
    text, table = [], dict[int, str]()
    for font, glyphs in re.findall(rb"/(\w+) [\d.]+ Tf|<([0-9A-Fa-f]+)>", _stream(objects[int(contents[1])])):
        if font:
            table = tables.get(font, {})
        text += [table.get(int(glyphs[i : i + 4], 16), "?") for i in range(0, len(glyphs), 4)]
    return "".join(text)


def _letters(table: bytes) -> dict[int, str]:
    letters = {}
    for block in re.findall(rb"beginbfchar(.*?)endbfchar", table, re.S):
        for glyph, letter in re.findall(rb"<(\w+)>\s*<(\w+)>", block):
            letters[int(glyph, 16)] = bytes.fromhex(letter.decode()).decode("utf-16-be")
    for block in re.findall(rb"beginbfrange(.*?)endbfrange", table, re.S):
        for first, last, letter in re.findall(rb"<(\w+)>\s*<(\w+)>\s*<(\w+)>", block):
            for i in range(int(first, 16), int(last, 16) + 1):
                letters[i] = chr(int(letter, 16) + i - int(first, 16))
    return letters
